/**
 * `npm run matrix`: the conformance suite on other runtimes, other servers and other versions of clients than those
 * that `npm test` has; and, on other servers, the tests of clients, guards and transactions.
 *
 *     npm run matrix                          all of it: an hour or two
 *     npm run matrix runtime                  on each runtime (also: server, client)
 *     npm run matrix server mysql valkey      on servers with one of these words in their name
 *     npm run matrix -- --jobs 2              two cells at a time
 *     npm run matrix -- --list                what there is
 *     npm run matrix -- --failed              only what failed the last time, or was never run
 *
 * Runtimes, servers and clients are fetched into the cache of the tests. What comes out is kept in
 * test/matrix/results.json, with the date and with what runtimes and servers say of themselves, and written into
 * docs/platforms.md and README.md. Cells that were not run keep what they had. A failure is shown there, too; the
 * command then ends with 1.
 */
import { spawn } from 'node:child_process'
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { createInterface } from 'node:readline'
import { parseArgs } from 'node:util'
import { CLIENT_PACKAGES, hasFailed, RUNTIME_ENGINES, SERVER_TESTS, writePages } from './platforms.mjs'
import { addUp } from './reports.mjs'

const RESULTS = 'test/matrix/results.json'
const KINDS = ['runtime', 'server', 'client']
/** A cell that takes longer hangs. */
const LIMIT_MS = 30 * 60_000
const MOST_OF_A_REASON = 200
/** So late a line can be read on a busy machine. */
const SAME_CLOCK_MS = 5_000

const { values: options, positionals: words } = parseArgs({
  allowPositionals: true,
  options: {
    jobs: { type: 'string', default: '1' },
    list: { type: 'boolean', default: false },
    failed: { type: 'boolean', default: false },
  },
})
const { findRuntime, RUNTIMES } = await built('runtimes')
const { OTHER_SERVERS } = await built('other-servers')
const { installFromNpm, keptFolder, newestVersion, oldestVersion } = await built('kept')

const before = JSON.parse(readFileSync(RESULTS, 'utf8'))
const cells = allCells().filter(({ kind, id }) => {
  if (options.failed && before[id] !== undefined && !hasFailed(before[id])) return false
  const kinds = words.filter((word) => KINDS.includes(word))
  const names = words.filter((word) => !KINDS.includes(word))
  return (kinds.length === 0 || kinds.includes(kind)) && (names.length === 0 || names.some((word) => id.includes(word)))
})
if (cells.length === 0) throw new Error(`nothing is called ${words.join(' ')}; see npm run matrix -- --list`)
if (options.list) for (const { id } of cells) console.log(id)
else await runAll()

async function built(name) {
  try {
    return await import(`../dist/test/servers/${name}.js`)
  } catch (cause) {
    throw new Error('run `npm run build` first', { cause })
  }
}

function allCells() {
  const runtimes = Object.keys(RUNTIMES).flatMap((runtime) =>
    RUNTIME_ENGINES.map((engine) => ({
      kind: 'runtime',
      id: `runtime ${runtime} ${engine}`,
      run: () => onRuntime(runtime, engine),
    })),
  )
  const servers = Object.entries(OTHER_SERVERS).map(([server, { place }]) => ({
    kind: 'server',
    id: `server ${server}`,
    run: () => onServer(server, SERVER_TESTS[place]),
  }))
  const clients = CLIENT_PACKAGES.flatMap((name) =>
    ['oldest', 'newest'].map((which) => ({
      kind: 'client',
      id: `client ${name} ${which}`,
      run: () => withClient(name, which),
    })),
  )
  return [...runtimes, ...servers, ...clients]
}

/** As many at a time as was asked for. What is known is written after each, so that a run can be broken off. */
async function runAll() {
  const queue = [...cells]
  const failed = []
  const work = async () => {
    for (let cell = queue.shift(); cell !== undefined; cell = queue.shift()) {
      const { id } = cell
      const result = await cell.run().catch((error) => ({
        passed: 0,
        failed: [{ name: 'all of it', why: reasonIn(error.message) }],
      }))
      console.log(`${id}: ${describe(result)}`)
      if (hasFailed(result)) failed.push(id)
      keep(id, { on: new Date().toISOString().slice(0, 10), ...result })
    }
  }
  await Promise.all(Array.from({ length: Number(options.jobs) }, work))
  if (failed.length === 0) return
  console.log(`\nfailed: ${failed.join('; ')}`)
  process.exitCode = 1
}

function describe({ passed, failed, unsteady = [], notApplicable = 0, seconds = 0, runtime, server, client, tests }) {
  const counts = [
    `${passed} passed`,
    `${failed.length} failed`,
    `${unsteady.length} unsteady`,
    `${notApplicable} not applicable`,
  ]
  const about = [runtime, server, client].filter((one) => one !== undefined).join(', ')
  const wrong = [...failed, ...unsteady].map(({ name, why }) => `\n    ${name}: ${why}`)
  const files = tests === undefined ? '' : `\n  test files: ${describe(tests)}`
  return `${counts.join(', ')}; ${about}; ${seconds.toFixed(0)} s${wrong.join('')}${files}`
}

function keep(id, result) {
  const results = { ...JSON.parse(readFileSync(RESULTS, 'utf8')), [id]: result }
  const sorted = Object.fromEntries(Object.entries(results).toSorted(([a], [b]) => (a < b ? -1 : 1)))
  writeFileSync(RESULTS, `${JSON.stringify(sorted, undefined, 2)}\n`)
  writePages(sorted)
}

async function onRuntime(name, engine) {
  const found = await findRuntime(name)
  if ('reason' in found) throw new Error(found.reason)
  return await play([found.path, ...found.args], ['engine', engine])
}

/** The conformance, and the test files that concern the server. */
async function onServer(server, { engine, files }) {
  const env = { ...process.env, HOLDFAST_TEST_SERVERS: server }
  const conforms = await play([process.execPath], ['engine', engine], { env })
  return { ...conforms, tests: await testFiles(files, env) }
}

async function testFiles(files, env) {
  if (files.length === 0) return undefined
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-matrix-'))
  try {
    const tally = join(folder, 'report.json')
    const args = ['run', '--project', 'engines', ...files, '--maxWorkers', '1', '--retry', '1']
    await ended(
      spawn('node_modules/.bin/vitest', [...args, '--reporter', './scripts/tally.mjs'], {
        env: { ...env, HOLDFAST_TALLY: tally },
        stdio: ['ignore', 'ignore', 'inherit'],
      }),
    )
    const { passed, failed, skipped } = addUp(JSON.parse(readFileSync(tally, 'utf8')))
    return { passed, failed: failed.map(asFailure), skipped: skipped.length }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

/** `file: name` and what went wrong, indented below. */
function asFailure(text) {
  const [name, ...why] = text.split('\n').map((line) => line.trim())
  return { name, why: reasonIn(why[0] ?? '') }
}

/** In a copy of this project in which that one package is another version, for all processes of it. */
async function withClient(name, which) {
  const version = which === 'oldest' ? await oldestVersion(name, leastOf(name)) : await newestVersion(name, '')
  const place = await keptFolder(`client-${name.replace('/', '+')}@${version}`, async (folder) =>
    installFromNpm(folder, [`${name}@${version}`]),
  )
  const installed = join(place, 'node_modules', name)
  const project = mkdtempSync(join(tmpdir(), 'holdfast-matrix-'))
  try {
    copyProject(project, name, installed)
    const client = `${name} ${JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8')).version}`
    return { ...(await play([process.execPath], ['client', name], { cwd: project })), client }
  } finally {
    rmSync(project, { recursive: true, force: true })
  }
}

/** How the least version begins that package.json allows: `5.3.` for `>=5.3`. */
function leastOf(name) {
  const range = JSON.parse(readFileSync('package.json', 'utf8')).peerDependencies[name]
  const [, least] = /^(?:>=|\^)([\d.]+)$/.exec(range) ?? []
  if (least === undefined) throw new Error(`what is the oldest ${name} of ${range}?`)
  return `${least}.`
}

/** What was compiled is copied, since packages are looked for beside the real path of a file. */
function copyProject(project, name, installed) {
  cpSync('dist', join(project, 'dist'), { recursive: true, preserveTimestamps: true })
  for (const linked of ['src', 'conformance', 'test', 'package.json'])
    symlinkSync(resolve(linked), join(project, linked))
  const packages = readdirSync('node_modules').flatMap((entry) =>
    entry.startsWith('@') ? readdirSync(join('node_modules', entry)).map((each) => join(entry, each)) : [entry],
  )
  for (const each of packages) {
    const link = join(project, 'node_modules', each)
    mkdirSync(dirname(link), { recursive: true })
    symlinkSync(each === name ? installed : resolve('node_modules', each), link)
  }
}

/** Run play.js, and add up what it prints. A runtime that ends before it has played all is a failure, too. */
async function play(command, args, { cwd = process.cwd(), env = process.env } = {}) {
  const startedAt = performance.now()
  const sum = { passed: 0, failed: [], unsteady: [], notApplicable: 0 }
  const about = {}
  const [program, ...before] = command
  const child = spawn(program, [...before, join('dist', 'test', 'matrix', 'play.js'), ...args], {
    cwd,
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let complaints = ''
  child.stderr.setEncoding('utf8').on('data', (text) => {
    complaints += text
  })
  let said = 0
  createInterface({ input: child.stdout }).on('line', (text) => {
    const line = asLine(text)
    if (line === undefined) return
    said += 1
    if (line.type === 'case') return count(sum, line)
    Object.assign(about, { runtime: line.runtime, server: line.server })
    const apartMs = Number(process.hrtime.bigint() - BigInt(line.clockNs)) / 1e6
    if (Math.abs(apartMs) > SAME_CLOCK_MS)
      sum.failed.push({ name: "its clock is the host's", why: `it is ${apartMs.toFixed(0)} ms off that of Node` })
  })
  const code = await ended(child)
  if (code !== 0)
    sum.failed.push({ name: 'all of it', why: reasonIn(`ended with ${code} after ${said} lines: ${complaints}`) })
  return { ...about, ...sum, seconds: (performance.now() - startedAt) / 1000 }
}

function count(sum, { name, outcome, why = '' }) {
  if (outcome === 'passed') sum.passed += 1
  else if (outcome === 'not applicable') sum.notApplicable += 1
  else sum[outcome].push({ name, why: reasonIn(why) })
}

/** The message of an error: what comes before its stack, in one line. */
function reasonIn(text) {
  const [message] = text.split(/\n\s+at /)
  return message.replaceAll(/\s+/g, ' ').trim().slice(0, MOST_OF_A_REASON)
}

function asLine(text) {
  try {
    return JSON.parse(text)
  } catch {
    // A client that prints.
    return undefined
  }
}

function ended(child) {
  return new Promise((resolve, reject) => {
    const limit = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS)
    child.once('error', reject)
    child.once('close', (code, signal) => {
      clearTimeout(limit)
      resolve(signal ?? code)
    })
  })
}
