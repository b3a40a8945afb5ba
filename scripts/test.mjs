/**
 * `npm test`: everything that must be true of this repository. A failing step does not hide the ones after it.
 *
 *     npm test                          all of it
 *     npm test -- --only unit,lint      some of it
 *     npm test -- mongodb               the tests whose file has this in its path
 *     npm test -- --rounds 10           longer conformance runs (HOLDFAST_ROUNDS)
 *     npm test -- --record              write down how long the files with servers take (scripts/seconds.json)
 *     npm test -- --quick               what is quick, before each commit: npm run check
 *
 * Steps that use one core run side by side; what such a step prints is shown when it ends. Tests with servers come
 * last, in lanes (scripts/lanes.mjs). They mostly wait, and measure what processes notice. So only what computes and
 * waits for nothing runs beside them, and only with the processor time that they leave.
 *
 * The last line is always `N passed, N failed, N skipped`: tests are counted one by one, any other step as one, and
 * every skip is listed with its reason. A test with servers that fails beside others is tried again alone. One that
 * passes then is listed as unsteady: look into it if it comes back.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { availableParallelism, constants, setPriority, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { lanes, record } from './lanes.mjs'
import { addUp, afterSecondTry, emptyTally, failures } from './reports.mjs'

const cores = Math.max(2, availableParallelism())

const { values: options, positionals: names } = parseArgs({
  allowPositionals: true,
  options: {
    only: { type: 'string' },
    quick: { type: 'boolean', default: false },
    rounds: { type: 'string' },
    record: { type: 'boolean', default: false },
  },
})
if (options.rounds !== undefined) process.env.HOLDFAST_ROUNDS = options.rounds
// A project may have no such test.
const paths = names.length === 0 ? [] : [...names, '--passWithNoTests']

/**
 * What makes the quick run quick. Files of unit tests share processes: to start one for each file, and to load in it
 * what it tests, takes as long as the tests. What has not changed since the last quick run has the types it had.
 */
const sharing = options.quick ? ['--no-isolate'] : []
const remembering = options.quick ? ['--incremental', '--tsBuildInfoFile', 'node_modules/.cache/types.tsbuildinfo'] : []

/** Each is given where its output goes, and answers a tally. */
const steps = {
  build: (out) => command(out, 'npm', 'run', 'build'),
  unit: (out) => tests(out, '--project', 'unit', ...sharing, ...paths),
  conformance: (out) => tests(out, '--project', 'engines', 'engines/memory.test.ts', 'engines/sqlite.test.ts'),
  types: (out) => command(out, 'tsc', '-p', 'tsconfig.json', ...remembering),
  lint: (out) =>
    all(
      () => command(out, 'biome', 'lint', '--error-on-warnings'),
      () => command(out, 'oxlint', '--type-aware', '--deny-warnings'),
    ),
  format: (out) => command(out, 'biome', 'check', '--linter-enabled=false'),
  package: (out) => script(out, 'scripts/package-check.mjs'),
  examples: (out) => examples(out),
  simulate: (out) =>
    all(
      () => script(out, 'dist/simulation/main.js', '--seeds', '20000', '--workers', `${cores}`),
      () => script(out, 'dist/simulation/redlock/main.js', '--grants', '50000'),
    ),
  mutants: (out) => script(out, 'dist/simulation/mutants.js', '--budget', 'small'),
}

/** The projects of vitest whose tests start servers and processes. */
const inLanes = ['facts', 'engines', 'cli']

/**
 * Phases come one after the other: what is built first is used by the rest. In a phase, queues of steps are worked off
 * side by side. Tests have timers, so the tools beside them give way.
 */
const phases = [[['build']], [['unit', 'examples'], ['conformance'], ['types', 'lint', 'format', 'package']]]

/** They compute, on virtual time: what runs beside them cannot disturb them. */
const besideServers = ['simulate', 'mutants']

const { PRIORITY_BELOW_NORMAL, PRIORITY_LOW } = constants.priority
const priorities = {
  types: PRIORITY_BELOW_NORMAL,
  lint: PRIORITY_BELOW_NORMAL,
  format: PRIORITY_BELOW_NORMAL,
  package: PRIORITY_BELOW_NORMAL,
  simulate: PRIORITY_LOW,
  mutants: PRIORITY_LOW,
}

/** The conformance of the engines without a server is a part of `engines` as well. */
const everything = [...Object.keys(steps), ...inLanes].filter((name) => name !== 'conformance')
const quick = ['build', 'types', 'lint', 'format', 'unit', 'conformance']

const usual = options.quick ? quick : names.length === 0 ? everything : ['build', 'unit', ...inLanes]
const chosen = options.only?.split(',') ?? usual
const unknown = chosen.filter((name) => !(name in steps) && !inLanes.includes(name))
if (unknown.length > 0) {
  console.error(`no step is called ${unknown.join(', ')}; there are ${[...Object.keys(steps), ...inLanes].join(', ')}`)
  process.exit(64)
}

const startedAt = performance.now()
const total = emptyTally()
for (const queues of phases) await sideBySide(queues.map((queue) => queue.filter((name) => chosen.includes(name))))
await Promise.all([
  withServers(inLanes.filter((name) => chosen.includes(name))),
  sideBySide(
    [besideServers.filter((name) => chosen.includes(name))],
    inLanes.some((name) => chosen.includes(name)),
  ),
])

console.log('')
for (const kind of ['skipped', 'unsteady', 'failed']) for (const line of total[kind]) console.log(`${kind}: ${line}`)
console.log(`${secondsSince(startedAt)} s`)
console.log(`${total.passed} passed, ${total.failed.length} failed, ${total.skipped.length} skipped`)
process.exitCode = total.failed.length === 0 ? 0 : 1

/** A queue that is alone prints as it goes; with others, each step prints when it ends. */
async function sideBySide(queues, others = queues.filter((queue) => queue.length > 0).length > 1) {
  await Promise.all(
    queues.map(async (queue) => {
      for (const name of queue) await step(name, others ? { pieces: [], priority: priorities[name] } : undefined)
    }),
  )
}

async function step(name, out) {
  if (out === undefined) console.log(`\n━━━ ${name}`)
  const stepStartedAt = performance.now()
  const tally = await steps[name](out)
  if (out !== undefined) process.stdout.write(`\n━━━ ${name}\n${Buffer.concat(out.pieces).toString()}`)
  conclude(name, tally, stepStartedAt)
}

function conclude(name, tally, since) {
  console.log(`━━━ ${name}: ${tally.failed.length === 0 ? 'good' : 'FAILED'}, ${secondsSince(since)} s`)
  total.passed += tally.passed
  for (const kind of ['failed', 'skipped', 'unsteady'])
    total[kind].push(...tally[kind].map((line) => `${name}: ${line}`))
}

function secondsSince(at) {
  return ((performance.now() - at) / 1000).toFixed(1)
}

/** All projects in one run of vitest, in lanes; and then what failed, alone. */
async function withServers(projects) {
  if (projects.length === 0) return
  console.log(`\n━━━ ${projects.join(', ')}: ${lanes} files at a time`)
  const runStartedAt = performance.now()
  const report = await vitest(undefined, ...projects.flatMap((name) => ['--project', name]), ...paths)
  for (const { project, file, names } of failures(report)) {
    console.log(`\n━━━ again, alone: ${file}`)
    const only = names === undefined ? [] : ['-t', `^(?:${names.map(asPattern).join('|')})$`]
    const again = await vitest(undefined, '--project', project, file, ...only)
    // What goes wrong outside of tests counts, also if the tests pass now.
    report.errors.push(...again.errors)
    const [second] = again.files
    const index = report.files.findIndex((each) => each.project === project && each.file === file)
    if (second !== undefined) report.files[index] = afterSecondTry(report.files[index], second)
  }
  for (const name of projects)
    conclude(name, addUp({ files: report.files.filter(({ project }) => project === name), errors: [] }), runStartedAt)
  total.failed.push(...addUp({ files: [], errors: report.errors }).failed)
  if (options.record) record(Object.fromEntries(report.files.map(({ file, seconds }) => [file, seconds])))
}

/** Vitest looks for the pattern in names that are joined by a space; a name may contain the sign itself. */
function asPattern(name) {
  return name.replaceAll(/[$()*+.?[\\\]^{|}]/g, '\\$&').replaceAll(' > ', ' (?:> )?')
}

/** Tests without servers: what fails has failed. */
async function tests(out, ...args) {
  return addUp(await vitest(out, ...args))
}

/** The report of a run. A bad end that no test accounts for is an error of the run. */
async function vitest(out, ...args) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
  const file = join(folder, 'report.json')
  try {
    const reporters = ['--reporter', 'default', '--reporter', './scripts/tally.mjs']
    const env = { ...process.env, HOLDFAST_TALLY: file }
    const ran = await run(out, 'vitest', join('node_modules', '.bin', 'vitest'), ['run', ...args, ...reporters], env)
    if (!existsSync(file)) return { files: [], errors: ['vitest wrote no report'] }
    const report = JSON.parse(readFileSync(file, 'utf8'))
    if (addUp(report).failed.length === 0) report.errors.push(...ran.failed)
    return report
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function examples(out) {
  const files = existsSync('examples') ? readdirSync('examples').filter((name) => name.endsWith('.mjs')) : []
  if (files.length === 0) return failure('there are no examples/*.mjs')
  return await all(...files.toSorted().map((name) => () => script(out, join('examples', name))))
}

/** Run a program of node_modules/.bin or of PATH. */
async function command(out, program, ...args) {
  const installed = join('node_modules', '.bin', program)
  return await run(out, [program, ...args].join(' '), existsSync(installed) ? installed : program, args)
}

async function script(out, file, ...args) {
  if (!existsSync(file)) return failure(`${file} is missing`)
  return await run(out, [file, ...args].join(' '), process.execPath, [file, ...args])
}

/** One after the other, also after a failure. */
async function all(...parts) {
  const sum = emptyTally()
  for (const part of parts) {
    const tally = await part()
    sum.passed += tally.passed
    sum.failed.push(...tally.failed)
  }
  return sum
}

function failure(line) {
  return { ...emptyTally(), failed: [line] }
}

/** What it prints is ours, or collected in `out`. */
async function run(out, title, program, args, env = process.env) {
  return await new Promise((resolve) => {
    const output = out === undefined ? 'inherit' : 'pipe'
    const child = spawn(program, args, { stdio: ['inherit', output, output], env })
    if (out?.priority !== undefined && child.pid !== undefined) setPriority(child.pid, out.priority)
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (piece) => out.pieces.push(piece))
    child.once('error', (error) => resolve(failure(`${title}: ${error.message}`)))
    child.once('close', (code, signal) => {
      if (code === 0) resolve({ ...emptyTally(), passed: 1 })
      else resolve(failure(`${title} ended with ${signal ?? `exit code ${code}`}`))
    })
  })
}
