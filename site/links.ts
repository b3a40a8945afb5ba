/** Every link and every picture of the built site leads to a file that is there, and to a place that is in it. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

/** What leads nowhere, as `page: link`. */
export function deadLinks(folder: string): readonly string[] {
  const files = new Set(readdirSync(folder, { recursive: true, encoding: 'utf8' }))
  const pages = [...files].filter((file) => file.endsWith('.html'))
  const texts = new Map(pages.map((page) => [page, readFileSync(join(folder, page), 'utf8')]))
  const ids = new Map([...texts].map(([page, text]) => [page, idsOf(text)]))
  return [...texts].flatMap(([page, text]) =>
    hrefsOf(text)
      .filter((href) => {
        const [path = '', anchor] = href.split('#')
        const target = path === '' ? page : join(dirname(page), path)
        return !files.has(target) || (anchor !== undefined && ids.get(target)?.has(anchor) === false)
      })
      .map((href) => `${page}: ${href}`),
  )
}

function hrefsOf(html: string): readonly string[] {
  const found = [...html.matchAll(/<(?:a|link|img|script)\b[^>]*?\s(?:href|src)="([^"]*)"/g)]
  return found.map(([, href = '']) => decodeURI(href.replaceAll('&amp;', '&'))).filter((href) => !/^[a-z]+:/.test(href))
}

function idsOf(html: string): ReadonlySet<string> {
  return new Set([...html.matchAll(/<[^>]*\sid="([^"]*)"/g)].map(([, id = '']) => id))
}
