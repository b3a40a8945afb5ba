/**
 * The navigation is docs/README.md: each of its headings is a reading order, and the pages it links to, in order, are
 * what is read. A page that is listed there is in the navigation; there is no second list.
 *
 * A link to a heading inside a page is no page of its own, and is left out.
 */
import { linksOf } from './markdown.ts'
import { isElsewhere, type Page, sourceOf } from './pages.ts'

export interface Item {
  readonly source: string
  readonly title: string
  /** Whether it is one of several pages under a point of the list: a recipe, an engine. */
  readonly isDetail: boolean
}

export interface Group {
  readonly title: string
  readonly items: readonly Item[]
}

const INDEX = 'docs/README.md'

export function readingOrders(pages: readonly Page[]): readonly Group[] {
  const titles = new Map(pages.map(({ source, text }) => [source, titleOf(text)]))
  const index = pages.find(({ source }) => source === INDEX)?.text ?? ''
  const groups = index
    .split(/^## /m)
    .slice(1)
    .map((part) => {
      const [title = ''] = part.split('\n')
      return { title, items: itemsOf(part.slice(title.length), titles) }
    })
  return groups.filter(({ items }) => items.length > 0)
}

export function titleOf(text: string): string {
  return (/^# (.+)$/m.exec(text)?.[1] ?? '').replaceAll('`', '')
}

function itemsOf(part: string, titles: ReadonlyMap<string, string>): readonly Item[] {
  const items = new Map<string, Item>()
  for (const block of part.split(/\n\n|\n(?=\d+\. )/)) {
    // What is indented under a point of the list: the table of recipes, the line of engines.
    const isDetail = /^\n? {2,}/.test(block)
    for (const href of linksOf(block.replaceAll(/^ +/gm, ''))) {
      if (isElsewhere(href) || href.includes('#')) continue
      const source = sourceOf(href, INDEX)
      const title = titles.get(source)
      if (title !== undefined && !items.has(source)) items.set(source, { source, title, isDetail })
    }
  }
  return [...items.values()]
}

export interface Neighbours {
  readonly group: Group | undefined
  readonly before: Item | undefined
  readonly after: Item | undefined
}

/** The first reading order that has the page, and what comes before and after it there. */
export function neighbours(groups: readonly Group[], source: string): Neighbours {
  const group = groups.find(({ items }) => items.some((item) => item.source === source))
  const at = group?.items.findIndex((item) => item.source === source) ?? -1
  return { group, before: group?.items[at - 1], after: at === -1 ? undefined : group?.items[at + 1] }
}
