/**
 * The test's end of sqlite.child.mjs: real processes with an engine each, to be killed, stopped and moved into
 * namespaces.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { Claim, News, Standing } from '../../src/core/engine.ts'
import type { SqliteOptions } from '../../src/engines/sqlite/index.ts'

const CHILD = fileURLToPath(new URL('sqlite.child.mjs', import.meta.url))
const BUILT = fileURLToPath(new URL('../../dist/src/engines/sqlite/index.js', import.meta.url))

/** What the engine over there threw. */
export class ChildError extends Error {
  readonly kind: string
  readonly outcome: string | undefined
  readonly transient: boolean | undefined

  constructor({
    name,
    message,
    outcome,
    transient,
  }: { name: string; message: string; outcome?: string; transient?: boolean }) {
    super(message)
    this.kind = name
    this.outcome = outcome
    this.transient = transient
  }
}

/** News, and when it was heard on the host's monotonic clock, in nanoseconds. */
export interface Heard {
  readonly news: News
  readonly at: bigint
}

type Message = { number: number; result?: unknown; error?: { name: string; message: string } } | Heard

export class Child {
  readonly process: ChildProcess
  /** Its pid in its own namespace; the same as ours where it has none. */
  pid = 0
  readonly #waiting = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>()
  readonly #heard: Heard[] = []
  readonly #listeners: ((heard: Heard) => void)[] = []
  #number = 0

  constructor(wrapper: readonly string[], env: NodeJS.ProcessEnv) {
    if (!existsSync(BUILT)) throw new Error('these tests use what is built: npm run build')
    const [program, ...args] = [...wrapper, process.execPath, CHILD]
    this.process = spawn(program, args, {
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
      serialization: 'advanced',
      env: { ...process.env, ...env },
    })
    this.process.on('message', (message) => this.#message(message as Message))
    this.process.on('exit', (code, signal) => {
      for (const { reject } of this.#waiting.values()) reject(new Error(`the process ended (${code ?? signal})`))
    })
    this.process.on('error', () => {})
  }

  ask<Result>(verb: string, ...args: unknown[]): Promise<Result> {
    this.#number += 1
    const number = this.#number
    return new Promise<Result>((resolve, reject) => {
      this.#waiting.set(number, { resolve: resolve as (value: unknown) => void, reject })
      this.process.send({ number, verb, args }, (error) => error && reject(error))
    })
  }

  async open(options: SqliteOptions): Promise<void> {
    this.pid = await this.ask<number>('open', options)
  }

  async enter(claim: Claim): Promise<Standing> {
    const [standing] = await this.ask<Standing[]>('enter', [claim])
    return standing as Standing
  }

  /** The moment this process heard that its entry holds. Never, unless it does: give the test a limit. */
  async heardHeld(id: string): Promise<bigint> {
    const isIt = ({ news }: Heard): boolean => 'id' in news && news.id === id && news.standing?.state === 'held'
    const known = this.#heard.find(isIt)
    if (known !== undefined) return known.at
    return new Promise((resolve) => this.#listeners.push((heard) => isIt(heard) && resolve(heard.at)))
  }

  kill(signal: NodeJS.Signals): void {
    process.kill(this.process.pid as number, signal)
  }

  /** End it for good, and wait until it is reaped. */
  async end(): Promise<void> {
    if (this.process.exitCode !== null || this.process.signalCode !== null || this.process.pid === undefined) return
    const gone = once(this.process, 'exit')
    if (this.process.connected) this.process.disconnect()
    this.process.kill('SIGKILL')
    await gone
  }

  #message(message: Message): void {
    if ('news' in message) {
      this.#heard.push(message)
      for (const listener of this.#listeners) listener(message)
      return
    }
    const waiting = this.#waiting.get(message.number)
    this.#waiting.delete(message.number)
    if (message.error === undefined) waiting?.resolve(message.result)
    else waiting?.reject(new ChildError(message.error))
  }
}

/** The processes of one test, all ended after it. */
export class Children {
  readonly #children: Child[] = []

  async start(options: SqliteOptions, wrapper: readonly string[] = [], env: NodeJS.ProcessEnv = {}): Promise<Child> {
    const child = new Child(wrapper, env)
    this.#children.push(child)
    await child.open(options)
    return child
  }

  async end(): Promise<void> {
    await Promise.all(this.#children.splice(0).map((child) => child.end()))
  }
}

/** Why this program cannot be run here; undefined if it can. */
export function whyNot(program: string, ...args: string[]): string | undefined {
  try {
    execFileSync(program, args, { stdio: 'pipe' })
    return undefined
  } catch (error) {
    return `${[program, ...args].join(' ')} does not work here: ${(error as Error).message.split('\n').join(' ').trim()}`
  }
}

let ids = 0

export function claim(key: string, some: Partial<Claim> = {}): Claim {
  ids += 1
  const id = `${process.pid}`.padStart(16, '0') + `${ids}`.padStart(16, '0')
  return { key, id, holder: 'a test', weight: 1, limit: 1, ttlMs: 60_000, wait: true, ...some }
}
