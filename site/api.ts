/**
 * The API reference: one page for each door of the package (`holdfast`, `holdfast/once`, ...), made from the comments
 * that editors show and from the declarations that tsc emits. A name that several doors have is told about at the
 * first.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { commentText, Declarations, type Elsewhere, idOf, members } from './declarations.ts'
import { slugOf } from './markdown.ts'
import type { Group, Item } from './navigation.ts'
import type { Page } from './pages.ts'

export const FOLDER: string = join('docs', 'api')

interface Door {
  /** What is imported: `holdfast/once`. */
  readonly module: string
  readonly page: string
  readonly names: ReadonlyMap<string, Elsewhere>
  /** What its source says about it, in one line and in full. */
  readonly short: string
  readonly letter: string
}

/** Where a declaration is told about. */
interface Home {
  readonly page: string
  readonly name: string
}

export function apiPages(): { readonly pages: readonly Page[]; readonly group: Group } {
  const declarations = new Declarations()
  const doors = readDoors(declarations)
  const homes = homesOf(doors, declarations)
  const pages = doors.map((door) => ({
    source: join(FOLDER, door.page),
    text: doorText(door, homes, declarations),
  }))
  const index = { source: join(FOLDER, 'README.md'), text: indexText(doors) }
  const items: readonly Item[] = doors.map(({ page, module }) => ({
    source: join(FOLDER, page),
    title: module,
    isDetail: module !== 'holdfast',
  }))
  const overview = { source: index.source, title: 'All modules', isDetail: false }
  return { pages: [index, ...pages], group: { title: 'API reference', items: [overview, ...items] } }
}

function readDoors(declarations: Declarations): readonly Door[] {
  const { name, exports } = JSON.parse(readFileSync('package.json', 'utf8')) as {
    readonly name: string
    readonly exports: Readonly<Record<string, { readonly types?: string }>>
  }
  return Object.entries(exports).flatMap(([door, { types }]) => {
    if (types === undefined) return []
    const letter = letterOf(types)
    const [first = ''] = letter.split('\n\n')
    return {
      module: door.replace(/^\./, name),
      page: `${door === '.' ? name : door.slice(2).replaceAll('/', '-')}.md`,
      names: declarations.names(join(types)),
      short: first.replaceAll('\n', ' '),
      letter,
    }
  })
}

/** The letter to the reader of a source, but for what it says about reading the source. */
function letterOf(types: string): string {
  const source = types.replace(/^\.\/dist\//, '').replace(/\.d\.ts$/, '.ts')
  const [comment = ''] = /^\/\*\*.*?\*\//s.exec(readFileSync(source, 'utf8')) ?? []
  const paragraphs = commentText(comment).split('\n\n')
  return paragraphs.filter((each) => !/^Read\b|\.ts\b/.test(each)).join('\n\n')
}

function homesOf(doors: readonly Door[], declarations: Declarations): ReadonlyMap<string, Home> {
  const homes = new Map<string, Home>()
  for (const { page, names } of doors)
    for (const [name, home] of names) if (!homes.has(idOf(home))) homes.set(idOf(home), { page, name })
  // What is named by a signature and not exported is told about where it is met first.
  for (const { page, names } of doors) {
    const open = [...names.values()]
    for (let next = open.pop(); next !== undefined; next = open.pop())
      for (const other of declarations.mentioned(next))
        if (!homes.has(idOf(other))) {
          homes.set(idOf(other), { page, name: other.name })
          open.push(other)
        }
  }
  return homes
}

function indexText(doors: readonly Door[]): string {
  const rows = doors.map(({ module, page, short, names }) => {
    return `| [\`${module}\`](${page}) | ${names.size} | ${short.replaceAll('|', '\\|')} |`
  })
  return `# API reference

Every name that the package exports, from the comments that your editor shows. The pages of the
documentation say how to use them; this is where to look one up.

| module | names | what it is for |
|---|---|---|
${rows.join('\n')}
`
}

const KINDS: readonly (readonly [string, RegExp])[] = [
  ['Functions', /^(?:function|const) /],
  ['Classes', /^(?:abstract )?class /],
  ['Types', /^(?:interface|type|enum) /],
]

function doorText(door: Door, homes: ReadonlyMap<string, Home>, declarations: Declarations): string {
  const own = [...door.names].filter(([, home]) => homes.get(idOf(home))?.page === door.page)
  const borrowed = [...door.names].filter(([, home]) => homes.get(idOf(home))?.page !== door.page)
  const exported = new Set([...door.names.values()].map(idOf))
  const behind = [...homes].filter(([id, home]) => home.page === door.page && !exported.has(id))
  const part = (title: string, entries: readonly (readonly [string, Elsewhere])[]): string =>
    entries.length === 0
      ? ''
      : `## ${title}\n\n${sorted(entries)
          .map(([name, home]) => entryText(name, home, door, homes, declarations))
          .join('\n')}`
  const isOfKind = (pattern: RegExp, home: Elsewhere): boolean =>
    pattern.test(declarations.declared(home)[0]?.text ?? '')
  return [
    `# ${door.module}\n\n${door.letter}\n`,
    ...KINDS.map(([title, pattern]) =>
      part(
        title,
        own.filter(([, home]) => isOfKind(pattern, home)),
      ),
    ),
    borrowed.length === 0 ? '' : `## Also exported here\n\n${borrowedText(borrowed, homes)}\n`,
    part(
      'Named by these, and not exported',
      behind.map(([id, { name }]) => {
        const [file = ''] = id.split(' ')
        return [name, { file, name }]
      }),
    ),
  ].join('\n')
}

function sorted<Entry extends readonly [string, unknown]>(entries: readonly Entry[]): readonly Entry[] {
  return entries.toSorted(([a], [b]) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1))
}

function borrowedText(borrowed: readonly (readonly [string, Elsewhere])[], homes: ReadonlyMap<string, Home>): string {
  return sorted(borrowed)
    .map(([name, home]) => `[\`${name}\`](${linkTo(homes.get(idOf(home)))})`)
    .join(' · ')
}

function linkTo(home: Home | undefined): string {
  return home === undefined ? '' : `${home.page}#${slugOf(home.name)}`
}

function entryText(
  name: string,
  home: Elsewhere,
  door: Door,
  homes: ReadonlyMap<string, Home>,
  declarations: Declarations,
): string {
  const statements = declarations.declared(home)
  const said = statements.flatMap(({ doc }) => doc ?? [])
  const signature = statements.map(({ text }) => text).join('\n')
  const list = statements.flatMap(({ raw }) => members(raw)).map((member) => memberText(member.name, member.doc))
  const uses = declarations.mentioned(home).flatMap((other) => {
    const at = homes.get(idOf(other))
    return at === undefined ? [] : [`[\`${at.name}\`](${at.page === door.page ? '' : at.page}#${slugOf(at.name)})`]
  })
  return [
    `### ${name}\n`,
    ...said.map((text) => `${text}\n`),
    `\`\`\`ts\n${signature}\n\`\`\`\n`,
    ...(list.length === 0 ? [] : [`${list.join('\n')}\n`]),
    ...(uses.length === 0 ? [] : [`See also: ${uses.join(' · ')}\n`]),
  ].join('\n')
}

function memberText(name: string, doc: string): string {
  return `- \`${name}\`: ${doc.replaceAll('\n', '\n  ')}`
}
