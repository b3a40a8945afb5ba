/**
 * The teeth of the simulator: `node dist/simulation/mutants.js [--budget small|full] [--only WORDS]`.
 *
 * Each defect (defects.ts) is applied to a temporary copy of the sources, compiled, and simulated until a check fails. A defect that is still undetected when its
 * seeds are used up has survived, and the exit code is 1: then a check or a fault is missing, or the line it breaks is not needed.
 */
import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { DEFECTS, type Defect } from './defects.ts'

/** Seeds for each mutant before it counts as a survivor. */
const BUDGETS: Readonly<Record<string, number>> = { small: 4_000, full: 40_000 }

const { values } = parseArgs({ options: { budget: { type: 'string', default: 'full' }, only: { type: 'string' } } })
const seeds = BUDGETS[values.budget]
if (seeds === undefined) throw new RangeError(`--budget must be ${Object.keys(BUDGETS).join(' or ')}; got ${values.budget}`)

const root = process.cwd()

/** How it was caught: the first line that the simulator printed. Undefined: it was not. */
async function simulate({ file, find, replace }: Defect): Promise<string | undefined> {
  const copy = mkdtempSync(join(tmpdir(), 'holdfast-mutant-'))
  try {
    for (const part of ['src', 'simulation', 'tsconfig.json', 'package.json'])
      cpSync(join(root, part), join(copy, part), { recursive: true })
    symlinkSync(join(root, 'node_modules'), join(copy, 'node_modules'))
    const text = readFileSync(join(copy, file), 'utf8')
    if (text.split(find).length !== 2) throw new Error(`${file} has the text of this defect ${text.split(find).length - 1} times, not once`)
    writeFileSync(
      join(copy, file),
      text.replace(find, () => replace),
    )
    writeFileSync(join(copy, 'tsconfig.mutant.json'), JSON.stringify(COMPILER))
    // A mutant need not be clean (an unused name), only compile to something: types are not what is tested here.
    await run(copy, join(root, 'node_modules/.bin/tsc'), ['-p', 'tsconfig.mutant.json'])
    const { code, output } = await run(copy, process.execPath, ['dist/simulation/main.js', '--seeds', `${seeds}`, '--stop'])
    return code === 0 ? undefined : (output.split('\n')[0] ?? '')
  } finally {
    rmSync(copy, { recursive: true, force: true })
  }
}

const COMPILER = {
  extends: './tsconfig.json',
  compilerOptions: { noEmit: false, noEmitOnError: false, declaration: false, isolatedDeclarations: false, sourceMap: false },
  include: ['simulation/main.ts'],
}

function run(cwd: string, program: string, args: readonly string[]): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    execFile(program, args, { cwd, maxBuffer: 2 ** 26 }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? 1), output: stdout + stderr })
    })
  })
}

const chosen = DEFECTS.filter(({ name }) => values.only === undefined || name.includes(values.only))
const queue = [...chosen]
const survivors: string[] = []

async function work(): Promise<void> {
  for (let defect = queue.shift(); defect !== undefined; defect = queue.shift()) {
    const startedAt = performance.now()
    const caught = await simulate(defect)
    const seconds = ((performance.now() - startedAt) / 1000).toFixed(1)
    if (caught === undefined) survivors.push(defect.name)
    console.log(`${caught === undefined ? 'SURVIVED' : 'caught'}  ${defect.name}  (${seconds} s)\n          ${caught ?? `${seeds} seeds`}`)
  }
}

await Promise.all(Array.from({ length: availableParallelism() }, work))
console.log(`${chosen.length - survivors.length} of ${chosen.length} mutants caught`)
process.exitCode = survivors.length === 0 ? 0 : 1
