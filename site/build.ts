/**
 * Builds the site of the documentation into a folder: the Markdown of the repository and the API reference as pages,
 * with reading orders, search and nothing to be fetched from elsewhere. It can be opened from a disk.
 *
 * Read pages.ts for what becomes a page, navigation.ts for the reading orders, markdown.ts for the text, api.ts for the
 * API reference, layout.ts for the frame, and links.ts for the check at the end.
 */
import { cpSync, existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { apiPages } from './api.ts'
import { layout } from './layout.ts'
import { deadLinks } from './links.ts'
import { type Rendered, render } from './markdown.ts'
import { readingOrders } from './navigation.ts'
import { addressOf, hrefOnSite, linkedFiles, type Page, writtenPages } from './pages.ts'

export interface Built {
  readonly pages: number
  /** Links that lead nowhere, as `page: link`. */
  readonly dead: readonly string[]
}

export function buildSite(folder: string): Built {
  const api = apiPages()
  const written = writtenPages()
  const linked = linkedFiles(written)
  const pages = [...written, ...api.pages, ...linked.pages]
  const { version } = JSON.parse(readFileSync('package.json', 'utf8')) as { readonly version: string }
  const frame = { groups: [...readingOrders(pages), api.group], version }

  rmSync(folder, { recursive: true, force: true })
  const found = pages.flatMap((page) => {
    const rendered = render(page.text, (href) => hrefOnSite(href, page.source))
    write(join(folder, addressOf(page.source)), layout(page.source, rendered, frame))
    return searchable(page, rendered, linked.pages.includes(page))
  })
  // One that is not there is told by the check of links.
  for (const picture of linked.pictures.filter((each) => existsSync(each))) copy(picture, join(folder, picture))
  for (const name of ['site.css', 'site.js', 'icon.svg'])
    copy(join('site', 'browser', name), join(folder, 'assets', name))
  copy(join('node_modules', 'minisearch', 'dist', 'umd', 'index.js'), join(folder, 'assets', 'minisearch.js'))
  write(
    join(folder, 'assets', 'search.js'),
    `window.holdfastSections = ${JSON.stringify(found.map((each, id) => ({ id, ...each })))}\n`,
  )
  return { pages: pages.length, dead: deadLinks(folder) }
}

interface Searchable {
  readonly page: string
  readonly heading: string
  readonly url: string
  readonly body: string
  /** How much it counts beside others with the same words. */
  readonly weight: number
}

/** A page for users comes before one that explains why it is so, and before a declaration. */
function weightOf(source: string): number {
  return /^docs\/(?:decisions|api)\/|^(?:CHANGELOG|CONTRIBUTING)/.test(source) ? 0.25 : 1
}

/** What search finds on a page. Of a source only its name: it would be found by every word. */
function searchable(page: Page, { title, sections }: Rendered, isSource: boolean): readonly Searchable[] {
  return sections.map(({ id, text, body }, index) => ({
    page: title,
    heading: index === 0 ? '' : text,
    url: addressOf(page.source) + (index === 0 ? '' : `#${id}`),
    body: isSource ? '' : body,
    weight: isSource ? 0.2 : weightOf(page.source),
  }))
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true })
  writeFileSync(file, text)
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true })
  cpSync(from, to)
}
