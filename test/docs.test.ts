/** The code of the documentation compiles and, where it is a whole program, runs. */
import { execFile } from 'node:child_process'
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { builtModule } from './built.ts'
import { blockWith, type CodeBlock, codeBlocks, documentedPages, runProgramText } from './documented.ts'

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
    const blocks = documentedPages()
      .flatMap((page) => codeBlocks(page))
      .filter(isCode)
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

/** The lines in the tables of docs/recipes/README.md, each with an import of what it names. */
function recipeLines(): readonly CodeBlock[] {
  const page = 'docs/recipes/README.md'
  const text = readFileSync(page, 'utf8')
  const modules = [...text.matchAll(/((?:`\w+`(?: and )?)+)\s+from\s+((?:`holdfast\/[\w-]+`(?:\s+or\s+)?)+)/g)].flatMap(
    ([, names = '', from = '']) => {
      const [, module = ''] = /`([^`]+)`/.exec(from) ?? []
      return [...names.matchAll(/`(\w+)`/g)].map(([, name = '']) => [name, module] as const)
    },
  )
  return text.split('\n').flatMap((line, index) => {
    const [, code = ''] = /^\|.*\| `([^`]+)` \|$/.exec(line) ?? []
    if (code === '' || code.startsWith('holdfast ')) return []
    const used = modules.filter(([name]) => new RegExp(`\\b${name}\\(`).test(code))
    const imports = used.map(([name, module]) => `import { ${name} } from '${module}';`)
    return { page, line: index + 1, code: `${imports.join(' ')} ${code}` }
  })
}

test('the lines of the index of recipes compile', async () => {
  const lines = recipeLines()
  expect(lines.length).toBeGreaterThan(12)
  expect(lines.filter(({ code }) => code.startsWith('import ')).length).toBeGreaterThan(8)
  expect(await problems(lines)).toEqual([])
  const wrong = lines.map((line) => ({ ...line, code: line.code.replace('.take(', '.takes(') }))
  expect(await problems(wrong)).toHaveLength(1)
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
  {
    page: 'docs/application.md',
    part: "app.post('/payments'",
    before: `process.env.PORT = 0
process.env.CHARGE_MS = 50
const { log } = console
let charging
const lastCharge = new Promise((resolve) => (charging = resolve))
console.log = (text, ...rest) => {
  if (/charges 9/.test(text)) charging()
  else if (!/makes the report/.test(text)) log(text, ...rest)
}`,
    after: `
import { once } from 'node:events'
await once(server, 'listening')
const post = (path, body, headers) =>
  fetch(\`http://127.0.0.1:\${server.address().port}\${path}\`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', connection: 'close', ...headers },
    body: JSON.stringify(body),
  })
const key = { 'idempotency-key': 'k' }
const answers = await Promise.all([post('/payments', { cents: 1 }, key), post('/payments', { cents: 1 }, key)])
answers.push(await post('/payments', { cents: 2 }, key), await post('/payments', { cents: 3 }), await post('/import', {}))
const price = async () => (await fetch(\`http://127.0.0.1:\${server.address().port}/prices\`, { headers: { connection: 'close' } })).json()
console.log(JSON.stringify(await Promise.all([price(), price()])))
console.log(answers.map(({ status }) => status).join(' '))
console.log(answers.filter(({ headers }) => headers.has('idempotent-replayed')).length, answers[0].headers.has('ratelimit'))
process.env.CHARGE_MS = 1000
const inFlight = [post('/payments', { cents: 9 }, { 'idempotency-key': 'last' })]
await lastCharge
const requests = []
server.on('request', ({ url }) => requests.push(url))
inFlight.push(post('/payments', { cents: 9 }, { 'idempotency-key': 'last' }), post('/import', {}))
while (requests.length < 2) await new Promise((resolve) => setImmediate(resolve))
process.kill(process.pid, 'SIGTERM')
console.log((await Promise.all(inFlight)).map(({ status }) => status).join(' '))`,
    says: /^\d+ charges 1, \w+\n\d+ computes prices\n\[\{"seat":42\},\{"seat":42\}\]\n201 201 422 400 201\n1 true\n201 201 201$/,
  },
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
