/**
 * A real server as a test sees it: started in a temporary folder of its own, killed, stopped in its tracks, started again in the same folder,
 * and surely gone at the end.
 *
 * "Surely" is the hard part: a test process can be killed with -9 itself, and then runs no clean-up. So each server has a guardian, a shell
 * that waits on a pipe whose other end only the test process has. When that process ends, however it ends, the pipe closes, and the
 * guardian kills the server with everything it started and removes the folder. Guardian and server come from one `sh`, which forks the
 * first and then *becomes* the second: there is no moment without a guardian, and the pid we know is the server's own.
 *
 * What differs from server to server (arguments, what "ready" means) is in redis.ts and its neighbours.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, closeSync, mkdtempSync, openSync, readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Program } from './programs.ts'
import { serverUser } from './user.ts'

export interface ServerPlan {
  readonly name: string
  readonly program: Program
  /** Make what the server needs before its first start, in its folder. A test process that is killed in this moment leaves the folder behind. */
  prepare?(folder: string): Promise<void>
  /** Arguments; `folder` is where the server may write. Asked again at every start. */
  args(folder: string): readonly string[]
  /** Resolve when the server serves. A rejection means "not yet". */
  ready(): Promise<void>
}

/**
 * $1 is the folder, the rest is the server. A line on the pipe (3) says that the server ended and was seen to; the end of the pipe, that nobody is
 * left to see to it. The group is killed last, since the guardian is in it too.
 */
const GUARDED = `
folder=$1; shift
( ( read -r line <&3 || { kill -9 "$$"; rm -rf "$folder"; kill -9 "-$$"; } ) </dev/null >/dev/null 2>&1 & )
exec "$@" 3<&-
`

const START_LIMIT_MS = 60_000
const STOP_LIMIT_MS = 10_000
const READY_EVERY_MS = 20
const LOG_TAIL_BYTES = 2_000

export class ServerProcess implements AsyncDisposable {
  readonly folder: string
  readonly #plan: ServerPlan
  #child: ChildProcess | undefined

  /** A folder for the plan, and the server running in it. */
  static async start(plan: ServerPlan): Promise<ServerProcess> {
    const server = new ServerProcess(plan)
    try {
      await plan.prepare?.(server.folder)
      await server.start()
    } catch (error) {
      await server[Symbol.asyncDispose]()
      throw error
    }
    return server
  }

  private constructor(plan: ServerPlan) {
    this.#plan = plan
    this.folder = mkdtempSync(join(tmpdir(), `holdfast-${plan.name}-`))
    if (serverUser !== undefined) chownSync(this.folder, serverUser.uid, serverUser.gid)
  }

  /** The server's own process id. */
  get pid(): number {
    const pid = this.#child?.pid
    if (pid === undefined) throw new Error(`${this.#plan.name} is not running`)
    return pid
  }

  get running(): boolean {
    return this.#child !== undefined
  }

  /** Everything the server has written to its output since the first start. */
  get log(): string {
    return readFileSync(join(this.folder, 'output.log'), 'utf8')
  }

  /** Start, again after `stop` or `kill`, in the same folder and with the same arguments. */
  async start(): Promise<void> {
    if (this.running) throw new Error(`${this.#plan.name} is running already`)
    const { program } = this.#plan
    const output = openSync(join(this.folder, 'output.log'), 'a')
    const child = spawn('sh', ['-c', GUARDED, 'sh', this.folder, program.path, ...this.#plan.args(this.folder)], {
      cwd: this.folder,
      env: { ...process.env, ...program.env },
      stdio: ['ignore', output, output, 'pipe'],
      detached: true,
      ...serverUser,
    })
    const pipe = child.stdio[3] as Writable
    pipe.on('error', () => undefined)
    child.once('exit', () => {
      this.#child = undefined
      pipe.end('ended\n')
    })
    closeSync(output)
    await once(child, 'spawn')
    this.#child = child
    child.unref()
    await this.#untilReady()
  }

  /** Ask it to end, and insist after a while. */
  async stop(): Promise<void> {
    this.resume()
    await this.#end('SIGTERM')
  }

  /** `kill -9`: it loses what it has not written. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL')
  }

  /** Stop it in its tracks: connections stay open, and nothing answers. */
  pause(): void {
    process.kill(this.pid, 'SIGSTOP')
  }

  resume(): void {
    if (this.running) process.kill(this.pid, 'SIGCONT')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }

  async #end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child
    if (child === undefined) return
    const ended = once(child, 'exit')
    child.ref()
    child.kill(signal)
    const insist = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT_MS)
    await ended
    clearTimeout(insist)
  }

  async #untilReady(): Promise<void> {
    const giveUpAt = performance.now() + START_LIMIT_MS
    while (this.running) {
      try {
        return await this.#plan.ready()
      } catch (error) {
        if (performance.now() > giveUpAt) throw this.#failure('does not answer', error)
      }
      await sleep(READY_EVERY_MS)
    }
    throw this.#failure('ended at once')
  }

  #failure(what: string, cause?: unknown): Error {
    return new Error(`${this.#plan.name} ${what}; its last words:\n${this.log.slice(-LOG_TAIL_BYTES)}`, { cause })
  }
}
