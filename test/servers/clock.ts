/**
 * A server whose wall clock a test sets, and processes whose clock is wrong. The library in clock.c is compiled when it
 * is needed; where there is no C compiler, or no LD_PRELOAD, suites that need it are skipped with that reason. Under CI
 * a compiler is installed.
 */
import { execFile } from 'node:child_process'
import { chmodSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { installPackages } from './apt.ts'
import { oneAtATime } from './one-at-a-time.ts'
import { Missing, type Program } from './programs.ts'
import { weAreRoot } from './user.ts'

const run = promisify(execFile)

/** The library, compiled into a folder of its own; or why there is none. */
async function compiledLibrary(): Promise<string | Missing> {
  if (process.platform !== 'linux') return new Missing('setting the clock of a program needs Linux')
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-clock-'))
  chmodSync(folder, 0o755)
  const source = fileURLToPath(new URL('clock.c', import.meta.url))
  const compile = async (): Promise<unknown> =>
    await run('cc', ['-O2', '-shared', '-fPIC', '-o', join(folder, 'clock.so'), source])
  try {
    // A machine that is thrown away is given a compiler.
    const fetched =
      weAreRoot && process.env.CI
        ? () => oneAtATime(() => installPackages(['gcc', 'libc6-dev'])).then(compile)
        : undefined
    await compile().catch((error: unknown) => fetched?.() ?? Promise.reject(error as Error))
    return folder
  } catch (error) {
    rmSync(folder, { recursive: true })
    return new Missing(`setting the clock of a program needs a C compiler: ${(error as Error).message.split('\n')[0]}`)
  }
}

/** Clocks of hosts that go on, and are wrong. */
export class WrongClocks implements Disposable {
  readonly #folder: string

  static async make(): Promise<WrongClocks | Missing> {
    const folder = await compiledLibrary()
    return folder instanceof Missing ? folder : new WrongClocks(folder)
  }

  private constructor(folder: string) {
    this.#folder = folder
  }

  /** What to add to the environment of a process whose wall clock is to be ahead by as much; behind, if negative. */
  env(aheadMs: number): Record<string, string> {
    return { LD_PRELOAD: join(this.#folder, 'clock.so'), HOLDFAST_CLOCK_AHEAD: String(aheadMs) }
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}

export class ServerClock implements Disposable {
  readonly #folder: string
  readonly #file: number
  #nowMs: number

  static async make(nowMs: number): Promise<ServerClock | Missing> {
    const folder = await compiledLibrary()
    return folder instanceof Missing ? folder : new ServerClock(folder, nowMs)
  }

  private constructor(folder: string, nowMs: number) {
    this.#folder = folder
    this.#file = openSync(join(folder, 'now'), 'w+', 0o644)
    this.#nowMs = nowMs
    this.advance(0)
  }

  /** The program, under this clock. */
  drive(program: Program): Program {
    const ours = { LD_PRELOAD: join(this.#folder, 'clock.so'), HOLDFAST_CLOCK: join(this.#folder, 'now') }
    return { ...program, env: { ...program.env, ...ours } }
  }

  /** Let whole milliseconds pass; a negative number sets the clock back. */
  advance(ms: number): void {
    this.#nowMs += ms
    const nanoseconds = Buffer.alloc(8)
    nanoseconds.writeBigInt64LE(BigInt(Math.round(this.#nowMs)) * 1_000_000n)
    writeSync(this.#file, nanoseconds, 0, 8, 0)
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true, force: true })
  }
}
