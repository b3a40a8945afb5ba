/**
 * Markdown as GitHub shows it, for the site and for the test of links: the anchors of headings are GitHub's, so that a
 * link that works there works here.
 */
import hljs from 'highlight.js/lib/common'
import MarkdownIt, { type Token } from 'markdown-it'

export interface Heading {
  readonly level: number
  readonly id: string
  readonly text: string
}

/** What search finds: a heading, and the text up to the next one. */
export interface Section extends Heading {
  readonly body: string
}

export interface Rendered {
  readonly title: string
  readonly html: string
  readonly headings: readonly Heading[]
  readonly sections: readonly Section[]
}

/** What a link in a page is to lead to on the site. */
export type Target = (href: string) => string

const parser = new MarkdownIt({ html: false, linkify: false, highlight: highlighted })
const renderer = parser.renderer
const { escapeHtml } = parser.utils

/** Blocks without a language are mostly what is typed into a shell and what it says: these stay as they are. */
export function highlighted(code: string, language: string): string {
  return hljs.getLanguage(language) ? hljs.highlight(code, { language }).value : escapeHtml(code)
}

renderer.rules.table_open = () => '<div class="table"><table>\n'
renderer.rules.table_close = () => '</table></div>\n'
renderer.rules.fence = (tokens, index, options) => {
  const { content, info } = tokens[index] as Token
  const code = options.highlight?.(content, info.trim(), '') ?? escapeHtml(content)
  return `<div class="code"><pre tabindex="0"><code>${code}</code></pre></div>\n`
}
/** What is indented is an example in a comment of a source. */
renderer.rules.code_block = (tokens, index, ...rest) => {
  ;(tokens[index] as Token).info = 'ts'
  return renderer.rules.fence?.(tokens, index, ...rest) ?? ''
}

/** A remark for programs that write a part of a page: no reader is to see it. */
const REMARK = /^<!--.*?-->$/gms

export function render(text: string, target: Target): Rendered {
  const tokens = parser.parse(text.replaceAll(REMARK, ''), {})
  const headings = withAnchors(tokens)
  retarget(tokens, target)
  return {
    title: headings[0]?.text ?? '',
    html: renderer.render(tokens, parser.options, {}),
    headings,
    sections: sections(tokens, headings),
  }
}

/** The anchors of a page, as GitHub makes them. */
export function anchorsOf(text: string): readonly string[] {
  return withAnchors(parser.parse(text, {})).map(({ id }) => id)
}

/** Where the links and pictures of a page lead. */
export function linksOf(text: string): readonly string[] {
  const links: string[] = []
  retarget(parser.parse(text, {}), (href) => {
    links.push(href)
    return href
  })
  return links
}

function withAnchors(tokens: readonly Token[]): readonly Heading[] {
  const used = new Map<string, number>()
  return tokens.flatMap((token, index) => {
    if (token.type !== 'heading_open') return []
    const text = plainText(tokens[index + 1] as Token)
    const slug = slugOf(text)
    const times = used.get(slug) ?? 0
    used.set(slug, times + 1)
    const id = times === 0 ? slug : `${slug}-${times}`
    token.attrSet('id', id)
    addAnchor(tokens[index + 1] as Token, id)
    return [{ level: Number(token.tag.slice(1)), id, text }]
  })
}

export function slugOf(heading: string): string {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-')
}

/** A sign behind the heading that leads to it, to be copied. */
function addAnchor(inline: Token, id: string): void {
  const sign = new parser.core.State('', parser, {}).Token
  const html = new sign('html_inline', '', 0)
  html.content = ` <a class="anchor" href="#${id}" aria-label="link to this heading">#</a>`
  inline.children?.push(html)
}

function retarget(tokens: readonly Token[], target: Target): void {
  for (const token of tokens) {
    if (token.children) retarget(token.children, target)
    const name = token.type === 'link_open' ? 'href' : token.type === 'image' ? 'src' : undefined
    const href = name === undefined ? null : token.attrGet(name)
    if (name !== undefined && href !== null) token.attrSet(name, target(decodeURI(String(href))))
  }
}

function plainText(token: Token): string {
  if (token.children === null) return token.type === 'html_inline' ? '' : token.content
  const said = token.children.map((child) => (/break$/.test(child.type) ? ' ' : plainText(child)))
  return said.join('')
}

function sections(tokens: readonly Token[], headings: readonly Heading[]): readonly Section[] {
  const bodies: string[] = []
  let isHeading = false
  for (const token of tokens) {
    if (token.type === 'heading_open') bodies.push('')
    isHeading = token.type === 'heading_open' || (isHeading && token.type !== 'heading_close')
    if (isHeading || bodies.length === 0) continue
    if (token.type === 'inline') bodies.push(`${bodies.pop()} ${plainText(token)}`)
    if (token.type === 'fence') bodies.push(`${bodies.pop()} ${token.content}`)
  }
  return headings.map((heading, index) => ({ ...heading, body: (bodies[index] ?? '').replaceAll(/\s+/g, ' ').trim() }))
}
