/** A test's end of a program: start it, and see how it ends. */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import type { EngineModule } from '../world.ts'
import { compiled } from './client.ts'

export interface Program {
  readonly engine: EngineModule
  readonly key: string
  readonly ttlMs: number
  /**
   * `closes`: it closes its locks and says so. `just ends`: it does not. `only works`: the work of its `using` and
   * `lead` awaits nothing but the signal of the lease.
   */
  readonly how: 'closes' | 'just ends' | 'only works'
}

export interface Ended {
  /** What it has written. */
  readonly out: string
  /** `code 0`, `signal SIGSEGV`; `never` if it had to be killed. */
  readonly exit: string
}

/** Run a program to its end. One that has not ended after `limitMs` is killed. */
export async function runProgram(program: Program, limitMs: number): Promise<Ended> {
  const child = fork(compiled('program'), {
    execArgv: [],
    serialization: 'advanced',
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  })
  let [out, complaints, killed] = ['', '', false]
  child.stdout?.setEncoding('utf8').on('data', (text: string) => {
    out += text
  })
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    complaints += text
  })
  const limit = setTimeout(() => {
    killed = true
    child.kill('SIGKILL')
  }, limitMs)
  try {
    child.send(program)
    const [code, signal] = (await once(child, 'close')) as [number | null, string | null]
    const exit = signal === null ? `code ${code}` : `signal ${signal}`
    return { out, exit: `${killed ? 'never' : exit}${complaints === '' ? '' : `\n${complaints}`}` }
  } finally {
    clearTimeout(limit)
  }
}
