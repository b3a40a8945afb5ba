/**
 * `npm test`: everything that must be true of this repository, step by step. A failing step does not hide the ones
 * after it.
 *
 *     npm test                          all of it
 *     npm test -- --only unit,lint      some of it
 *     npm test -- --rounds 10           longer conformance runs (HOLDFAST_ROUNDS)
 *
 * The last line is always `N passed, N failed, N skipped`: tests are counted one by one, any other step as one, and
 * every skip is listed with its reason. A test of real processes that passed only at its second try is listed as
 * unsteady: look into it if it comes back.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'

/** Each answers a tally. The order matters: what is built first is used by the rest. */
const steps = {
  build: () => command('npm', 'run', 'build'),
  types: () => command('tsc', '-p', 'tsconfig.json'),
  lint: () =>
    all(
      () => command('biome', 'lint', '--error-on-warnings'),
      () => command('oxlint', '--type-aware', '--deny-warnings'),
    ),
  format: () => command('biome', 'check', '--linter-enabled=false'),
  package: () => script('scripts/package-check.mjs'),
  unit: () => vitest('unit'),
  facts: () => vitest('facts'),
  engines: () => vitest('engines'),
  cli: () => vitest('cli'),
  simulate: () =>
    all(
      () => script('dist/simulation/main.js', '--seeds', '20000', '--workers', '2'),
      () => script('dist/simulation/redlock/main.js', '--grants', '50000'),
    ),
  mutants: () => script('dist/simulation/mutants.js', '--budget', 'small'),
  examples: () => examples(),
}

const { values: options } = parseArgs({ options: { only: { type: 'string' }, rounds: { type: 'string' } } })
if (options.rounds !== undefined) process.env.HOLDFAST_ROUNDS = options.rounds
const chosen = options.only?.split(',') ?? Object.keys(steps)
const unknown = chosen.filter((name) => !(name in steps))
if (unknown.length > 0) {
  console.error(`no step is called ${unknown.join(', ')}; there are ${Object.keys(steps).join(', ')}`)
  process.exit(64)
}

const total = { passed: 0, failed: [], skipped: [], unsteady: [] }
for (const name of Object.keys(steps).filter((step) => chosen.includes(step))) {
  console.log(`\n━━━ ${name}`)
  const startedAt = performance.now()
  const tally = await steps[name]()
  const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
  console.log(`━━━ ${name}: ${tally.failed.length === 0 ? 'good' : 'FAILED'}, ${seconds} s`)
  total.passed += tally.passed
  for (const kind of ['failed', 'skipped', 'unsteady'])
    total[kind].push(...(tally[kind] ?? []).map((line) => `${name}: ${line}`))
}

console.log('')
for (const kind of ['skipped', 'unsteady', 'failed']) for (const line of total[kind]) console.log(`${kind}: ${line}`)
console.log(`${total.passed} passed, ${total.failed.length} failed, ${total.skipped.length} skipped`)
process.exitCode = total.failed.length === 0 ? 0 : 1

/** Run a program of node_modules/.bin or of PATH; its output is ours. */
async function command(program, ...args) {
  const installed = join('node_modules', '.bin', program)
  return await run([program, ...args].join(' '), existsSync(installed) ? installed : program, args)
}

async function script(file, ...args) {
  if (!existsSync(file)) return failure(`${file} is missing`)
  return await run([file, ...args].join(' '), process.execPath, [file, ...args])
}

/** One after the other, also after a failure. */
async function all(...parts) {
  const sum = { passed: 0, failed: [], skipped: [] }
  for (const part of parts) {
    const tally = await part()
    sum.passed += tally.passed
    sum.failed.push(...tally.failed)
  }
  return sum
}

async function vitest(project) {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-test-'))
  try {
    process.env.HOLDFAST_TALLY = join(folder, 'tally.json')
    const ran = await command(
      'vitest',
      'run',
      '--project',
      project,
      '--reporter',
      'default',
      '--reporter',
      './scripts/tally.mjs',
    )
    if (!existsSync(process.env.HOLDFAST_TALLY)) return failure('vitest wrote no report')
    const tally = JSON.parse(readFileSync(process.env.HOLDFAST_TALLY, 'utf8'))
    // A bad exit with nothing to show for it must not get lost.
    if (tally.failed.length === 0) tally.failed.push(...ran.failed)
    return tally
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

async function examples() {
  const files = existsSync('examples') ? readdirSync('examples').filter((name) => name.endsWith('.mjs')) : []
  if (files.length === 0) return failure('there are no examples/*.mjs')
  return await all(...files.toSorted().map((name) => () => script(join('examples', name))))
}

function failure(line) {
  console.log(line)
  return { passed: 0, failed: [line], skipped: [] }
}

async function run(title, program, args) {
  return await new Promise((resolve) => {
    const child = spawn(program, args, { stdio: 'inherit' })
    child.once('error', (error) => resolve(failure(`${title}: ${error.message}`)))
    child.once('exit', (code, signal) => {
      if (code === 0) resolve({ passed: 1, failed: [], skipped: [] })
      else resolve(failure(`${title} ended with ${signal ?? `exit code ${code}`}`))
    })
  })
}
