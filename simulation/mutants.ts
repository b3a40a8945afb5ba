/**
 * Teeth: does the simulator bite? `npm run mutants [-- --budget small] [-- --only <name>]` applies one defect after the
 * other to a copy of the sources in a temporary folder, compiles it, and runs seeds until one of them breaks a
 * property. A defect that survives its budget of seeds is a hole in the simulator: the exit code is 1 then.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { cp, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import type { Defect } from './defect.ts'
import { DEFECTS as CORE_DEFECTS } from './defects.ts'
import { DEFECTS as REDLOCK_DEFECTS } from './redlock/defects.ts'

/**
 * How many seeds a defect may survive. The small budget is for the tests; seeds are the same every time, and each
 * defect is caught within it.
 */
const SEEDS = { small: 1_000, full: 50_000 } as const

const DEFECTS: readonly Defect[] = [...CORE_DEFECTS, ...REDLOCK_DEFECTS]

const { values } = parseArgs({ options: { budget: { type: 'string', default: 'full' }, only: { type: 'string' } } })

const home = fileURLToPath(new URL('../../', import.meta.url))

/** A copy of the sources, in which one defect at a time is planted. */
class Workshop {
  readonly #folder: string

  private constructor(folder: string) {
    this.#folder = folder
  }

  static async open(): Promise<Workshop> {
    const folder = await mkdtemp(join(tmpdir(), 'holdfast-mutants-'))
    for (const name of ['src', 'simulation', 'package.json', 'tsconfig.json'])
      await cp(join(home, name), join(folder, name), { recursive: true })
    await symlink(join(home, 'node_modules'), join(folder, 'node_modules'))
    const settings = {
      extends: './tsconfig.json',
      compilerOptions: { noEmit: false, declaration: false },
      include: ['simulation/main.ts', 'simulation/redlock/main.ts'],
    }
    await writeFile(join(folder, 'tsconfig.build.json'), JSON.stringify(settings))
    return new Workshop(folder)
  }

  async close(): Promise<void> {
    await rm(this.#folder, { recursive: true })
  }

  /** Plant the defect, compile, run, and put everything back. Says what the simulator said. */
  async tries({ file, find, replace, conditions = {}, simulator = 'main' }: Defect, seeds: number): Promise<string> {
    const path = join(this.#folder, file)
    const whole = await readFile(path, 'utf8')
    const parts = whole.split(find)
    if (parts.length !== 2)
      throw new Error(`${file} has ${parts.length - 1} places like ${JSON.stringify(find)}; a defect needs exactly one`)
    await writeFile(path, parts.join(replace))
    try {
      // A defect may leave something unused, which the compiler reports and compiles all the same.
      await this.#run('node_modules/typescript/bin/tsc', '-p', 'tsconfig.build.json')
      const { code, output } = await this.#run(
        `dist/simulation/${simulator}.js`,
        '--seeds',
        `${seeds}`,
        '--stop',
        '--conditions',
        JSON.stringify(conditions),
      )
      if (code === 0) return ''
      if (code === 1 && output.startsWith('seed ')) return output
      throw new Error(`the simulator itself broke:\n${output}`)
    } finally {
      await writeFile(path, whole)
    }
  }

  #run(...command: readonly string[]): Promise<{ code: number | null; output: string }> {
    return new Promise((resolve, reject) => {
      const child: ChildProcess = spawn(process.execPath, command, {
        cwd: this.#folder,
        stdio: ['ignore', 'pipe', 'pipe'],
      })
      let output = ''
      const hear = (chunk: Buffer): void => {
        output += chunk.toString()
      }
      child.stdout?.on('data', hear)
      child.stderr?.on('data', hear)
      child.on('error', reject)
      child.on('close', (code) => resolve({ code, output }))
    })
  }
}

/** One line for people, and whether it was caught. */
function judged({ name }: Defect, output: string, seeds: number): { caught: boolean; line: string } {
  const checks = [...output.matchAll(/^seed (\d+) breaks "([^"]+)"/gm)]
  const [first] = checks
  if (first === undefined) return { caught: false, line: `SURVIVED  ${name} (${seeds} seeds)` }
  return {
    caught: true,
    line: `caught    ${name}, at seed ${first[1]}, by: ${checks.map(([, , check]) => check).join('; ')}`,
  }
}

async function main(): Promise<void> {
  const { budget, only } = values
  if (budget !== 'small' && budget !== 'full') throw new RangeError(`--budget is small or full; got ${budget}`)
  const seeds = SEEDS[budget]
  const defects = DEFECTS.filter(({ name }) => only === undefined || name.includes(only))
  const queue = [...defects]
  let survivors = 0
  const work = async (): Promise<void> => {
    const workshop = await Workshop.open()
    try {
      for (let defect = queue.shift(); defect !== undefined; defect = queue.shift()) {
        const { caught, line } = await workshop.tries(defect, seeds).then(
          (output) => judged(defect, output, seeds),
          (error: unknown) => ({
            caught: false,
            line: `BROKEN    ${defect.name}: ${error instanceof Error ? error.message : String(error)}`,
          }),
        )
        console.log(line)
        if (!caught) survivors += 1
      }
    } finally {
      await workshop.close()
    }
  }
  await Promise.all(Array.from({ length: Math.min(availableParallelism(), defects.length) }, work))
  console.log(`${defects.length - survivors} of ${defects.length} defects caught`)
  process.exitCode = survivors > 0 ? 1 : 0
}

await main()
