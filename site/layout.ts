/** The frame around the text of a page: header, reading orders on the left, headings of the page on the right. */
import type { Heading, Rendered } from './markdown.ts'
import { type Group, type Item, neighbours } from './navigation.ts'
import { addressOf, fromPage } from './pages.ts'

export interface Frame {
  readonly groups: readonly Group[]
  readonly version: string
}

/** Before anything is shown, so that a page that is read in the dark does not flash. */
const THEME = "try{var t=localStorage.getItem('theme');if(t)document.documentElement.dataset.theme=t}catch{}"

export function layout(source: string, page: Rendered, { groups, version }: Frame): string {
  const to = (address: string): string => fromPage(address, source)
  const { group, before, after } = neighbours(groups, source)
  const title = source === 'README.md' ? 'Holdfast: distributed locks for Node.js' : `${page.title} · Holdfast`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escaped(title)}</title>
<meta name="description" content="${escaped(summary(page))}">
<link rel="icon" href="${to('assets/icon.svg')}">
<link rel="stylesheet" href="${to('assets/site.css')}">
<script>${THEME}</script>
<script src="${to('assets/site.js')}" data-root="${to('index.html').replace(/index\.html$/, '')}" defer></script>
</head>
<body>
<a class="skip" href="#text">Skip to the text</a>
<header class="top">
<button class="menu" type="button" aria-label="Pages" aria-expanded="false" aria-controls="pages">☰</button>
<a class="brand" href="${to('index.html')}">Holdfast</a><span class="version">${escaped(version)}</span>
<button class="search" type="button" aria-label="Search"><span>Search</span><kbd>/</kbd></button>
<nav class="links"><a href="${to('docs/index.html')}">Docs</a><a href="${to('docs/api/index.html')}">API</a></nav>
<button class="theme" type="button" aria-label="Light or dark" title="Light or dark">◐</button>
</header>
<div class="frame">
<nav class="pages" id="pages" aria-label="Pages">
${groups.map((each) => groupHtml(each, source, each === (group ?? groups[0]), to)).join('\n')}
</nav>
<main id="text">
<article>
${page.html}</article>
<footer>${stepHtml('Before', before, to)}${stepHtml('Next', after, to)}</footer>
</main>
${outlineHtml(page.headings)}
</div>
<dialog class="find" aria-label="Search">
<form method="dialog"><input type="search" placeholder="Search the documentation" aria-label="Search" autocomplete="off"></form>
<ol></ol>
<p class="hint">Type to search. Arrows choose, Enter opens, Escape closes.</p>
</dialog>
</body>
</html>
`
}

function groupHtml({ title, items }: Group, source: string, isOpen: boolean, to: (address: string) => string): string {
  const list = items.map((item) => {
    const here = item.source === source ? ' aria-current="page"' : ''
    const detail = item.isDetail ? ' class="detail"' : ''
    return `<li${detail}><a href="${to(addressOf(item.source))}"${here}>${escaped(item.title)}</a></li>`
  })
  return `<details${isOpen ? ' open' : ''}><summary>${escaped(title)}</summary><ul>\n${list.join('\n')}\n</ul></details>`
}

function stepHtml(word: string, item: Item | undefined, to: (address: string) => string): string {
  if (item === undefined) return '<span></span>'
  return `<a href="${to(addressOf(item.source))}"><small>${word}</small>${escaped(item.title)}</a>`
}

function outlineHtml(headings: readonly Heading[]): string {
  const shown = headings.filter(({ level }) => level === 2 || level === 3)
  if (shown.length < 2) return '<nav class="outline"></nav>'
  const items = shown.map(({ level, id, text }) => `<li class="h${level}"><a href="#${id}">${escaped(text)}</a></li>`)
  return `<nav class="outline" aria-label="On this page"><p>On this page</p><ul>${items.join('')}</ul></nav>`
}

function summary({ sections }: Rendered): string {
  const said = sections[0]?.body ?? ''
  return said.length <= 160 ? said : `${said.slice(0, 157).replace(/\s\S*$/, '')}...`
}

export function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;')
}
