/**
 * The documentation keeps what it promises: its code compiles and, where it is a whole program, runs; its lists are
 * those of the code; every page can be found. That links lead somewhere is a rule of tidy.ts.
 */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openEngine } from '../src/connect.ts'
import type { Engine, Traits } from '../src/core/engine.ts'
import { builtModule } from './built.ts'
import { blockWith, type CodeBlock, codeBlocks, runProgramText } from './documented.ts'

const pages = [
  'README.md',
  ...readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.md') && !path.startsWith('decisions'))
    .map((path) => join('docs', path)),
].toSorted()

/** What is exported, under whatever name of a module. */
const exported = new Set(
  [...readFileSync('test/api.snapshot.txt', 'utf8').matchAll(/^ {4}(\w+)$/gm)].map(([, name]) => name),
)

/** A shape that is shown, or a program with parts left out, is no code that could be compiled. */
function isCode({ code }: CodeBlock): boolean {
  return !code.startsWith('{') && !code.includes('…')
}

/**
 * What the compiler says about blocks, as `page:line: message`. What a block takes for granted is unknown to it, and
 * may be; but not if it is a name of ours that no block of the page has imported before. Types of values are not asked
 * for: users of JavaScript have none.
 */
async function problems(blocks: readonly CodeBlock[]): Promise<readonly string[]> {
  builtModule('src/index.ts')
  mkdirSync(join('dist', 'docs'), { recursive: true })
  const folder = mkdtempSync(join('dist', 'docs', 'compiled-'))
  try {
    for (const [index, { code }] of blocks.entries()) writeFileSync(join(folder, `${index}.ts`), given(code) + code)
    const compilerOptions = {
      ...{ target: 'esnext', module: 'nodenext', lib: ['esnext', 'dom'], types: ['node'], noEmit: true },
      ...{ strict: false, skipLibCheck: true, experimentalDecorators: true },
    }
    writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['*.ts'] }))
    return (await compilerOutput(folder)).flatMap((line) => {
      const [, index = '', row = '', code = '', message = ''] = ERROR.exec(line) ?? []
      const block = blocks[Number(index)]
      if (index === '' || block === undefined) return []
      const [, unknown] = /^Cannot find name '(\w+)'|^No value exists in scope/.exec(message) ?? []
      if (NO_TYPES.has(code) && (!exported.has(unknown) || importedBefore(block, blocks, unknown))) return []
      return [`${block.page}:${block.line + Number(row) - 2}: ${message}`]
    })
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function importedBefore({ page, line }: CodeBlock, blocks: readonly CodeBlock[], name = ''): boolean {
  const importing = new RegExp(`^import \\{[^}]*\\b${name}\\b`, 'm')
  return blocks.some((other) => other.page === page && other.line < line && importing.test(other.code))
}

const ERROR = /(\d+)\.ts\((\d+),\d+\): error (TS\d+): (.*)$/
/** A name that is not known, a package without types, and what is done with a value whose type is not known. */
const NO_TYPES: ReadonlySet<string> = new Set([
  ...['TS2304', 'TS2552', 'TS18004', 'TS7016'],
  ...['TS18046', 'TS2571', 'TS2362', 'TS2363', 'TS2365'],
])

/** In one line before the code: what nearly all blocks take for granted. */
function given(code: string): string {
  const names = { locks: 'Locks', lease: 'Lease' }
  const missing = Object.entries(names).filter(([name]) => !new RegExp(`(?:const|import \\{.*) ${name}\\b`).test(code))
  return `export {};${missing.map(([name, type]) => ` declare const ${name}: import('holdfast').${type};`).join('')}\n`
}

async function compilerOutput(folder: string): Promise<readonly string[]> {
  const tsc = join('node_modules', '.bin', 'tsc')
  const project = ['-p', join(folder, 'tsconfig.json'), '--pretty', 'false']
  return new Promise((resolve) => {
    execFile(tsc, project, (_, out) => resolve(out.split('\n')))
  })
}

describe('code in the documentation', () => {
  test('compiles, with the calls, options and members that there are', async () => {
    const blocks = pages.flatMap((page) => codeBlocks(page)).filter(isCode)
    expect(blocks.length).toBeGreaterThan(50)
    expect(await problems(blocks)).toEqual([])
  })

  test('would be seen if it did not: a wrong option, member or module, a forgotten import', async () => {
    const wrong = [
      "locks.mutex('k', { tll: '5s' })",
      'lease.isHeld',
      "import { redis } from 'holdfast/rediss'",
      'await connect()',
      'lease.held\nlease.heldd',
    ]
    const found = await problems(wrong.map((code) => ({ page: 'page.md', line: 10, code })))
    expect(found.map((each) => each.replace(/^page.md:(\d+): .*/, '$1'))).toEqual(['10', '10', '10', '10', '11'])
  })
})

interface Program {
  readonly page: string
  /** Of all blocks of the page, the one with this in it. */
  readonly part: string
  /** Gives the names that it takes for granted. */
  readonly before?: string
  readonly after?: string
  readonly says?: RegExp
}

const LOCKS = "import { connect } from 'holdfast'\nconst locks = await connect()\n"
const CLOSE = 'await locks.close()'

const programs: readonly Program[] = [
  { page: 'docs/best-practices.md', part: 'fakeClock()' },
  { page: 'docs/best-practices.md', part: 'warnAfter', after: CLOSE },
  {
    page: 'docs/best-practices.md',
    part: 'render(order)',
    before: `${LOCKS}const order = { id: 42 }\nconst render = async () => 'invoice'\nconst [save, sendMail] = [render, render]`,
    after: CLOSE,
  },
  {
    page: 'docs/best-practices.md',
    part: 'locks.all(',
    before: `${LOCKS}const [from, to] = ['me', 'you']\nconst transfer = async (a, b, { tokens }) => console.log(tokens.size)`,
    after: CLOSE,
    says: /^2$/,
  },
  {
    page: 'docs/best-practices.md',
    part: "{ wait: '5s' }, work)",
    before: `${LOCKS}const work = async (lease) => console.log(lease.held)`,
    after: CLOSE,
    says: /^true$/,
  },
  {
    page: 'docs/elections.md',
    part: 'election.lead(',
    before: 'const schedule = async ({ term }) => setTimeout(() => locks.drain(), 50)',
    says: /^leading, term \d+$/,
  },
  { page: 'docs/elections.md', part: 'election.observe(', says: /^no leader\nno leader$/ },
  { page: 'docs/production.md', part: 'signals: {', after: CLOSE },
  {
    page: 'docs/production.md',
    part: 'locks.draining.throwIfAborted()',
    after: `
const ask = (path) => fetch(\`http://127.0.0.1:\${server.address().port}\${path}\`, { headers: { connection: 'close' } })
for (const path of ['/live', '/ready', '/']) console.log((await ask(path)).status)
const held = locks.mutex('work').using(async () => {
  process.kill(process.pid, 'SIGTERM')
  while (!locks.draining.aborted) await new Promise((resolve) => setImmediate(resolve))
  return 'ended in time'
})
console.log(await held)`,
    says: /^200\n200\n200\nended in time$/,
  },
  ...[
    ["mutex('orders:42'", /^worked\nworked$/],
    ['while (lease.held', /^worked$/],
    ["const result = await locks.mutex('report'", /^worked\nworked$/],
    ["mutex('data.json')", /^worked$/],
    ["locks.all([locks.mutex('a')", /^worked\nworked$/],
    ['work(lease.signal))', /^worked$/],
  ].map(([part, says]) => ({
    page: 'docs/migration.md',
    part: part as string,
    before: `${LOCKS}const work = async () => console.log('worked')
const [moreWork, rewrite, both, step] = [work, work, work, work]`,
    after: CLOSE,
    says: says as RegExp,
  })),
]

describe.each(programs)('$page, $part', ({ page, part, before = '', after = '', says = /^$/ }) => {
  test('runs', async () => {
    const name = `${basename(page, '.md')}-${programs.findIndex((each) => each.page === page && each.part === part)}`
    const { exit, said } = await runProgramText(name, `${before}\n${blockWith(page, part).code}\n${after}\n`)
    expect(said.trim()).toMatch(says)
    expect(exit).toBe(0)
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

describe('docs/choosing.md', () => {
  const text = readFileSync('docs/choosing.md', 'utf8')

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
      withEngine(({ traits }) => {
        const said = new RegExp(`^- ${name}: ((?:.|\\n  )*)`, 'm').exec(text)?.[1]
        expect(said?.replaceAll('\n  ', ' ')).toBe(traits.survives)
      }))

    test('has a row in the table of failures, and a page', () => {
      expect(text).toMatch(new RegExp(`^\\| \\[[^\\]]+\\]\\(engines/${name}\\.md\\) \\|(?:[^|]+\\|){6}$`, 'm'))
    })
  })
})

describe('lists in the documentation', () => {
  const index = readFileSync('docs/README.md', 'utf8')
  const { exports } = JSON.parse(readFileSync('package.json', 'utf8')) as { readonly exports: object }

  test('the engines are those that have a folder, a page, an export and a row in the README', () => {
    const folders = readdirSync(join('src', 'engines')).filter((name) => name !== 'shared')
    const named = readdirSync(join('docs', 'engines')).map((page) => basename(page, '.md'))
    const rows = [...readFileSync('README.md', 'utf8').matchAll(/^\| \[[^|]*\]\(docs\/engines\/([\w-]+)\.md\)/gm)]
    expect(named.toSorted()).toEqual(folders.toSorted())
    expect(rows.map(([, name = '']) => name).toSorted()).toEqual(folders.toSorted())
    expect(Object.keys(URLS).toSorted()).toEqual(folders.toSorted())
    expect(folders.filter((name) => !(`./${name}` in exports))).toEqual([])
  })

  test('every page can be found from docs/README.md', () => {
    const listed = pages.filter((page) => /^docs\/(?:engines\/)?[\w-]+\.md$/.test(page) && page !== 'docs/README.md')
    expect(listed.length).toBeGreaterThan(20)
    expect(listed.filter((page) => !index.includes(`](${page.slice('docs/'.length)}`))).toEqual([])
  })
})
