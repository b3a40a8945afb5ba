/**
 * What the documentation lists is what the code has: commands and their options, findings, engines and their traits;
 * and every page can be found. That links lead somewhere is a rule of tidy.ts.
 */
import { execFileSync } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { COMMON, type CommandSpec } from '../src/cli/args.ts'
import { COMMANDS } from '../src/cli/commands.ts'
import { openEngine } from '../src/connect.ts'
import type { Engine, Traits } from '../src/core/engine.ts'
import { FINDING_NAMES } from '../src/core/finding-names.ts'
import { migrationFor as mysqlMigration } from '../src/engines/mysql/migration.ts'
import { migrationFor as postgresMigration } from '../src/engines/postgres/migration.ts'
import { documentedPages } from './documented.ts'
import { ENGINE_NAMES } from './engine-names.ts'

const pages = documentedPages()

/** What is said of the command `holdfast`: its lines in blocks, and what is quoted in a sentence. */
function commandLines(text: string): readonly string[] {
  const quoted = [...text.replaceAll(/^ *```.*?^ *```/gms, '').matchAll(/`holdfast ([^`]+)`/g)]
  const inBlocks = [...text.matchAll(/^ *```\n(.*?)^ *```/gms)].flatMap(([, block = '']) => [
    ...block.matchAll(/^ *(?:[*] )*(?:\$ |npx |npm ci && npx )?holdfast (.*)$/gm),
  ])
  return [...quoted, ...inBlocks].map(([, line = '']) => line.replaceAll(/\s+/g, ' ').replace(/ [#>|&].*$/, ''))
}

/** Options of a line that the command does not have; or the command itself. */
function unknownWords(line: string, specs: ReadonlyMap<string, CommandSpec>): readonly string[] {
  const [name = '', ...words] = (line.split(' -- ')[0] ?? '').split(' ')
  if (!/^[a-z]+$/.test(name)) return []
  const spec = specs.get(name)
  if (spec === undefined) return [name]
  const known = Object.entries({ ...COMMON, ...spec.options })
  const options = new Set(known.flatMap(([long, { short }]) => [`--${long}`, ...(short ? [`-${short}`] : [])]))
  return words.filter((word) => /^-{1,2}[a-z]/.test(word) && !options.has(word)).map((word) => `${name} ${word}`)
}

test('docs/cli.md lists what findings of doctor are called', () => {
  const [, section = ''] = /^## doctor$(.*?)^## /ms.exec(readFileSync('docs/cli.md', 'utf8')) ?? []
  expect([...section.matchAll(/^\| `([^`]+)` \|/gm)].map(([, name]) => name)).toEqual(FINDING_NAMES)
})

describe('the command in the documentation', () => {
  async function specs(): Promise<ReadonlyMap<string, CommandSpec>> {
    const loaded = Object.entries(COMMANDS).map(async ([name, { load }]) => [name, (await load()).command] as const)
    return new Map(await Promise.all(loaded))
  }

  test('has the commands and options that it is said to have', async () => {
    const known = await specs()
    const lines = pages.flatMap((page) => commandLines(readFileSync(page, 'utf8')).map((line) => [page, line] as const))
    expect(lines.length).toBeGreaterThan(60)
    expect(lines.flatMap(([page, line]) => unknownWords(line, known).map((word) => `${page}: ${word}`))).toEqual([])
  })

  test('would be seen to lack one', async () => {
    const text = 'Say `holdfast run k --waits 5s -- a --b`.\n```\n$ holdfast lst\nholdfast ls -l --urls x  # all\n```\n'
    const known = await specs()
    const found = commandLines(text).flatMap((line) => unknownWords(line, known))
    expect(found).toEqual(['run --waits', 'lst', 'ls --urls'])
  })

  test('has each of its commands in both tables of docs/cli.md: what it does, and what --json says', () => {
    const names = Object.keys(COMMANDS).toSorted()
    // So the start knows a command among other arguments, and so do the tests above among other words.
    expect(names.filter((name) => !/^[a-z]+$/.test(name))).toEqual([])
    const page = readFileSync(join('docs', 'cli.md'), 'utf8')
    const tables = [...page.matchAll(/^\| command \|.*\n(?:\|.*\n)+/gm)].map(([table]) => table)
    expect(tables).toHaveLength(2)
    const cells = [...tables.join('').matchAll(/^\| (`.*?) \|/gm)]
    const quoted = cells.flatMap(([, cell = '']) => [...cell.matchAll(/`(holdfast )?([a-z]+)\b[^`]*`/g)])
    const inTable = (prefix: string | undefined): readonly string[] =>
      [...new Set(quoted.filter(([, found]) => found === prefix).map(([, , name = '']) => name))].toSorted()
    expect(inTable('holdfast ')).toEqual(names)
    expect(inTable(undefined)).toEqual(names)
  })
})

/** A URL of each engine. Nothing is connected to before a lock is asked for. */
const URLS: Readonly<Record<string, string>> = {
  memory: 'memory:',
  sqlite: 'sqlite:not-made.db',
  redis: 'redis://127.0.0.1:1',
  redlock: 'redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3',
  postgres: 'postgres://127.0.0.1:1/app',
  'postgres-advisory': 'postgres-advisory://127.0.0.1:1/app',
  mysql: 'mysql://app@127.0.0.1:1/app',
  etcd: 'etcd://127.0.0.1:1',
  zookeeper: 'zookeeper://127.0.0.1:1',
  mongodb: 'mongodb://127.0.0.1:1/app',
}

const KINDS = { full: 'all', 'read-write': 'all but semaphores', none: 'mutexes' }

/** The cells of the table of facts in docs/choosing.md, but for the name and the last one. */
function facts({ order, sharing, minTtlMs, lineBound, lossBeforeNext }: Traits): readonly string[] {
  return [
    order === 'fifo' ? 'first come, first served' : 'none promised',
    KINDS[sharing],
    minTtlMs < 1000 ? `${minTtlMs} ms` : `${minTtlMs / 1000} s`,
    lineBound.toLocaleString('en'),
    lossBeforeNext ? 'yes' : '**no**',
  ]
}

/** What the item of a list says that begins with the name of an engine. */
function saidOf(name: string, page: string): string | undefined {
  return new RegExp(`^- ${name}: ((?:.|\\n  )*)`, 'm').exec(page)?.[1]?.replaceAll('\n  ', ' ')
}

describe('docs/choosing.md', () => {
  const text = readFileSync('docs/choosing.md', 'utf8')
  const fencing = readFileSync('docs/fencing.md', 'utf8')

  describe.each(Object.entries(URLS))('%s', (name, url) => {
    async function withEngine(check: (engine: Engine) => void): Promise<void> {
      const engine = await openEngine(url)
      try {
        check(engine)
      } finally {
        await engine[Symbol.asyncDispose]()
      }
    }

    test('has the facts of its traits', () =>
      withEngine(({ traits, store }) => {
        const row = new RegExp(`^\\| ${name} \\| (.*) \\|$`, 'm').exec(text)?.[1]?.split(' | ') ?? []
        expect(row.slice(0, -1)).toEqual(facts(traits))
        // A store that is not told of yet is no lie.
        const told = row.at(-1)
        if (told !== 'with the store of another engine')
          expect(told).toBe(store?.traits.holding === true ? 'yes' : 'yes, protected by versions only')
        if (store === undefined) expect(told).toBe('with the store of another engine')
      }))

    test('says what it survives in its own words', () =>
      withEngine(({ traits }) => expect(saidOf(name, text)).toBe(traits.survives)))

    test('says what its tokens survive in its own words, in docs/fencing.md', () =>
      withEngine(({ traits }) => expect(saidOf(name, fencing)).toBe(traits.tokensSurvive)))

    test('has a row in the table of failures, and a page', () => {
      expect(text).toMatch(new RegExp(`^\\| \\[[^\\]]+\\]\\(engines/${name}\\.md\\) \\|(?:[^|]+\\|){6}$`, 'm'))
    })
  })
})

describe.each([
  ['postgres', postgresMigration],
  ['mysql', mysqlMigration],
])('rights on the tables of %s', (name, migrationFor) => {
  const text = migrationFor(`${name}://`)
  const tables = [...text.matchAll(/CREATE TABLE IF NOT EXISTS \S*?(holdfast_\w+)/g)].map(([, table = '']) => table)
  const ofTables = (said: string): readonly string[] => [...new Set(said.match(/\bholdfast_\w+/g))].toSorted()

  test('are granted by what is printed, on every table that is made', () => {
    const grants = text.split('\n').filter((line) => /^--\s+GRANT SELECT/.test(line))
    expect(ofTables(grants.join('\n'))).toEqual(tables.toSorted())
  })

  test('are named on its page, for every table: who grants them by hand forgets none', () => {
    const page = readFileSync(join('docs', 'engines', `${name}.md`), 'utf8')
    const rights = page.split('\n- ').find((item) => item.includes('SELECT, INSERT, UPDATE, DELETE')) ?? ''
    expect(ofTables(rights)).toEqual(tables.toSorted())
  })
})

describe('docs/writing-an-engine.md', () => {
  const page = readFileSync('docs/writing-an-engine.md', 'utf8')
  /** The members of an interface, by its text. */
  const membersOf = (path: string, name: string): readonly string[] => {
    const body =
      new RegExp(`^export interface ${name} \\{\\n(.*?)^\\}`, 'ms').exec(readFileSync(path, 'utf8'))?.[1] ?? ''
    return [...body.matchAll(/^ {2}readonly (\w+)/gm)].map(([, member = '']) => member)
  }

  test.each([
    ['an engine', 'src/core/engine.ts', 'Traits'],
    ['a store', 'src/core/store.ts', 'StoreTraits'],
  ])('names every trait of %s', (_, path, name) => {
    const members = membersOf(path, name)
    expect(members.length).toBeGreaterThan(5)
    expect(members.filter((member) => !page.includes(`\`${member}\``))).toEqual([])
  })

  test('has every answer to an enter or a renewal, and no other', () => {
    const standing = /^export type Standing =\n(.*?)^$/ms.exec(readFileSync('src/core/claim.ts', 'utf8'))?.[1] ?? ''
    const answers = [...standing.matchAll(/state: '(\w+)'/g)].map(([, state = '']) => state)
    const rows = /^\| answer \|.*\n\|.*\n((?:\|.*\n)+)/m.exec(page)?.[1] ?? ''
    expect([...rows.matchAll(/^\| `(\w+)` \|/gm)].map(([, state = '']) => state)).toEqual(answers)
    expect(answers.length).toBeGreaterThan(3)
  })
})

describe('CONTRIBUTING.md', () => {
  const searches = [...readFileSync('CONTRIBUTING.md', 'utf8').matchAll(/`(grep [^`]+)`/g)].map(([, line = '']) => line)

  test.each(searches)('answers with files to touch where it says: %s', (line) => {
    expect(execFileSync('sh', ['-c', line], { encoding: 'utf8' }).split('\n').length).toBeGreaterThan(5)
  })
})

describe('lists in the documentation', () => {
  const index = readFileSync('docs/README.md', 'utf8')
  const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as { readonly exports: object }

  test('the engines are those that have a folder, a page, an export and a row in the README', () => {
    const named = readdirSync(join('docs', 'engines')).map((page) => basename(page, '.md'))
    const rows = [...readFileSync('README.md', 'utf8').matchAll(/^\| \[[^|]*\]\(docs\/engines\/([\w-]+)\.md\)/gm)]
    expect(named.toSorted()).toEqual(ENGINE_NAMES.toSorted())
    expect(rows.map(([, name = '']) => name).toSorted()).toEqual(ENGINE_NAMES.toSorted())
    expect(Object.keys(URLS).toSorted()).toEqual(ENGINE_NAMES.toSorted())
    expect(ENGINE_NAMES.filter((name) => !(`./${name}` in exports))).toEqual([])
  })

  test('every page can be found from docs/README.md', () => {
    const listed = pages.filter(
      (page) => /^docs\/(?:engines\/|recipes\/)?[\w-]+\.md$/.test(page) && page !== 'docs/README.md',
    )
    expect(listed.length).toBeGreaterThan(20)
    expect(listed.filter((page) => !index.includes(`](${page.slice('docs/'.length)}`))).toEqual([])
  })

  test('every recipe is in the index of recipes', () => {
    const recipes = readdirSync(join('docs', 'recipes')).filter((name) => name !== 'README.md')
    const listed = readFileSync(join('docs', 'recipes', 'README.md'), 'utf8')
    expect(recipes.length).toBeGreaterThan(4)
    expect(recipes.filter((name) => !listed.includes(`](${name}`))).toEqual([])
  })
})
