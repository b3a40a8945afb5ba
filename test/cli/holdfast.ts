/**
 * `holdfast` as tests run it: the compiled program, as a real process, in a world of its own (an empty home, a lock
 * file of its own, a PATH on which it is found), and surely gone at the end.
 *
 * Every process is started in a session of its own, so that it has no controlling terminal whether or not the
 * developer who runs the tests has one. What needs a terminal gets one from script(1).
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Writable } from 'node:stream'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { connect } from '../../src/connect.ts'
import type { LocksOptions } from '../../src/core/locks-options.ts'
import type { Locks } from '../../src/locks.ts'
import { builtCommand } from '../built.ts'

const MAIN = builtCommand()
const LIMIT_MS = 30_000
const LOOK_EVERY_MS = 10

/** What doctor says of one thing. */
export interface Check {
  readonly name: string
  readonly status: string
  readonly finding: string
  readonly todo?: string
}

export interface Ended {
  readonly exit: number | null
  readonly signal: NodeJS.Signals | null
  readonly stdout: string
  readonly stderr: string
}

/** A process that runs. */
export class Running {
  readonly process: ChildProcess
  readonly ended: Promise<Ended>
  readonly #out: Buffer[] = []
  readonly #err: Buffer[] = []

  constructor(child: ChildProcess) {
    this.process = child
    child.stdout?.on('data', (bytes: Buffer) => this.#out.push(bytes))
    child.stderr?.on('data', (bytes: Buffer) => this.#err.push(bytes))
    child.stdin?.on('error', () => undefined)
    this.ended = once(child, 'close').then(([exit, signal]) => ({
      exit: exit as number | null,
      signal: signal as NodeJS.Signals | null,
      stdout: this.stdout,
      stderr: this.stderr,
    }))
  }

  get pid(): number {
    return this.process.pid as number
  }

  get stdin(): Writable {
    return this.process.stdin as Writable
  }

  get stdout(): string {
    return this.bytes.toString()
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#out)
  }

  get stderr(): string {
    return Buffer.concat(this.#err).toString()
  }

  signal(signal: NodeJS.Signals): void {
    process.kill(this.pid, signal)
  }
}

export class World implements AsyncDisposable {
  readonly folder: string
  readonly #started: Running[] = []
  readonly #locks: Locks[] = []

  constructor() {
    this.folder = mkdtempSync(join(tmpdir(), 'holdfast-cli-'))
    mkdirSync(this.path('bin'))
    this.makeExecutable(this.write('bin/holdfast', `#!/bin/sh\nexec '${process.execPath}' '${MAIN}' "$@"\n`))
  }

  get url(): string {
    return `sqlite:${this.path('locks.db')}`
  }

  get env(): NodeJS.ProcessEnv {
    const { NO_COLOR: _n, HOLDFAST_DEBUG: _d, XDG_STATE_HOME: _x, PATH = '', ...env } = process.env
    return { ...env, HOME: this.folder, HOLDFAST_URL: this.url, TERM: 'xterm', PATH: `${this.path('bin')}:${PATH}` }
  }

  path(name: string): string {
    return join(this.folder, name)
  }

  /** What a command of ours has written to a file of this world; empty if it has not. */
  read(name: string): string {
    return existsSync(this.path(name)) ? readFileSync(this.path(name), 'utf8') : ''
  }

  lines(name: string): string[] {
    return this.read(name).split('\n').slice(0, -1)
  }

  /** A process writes to the lock file and does not finish: until it does, by what this answers, no other can. */
  async writeWithoutEnd(): Promise<() => void> {
    const database = (await loadDriver()).open(this.path('locks.db'))
    await eventually('the file to be free for a moment', () => {
      try {
        database.exec('begin immediate')
        return true
      } catch {
        return false
      }
    })
    return () => {
      database.exec('rollback')
      database.close()
    }
  }

  write(name: string, text: string): string {
    writeFileSync(this.path(name), text)
    return this.path(name)
  }

  exists(name: string): boolean {
    return existsSync(this.path(name))
  }

  makeExecutable(path: string): void {
    chmodSync(path, 0o755)
  }

  /** Locks of this process in the lock file of this world. */
  async locks(options: LocksOptions = {}): Promise<Locks> {
    const locks = await connect(this.url, options)
    this.#locks.push(locks)
    return locks
  }

  /** `holdfast ...args`, running. */
  start(args: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
    return this.spawn(process.execPath, [MAIN, ...args], env)
  }

  /** `holdfast ...args`, to its end. */
  run(...args: string[]): Promise<Ended> {
    return this.start(args).ended
  }

  /** `holdfast ...args --json`, and what it said. */
  async json<Shape>(...args: string[]): Promise<Shape> {
    const { stdout, stderr } = await this.run(...args, '--json')
    if (stdout === '') throw new Error(`no JSON; it said: ${stderr}`)
    return JSON.parse(stdout) as Shape
  }

  /** What doctor finds there, by the names of its checks. */
  async doctor(url: string): Promise<ReadonlyMap<string, Check>> {
    const { checks } = await this.json<{ readonly checks: readonly Check[] }>('doctor', '--url', url)
    return new Map(checks.map((check) => [check.name, check]))
  }

  /**
   * A shell line on a terminal. What is written to its stdin is typed. `exec`, because script(1) has $SHELL run it, and
   * some of those stay beside it: Ctrl-C would end that shell, whatever becomes of the line.
   */
  onTerminal(line: string, env: NodeJS.ProcessEnv = {}): Running {
    return this.spawn('script', ['-qefc', `exec bash --norc -c '${line.replaceAll("'", "'\\''")}'`, '/dev/null'], env)
  }

  spawn(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): Running {
    const child = spawn(program, args, {
      cwd: this.folder,
      env: { ...this.env, ...env },
      detached: true,
      stdio: 'pipe',
    })
    const running = new Running(child)
    this.#started.push(running)
    return running
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const locks of this.#locks) await locks.close()
    for (const { process: child } of this.#started) {
      if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) continue
      child.kill('SIGCONT')
      child.kill('SIGKILL')
    }
    await Promise.all(this.#started.map(({ ended }) => ended))
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
  }
}

/** Look until `look` answers something, and answer that. `what` is said when it never does. */
export async function eventually<Answer>(
  what: string,
  look: () => Answer | undefined | false | Promise<Answer | undefined | false>,
): Promise<Answer> {
  const giveUpAt = performance.now() + LIMIT_MS
  for (;;) {
    const answer = await look()
    if (answer !== undefined && answer !== false) return answer
    if (performance.now() > giveUpAt) throw new Error(`never seen: ${what}`)
    await new Promise((resolve) => setTimeout(resolve, LOOK_EVERY_MS))
  }
}

/** Whether that process runs. A zombie does not: where pid 1 is slow to reap, the dead linger. */
export function isRunning(pid: number): boolean {
  if (!existsSync('/proc/self/stat')) return answers(pid)
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    return !/^[ZX]/.test(stat.slice(stat.lastIndexOf(')') + 2))
  } catch {
    return false
  }
}

function answers(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
