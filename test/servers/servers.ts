/**
 * A real server as a test sees it: started in a temporary folder of its own, killed, stopped in its tracks, started
 * again in the same folder, and surely gone at the end.
 *
 * "Surely" is the hard part: a test process can be killed with -9 itself, and then runs no clean-up. So each server has
 * a guardian, a shell that waits on a pipe whose other end only the test process has. When that process ends, however
 * it ends, the pipe closes, and the guardian kills the server with everything it started and removes the folder.
 * Guardian and server come from one `sh`, which forks the first and then *becomes* the second: there is no moment
 * without a guardian, and the pid we know is the server's own.
 *
 * A server may be several processes: PostgreSQL has one for each connection, and makes each the leader of a group of
 * its own, which no signal to the server's group reaches. So whatever befalls the server befalls its children too; it
 * is stopped first, since what is stopped has no more children.
 *
 * What differs from server to server (arguments, what "ready" means) is in redis.ts and its neighbours.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, closeSync, mkdtempSync, openSync, readdirSync, readFileSync } from 'node:fs'
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
  /** Arguments; `folder` is where the server may write. Asked again at every start. */
  args(folder: string): readonly string[]
  /** Resolve when the server serves. A rejection means "not yet". */
  ready(): Promise<void>
  /** What has to be run once in the empty folder before the first start, such as PostgreSQL's initdb. */
  readonly prepare?: { readonly program: string; args(folder: string): readonly string[] }
  /** How the server is asked to end in good order; SIGTERM unless said. */
  readonly stopSignal?: NodeJS.Signals
  /**
   * How it ends for good. SIGKILL unless the server would then leave something behind in the machine, such as shared
   * memory.
   */
  readonly endSignal?: NodeJS.Signals
  /** Our own code is run as ourselves: the servers' user may not reach the folder that it is in. */
  readonly isOurCode?: boolean
}

/**
 * $1 is the folder, the rest is the server. A line on the pipe (3) says that the server ended and was seen to; the end
 * of the pipe, that no process is left to see to it. The group is killed last, since the guardian is in it too.
 */
const GUARDED = `
folder=$1; shift
children() { ps -A -o pid= -o ppid= | while read -r pid parent; do if [ "$parent" = "$$" ]; then echo "$pid"; fi; done; }
( ( read -r line <&3 || { kill -STOP "$$"; kill -9 $(children) "$$"; rm -rf "$folder"; kill -9 "-$$"; } ) </dev/null >/dev/null 2>&1 & )
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
      await server.#prepare()
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
    const child = await this.#spawn(this.#plan.program.path, this.#plan.args(this.folder))
    child.unref()
    await this.#untilReady()
  }

  /** Ask it to end, and insist after a while. */
  async stop(): Promise<void> {
    this.resume()
    await this.#end(this.#plan.stopSignal ?? 'SIGTERM')
  }

  /** `kill -9`: it loses what it has not written. */
  async kill(): Promise<void> {
    if (!this.running) return
    const children = this.#signalAll('SIGSTOP', 'SIGKILL')
    await this.#end('SIGKILL')
    // One that still dies has the shared memory open, and the server would not start again.
    while (children.some(isAlive)) await sleep(READY_EVERY_MS)
  }

  /** Stop it in its tracks: connections stay open, and nothing answers. */
  pause(): void {
    const pids = [this.pid, ...this.#signalAll('SIGSTOP', 'SIGSTOP')]
    // A thread stops when it has a turn on a processor. Until then it may answer what is sent from here on.
    const giveUpAt = performance.now() + STOP_LIMIT_MS
    while (!pids.every(standsStill)) {
      if (performance.now() > giveUpAt) throw this.#failure('did not stand still')
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, READY_EVERY_MS)
    }
  }

  resume(): void {
    if (this.running) this.#signalAll('SIGCONT', 'SIGCONT')
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.resume()
    await this.#end(this.#plan.endSignal ?? 'SIGKILL')
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 })
  }

  /** To the server first, then to its children. */
  #signalAll(signal: NodeJS.Signals, toChildren: NodeJS.Signals): readonly number[] {
    const { pid } = this
    process.kill(pid, signal)
    const children = childrenOf(pid)
    for (const child of children) sendTo(child, toChildren)
    return children
  }

  async #prepare(): Promise<void> {
    const { prepare } = this.#plan
    if (prepare === undefined) return
    const child = await this.#spawn(prepare.program, prepare.args(this.folder))
    const [code] = await once(child, 'exit')
    if (code !== 0) throw this.#failure(`could not be prepared: exit code ${code}`)
  }

  async #spawn(program: string, args: readonly string[]): Promise<ChildProcess> {
    const output = openSync(join(this.folder, 'output.log'), 'a')
    const child = spawn('sh', ['-c', GUARDED, 'sh', this.folder, program, ...args], {
      cwd: this.folder,
      env: { ...process.env, ...this.#plan.program.env },
      stdio: ['ignore', output, output, 'pipe'],
      detached: true,
      ...(this.#plan.isOurCode === true ? {} : serverUser),
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
    return child
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

/** Every process: its own id, its parent's, and its state, in which Z is dead but not yet buried. */
function processes(): readonly { readonly pid: number; readonly parent: number; readonly state: string }[] {
  const rows = execFileSync('ps', ['-A', '-o', 'pid=', '-o', 'ppid=', '-o', 'stat='], { encoding: 'utf8' })
    .trim()
    .split('\n')
  return rows.map((row) => {
    const [pid = '', parent = '', state = ''] = row.trim().split(/\s+/)
    return { pid: Number(pid), parent: Number(parent), state }
  })
}

function childrenOf(parent: number): readonly number[] {
  return processes().flatMap((each) => (each.parent === parent ? [each.pid] : []))
}

function isAlive(pid: number): boolean {
  return processes().some((each) => each.pid === pid && !each.state.startsWith('Z'))
}

/** Whether all its threads are stopped, or have ended. Where there is no /proc, that cannot be seen. */
function standsStill(pid: number): boolean {
  const folder = join('/proc', String(pid), 'task')
  try {
    return readdirSync(folder).every((thread) => /[TtZX]/.test(stateOfThread(join(folder, thread, 'stat'))))
  } catch {
    return true
  }
}

/** Behind the name of its program, which may have brackets of its own. Z if the thread has ended meanwhile. */
function stateOfThread(file: string): string {
  try {
    const text = readFileSync(file, 'utf8')
    return text.charAt(text.lastIndexOf(')') + 2)
  } catch {
    return 'Z'
  }
}

/** It may have ended by itself. */
function sendTo(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch {
    // There is no such process.
  }
}
