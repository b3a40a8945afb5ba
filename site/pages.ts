/**
 * Which pages there are, and under which address. The site has the paths of the repository: `docs/start.md` is
 * `docs/start.html`, a README is the `index.html` of its folder. What a page links to and is no Markdown becomes a
 * page, too: a source with its colours, a folder as a list.
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { linksOf } from './markdown.ts'

export interface Page {
  /** In the repository; for what is made from sources, where it would be. */
  readonly source: string
  readonly text: string
}

const AT_THE_TOP = ['README.md', 'ARCHITECTURE.md', 'CONTRIBUTING.md', 'SECURITY.md', 'CHANGELOG.md']

/** Everything that is written in Markdown for readers. */
export function writtenPages(): readonly Page[] {
  const docs = readdirSync('docs', { recursive: true, encoding: 'utf8' }).filter((path) => path.endsWith('.md'))
  const sources = [...AT_THE_TOP, ...docs.map((path) => join('docs', path)).toSorted()]
  return sources.map((source) => ({ source, text: readFileSync(source, 'utf8') }))
}

/** Where the page of a source is on the site. */
export function addressOf(source: string): string {
  if (/(?:^|\/)README\.md$/.test(source)) return source.replace(/README\.md$/, 'index.html')
  if (source.endsWith('.md')) return source.replace(/md$/, 'html')
  return `${source}.html`
}

export function isElsewhere(href: string): boolean {
  return /^[a-z]+:/.test(href)
}

const PICTURE = /\.(?:svg|png)$/

/** What a link of a page means in the repository. A folder is meant by its README. */
export function sourceOf(href: string, page: string): string {
  const [path = ''] = href.split('#')
  if (path === '') return page
  const source = join(dirname(page), path).replace(/\/$/, '')
  return existsSync(source) && statSync(source).isDirectory() ? join(source, 'README.md') : source
}

/** The address of what a page links to, seen from the page. */
export function hrefOnSite(href: string, page: string): string {
  if (isElsewhere(href) || href.startsWith('#')) return href
  const [, anchor] = href.split('#')
  const source = sourceOf(href, page)
  return fromPage(PICTURE.test(source) ? source : addressOf(source), page) + (anchor === undefined ? '' : `#${anchor}`)
}

/** An address of the site as a link from the page of a source: the site works below any path, and from a disk. */
export function fromPage(address: string, page: string): string {
  return relative(dirname(addressOf(page)), address) || '.'
}

/** What these pages link to and is no page yet: lists of folders, sources, and pictures to be copied. */
export function linkedFiles(pages: readonly Page[]): { readonly pages: readonly Page[]; readonly pictures: string[] } {
  const known = new Set(pages.map(({ source }) => source))
  const found = new Map<string, Page>()
  const pictures = new Set<string>()
  for (const { source: page, text } of pages)
    for (const href of linksOf(text).filter((each) => !isElsewhere(each))) {
      const source = sourceOf(href, page)
      if (known.has(source)) continue
      if (PICTURE.test(source)) pictures.add(source)
      else found.set(source, { source, text: source.endsWith('README.md') ? folderText(source) : sourceText(source) })
    }
  return { pages: [...found.values()], pictures: [...pictures] }
}

function folderText(readme: string): string {
  const folder = dirname(readme)
  const names = readdirSync(folder).toSorted()
  const items = names.map((name) => {
    const isPage = name.endsWith('.md')
    const [, title = name] = isPage ? (/^# (.+)$/m.exec(readFileSync(join(folder, name), 'utf8')) ?? []) : []
    return isPage ? `- [${title}](${name})` : `- \`${name}\``
  })
  return `# ${titleOfFolder(folder)}\n\n${items.join('\n')}\n`
}

/** `docs/decisions` is called Decisions; a folder of sources has its path. */
function titleOfFolder(folder: string): string {
  return folder.startsWith('docs') ? basename(folder).replace(/^./, (first) => first.toUpperCase()) : folder
}

function sourceText(source: string): string {
  const language = /\.(?:ts|mjs)$/.test(source) ? 'ts' : source.endsWith('.json') ? 'json' : 'yaml'
  return `# ${source}\n\n\`\`\`\`${language}\n${readFileSync(source, 'utf8').trimEnd()}\n\`\`\`\`\n`
}
