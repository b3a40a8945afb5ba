/** The site of the documentation: every link leads somewhere, and every page and every public name can be found. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Built, buildSite } from '../site/build.ts'
import { members, statements } from '../site/declarations.ts'
import { deadLinks } from '../site/links.ts'
import { anchorsOf, linksOf, render } from '../site/markdown.ts'
import { readingOrders } from '../site/navigation.ts'
import { writtenPages } from '../site/pages.ts'

const folder = mkdtempSync(join(tmpdir(), 'holdfast-site-'))
afterAll(() => rmSync(folder, { recursive: true }))

describe('the built site', () => {
  const site = join(folder, 'site')
  let built: Built
  // Two seconds of work, and far more where other programs keep the machine busy.
  beforeAll(() => {
    built = buildSite(site)
  }, 180_000)

  const page = (path: string): string => readFileSync(join(site, path), 'utf8')

  test('has no link that leads nowhere', () => {
    expect(built.dead).toEqual([])
    expect(built.pages).toBeGreaterThan(100)
  })

  test('has three reading orders, and what to look up', () => {
    const titles = readingOrders(writtenPages()).map(({ title }) => title)
    expect(titles).toEqual([
      'I have a job to protect',
      'I choose an engine',
      'I do not believe you',
      'To look things up',
    ])
  })

  test('indents recipes and engines under their point, and nothing else', () => {
    const [jobs, engines] = readingOrders(writtenPages())
    const details = (items: NonNullable<typeof jobs>['items'] = []): readonly string[] =>
      items.filter(({ isDetail }) => isDetail).map(({ source }) => source)
    expect(details(engines?.items).filter((source) => !source.startsWith('docs/engines/'))).toEqual([])
    expect(details(engines?.items).length).toBeGreaterThan(8)
    expect(details(jobs?.items)).toContain('docs/recipes/once.md')
    expect(details(jobs?.items)).not.toContain('docs/fencing.md')
  })

  test('has every page of docs/ in its navigation, but for the decisions, which have a list of their own', () => {
    const listed = new Set(readingOrders(writtenPages()).flatMap(({ items }) => items.map(({ source }) => source)))
    const pages = readdirSync('docs', { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.md'))
    const missing = pages.filter((path) => !path.startsWith('decisions') && !listed.has(join('docs', path)))
    expect(missing).toEqual(['README.md'])
    expect(page('docs/decisions/index.html')).toContain('href="001-a-missed-deadline-is-final.html"')
  })

  test('tells about every public name in its API reference', () => {
    const doors = readFileSync('test/api.snapshot.txt', 'utf8')
      .split('\n\n')
      .flatMap((part) => /^holdfast(?:\/([\w/-]+))?:\n(.*)$/s.exec(part) ?? [])
    expect(doors.length).toBeGreaterThan(3 * 10)
    for (let index = 0; index < doors.length; index += 3) {
      const [, door = 'holdfast', list = ''] = doors.slice(index)
      const text = page(`docs/api/${door.replaceAll('/', '-')}.html`)
      const isTold = (name: string): boolean => new RegExp(`="[^"#]*#?${name.toLowerCase()}(?:-\\d+)?"`).test(text)
      expect([door, list.split('\n').filter((name) => !isTold(name.trim()))]).toEqual([door, []])
    }
  })

  test('finds every heading, and what is said under it', () => {
    const found = page('assets/search.js')
    const sections = JSON.parse(found.slice(found.indexOf('['))) as readonly {
      url: string
      heading: string
      body: string
    }[]
    const renewal = sections.find(({ url }) => url === 'docs/how-it-works.html#renewal')
    expect(renewal).toMatchObject({ heading: 'Renewal', body: expect.stringContaining('third of its ttl') })
    expect(sections.filter(({ url }) => url.startsWith('docs/api/once.html')).length).toBeGreaterThan(5)
  })

  test('fetches nothing from elsewhere', () => {
    const pages = readdirSync(site, { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.html'))
    const loaded = /<(?:script|link|img|iframe)\b[^>]*\s(?:src|href)="(?:https?:)?\/\//
    expect(pages.filter((path) => loaded.test(page(path)))).toEqual([])
  })
})

test('a link that leads nowhere is found: a page, an anchor, a picture', () => {
  const site = join(folder, 'wrong')
  mkdirSync(site)
  writeFileSync(join(site, 'a.html'), '<h2 id="here">x</h2><a href="b.html#there">x</a><a href="#here">x</a>')
  writeFileSync(
    join(site, 'b.html'),
    '<a class="x" href="a.html#gone">x</a><img alt="" src="c.svg"><a href="d.html">x</a>',
  )
  expect(deadLinks(site)).toEqual(['a.html: b.html#there', 'b.html: a.html#gone', 'b.html: c.svg', 'b.html: d.html'])
})

test('Markdown has the anchors and links that GitHub shows', () => {
  const text =
    '# A `b`, c!\n\n```\n# no heading\n[no](link.md)\n```\n\n## Twice\n\n[a](b.md "t") `[no](c.md)`\n\n## Twice\n'
  expect(anchorsOf(text)).toEqual(['a-b-c', 'twice', 'twice-1'])
  expect(linksOf(text)).toEqual(['b.md'])
  expect(render(text, (href) => `to/${href}`)).toMatchObject({
    title: 'A b, c!',
    html: expect.stringContaining('href="to/b.md"'),
  })
})

test('remarks for programs are not shown', () => {
  expect(render('# A\n\n<!-- begin: made -->\n\nb\n', (href) => href).html).not.toContain('begin')
})

test('what is said about members is read from declarations', () => {
  const [statement] = statements(
    '/** A. */\nexport interface A<T> {\n    /** One { of them. */\n    readonly one?: {\n        /** In. */\n        b: 1;\n    };\n    two: 2;\n    /** Three. */\n    three(a: { b: 1; }): void;\n}\n',
  )
  expect(statement?.doc).toBe('A.')
  expect(members(statement?.raw ?? '')).toEqual([
    { name: 'one', doc: 'One { of them.' },
    { name: 'three', doc: 'Three.' },
  ])
})
