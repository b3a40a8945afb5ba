/**
 * A test's end of an actor: start a process, ask it to do things, and do things to it that processes do not survive, or
 * only notice later.
 */
import { type ChildProcess, fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import type { ActorModule } from '../world.ts'
import type { Answer, Arguments, CommandName, FromActor, Question } from './protocol.ts'

export interface ActorOptions {
  /** The ttl of its locks, unless a lock names one. */
  readonly ttlMs: number
  readonly holder: string
}

/** Told of everything that goes unhandled in a process. */
export type OnUnhandled = (message: string) => void

/** A refusal of an actor to do what it was asked, with the name of the error class over there. */
export class ActorError extends Error {
  readonly kind: string

  constructor(kind: string, message: string) {
    super(`${kind}: ${message}`)
    this.name = 'ActorError'
    this.kind = kind
  }
}

/** After these a process is not what it was. */
const SPOILING: readonly CommandName[] = ['jump', 'attend', 'cut']

interface Pending {
  readonly resolve: (value: unknown) => void
  readonly reject: (error: Error) => void
}

export class Actor {
  readonly #process: ChildProcess
  readonly #module: ActorModule
  readonly #pending = new Map<number, Pending>()
  readonly #exited: Promise<unknown>
  #questions = 0
  #spoiled = false
  #complaints = ''
  #guard: ChildProcess | undefined

  private constructor(process: ChildProcess, module: ActorModule, onUnhandled: OnUnhandled) {
    this.#process = process
    this.#module = module
    this.#exited = once(process, 'exit').then(([code, signal]) => this.#ended(`ended (${signal ?? code})`))
    process.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#complaints += text
    })
    process.on('error', (error) => this.#ended(error.message))
    process.on('message', (message) => this.#heard(message as FromActor, onUnhandled))
  }

  /** Start a process. */
  static start(module: ActorModule, onUnhandled: OnUnhandled): Actor {
    const process = fork(compiled('actor'), {
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    return new Actor(process, module, onUnhandled)
  }

  /** Whether it can act again: nothing was done to it that lasts, and it is not busy. */
  get reusable(): boolean {
    return !this.#spoiled && this.#pending.size === 0
  }

  /** Give it an engine and locks of its own. */
  async open({ ttlMs, holder }: ActorOptions): Promise<void> {
    const { module, export: name, options } = this.#module
    await this.ask('open', { engine: { module, export: name, options }, ttlMs, holder })
  }

  /** Have it do something. Rejects with an `ActorError` if it cannot, and if the process ends before it answers. */
  ask<Name extends CommandName>(name: Name, args: Arguments<Name>): Promise<Awaited<Answer<Name>>> {
    if (SPOILING.includes(name)) this.#spoiled = true
    const number = ++this.#questions
    const question: Question = { number, name, args }
    const answer = new Promise<unknown>((resolve, reject) => {
      this.#pending.set(number, { resolve, reject })
      this.#process.send(question, (error) => {
        if (error) this.#settle(number)?.reject(error)
      })
    })
    // A question may be asked only to be cut short by a kill; a caller that awaits it still sees the rejection.
    answer.catch(() => {})
    return answer as Promise<Awaited<Answer<Name>>>
  }

  /** SIGKILL: no handler runs, nothing is given back. */
  async kill(): Promise<void> {
    this.#spoiled = true
    this.#process.kill('SIGKILL')
    this.#guard?.kill()
    await this.#exited
  }

  /**
   * SIGSTOP: it stands still and does not know it. A guard ends it if the test dies meanwhile: a stopped process cannot
   * do so itself.
   */
  stop(): void {
    this.#spoiled = true
    const { pid } = this.#process
    this.#guard = spawn('sh', ['-c', `read gone; kill -KILL ${pid}`], { stdio: ['pipe', 'ignore', 'ignore'] })
    signal(this.#process, 'SIGSTOP')
  }

  /** SIGCONT. */
  continue(): void {
    if (this.#guard !== undefined) signal(this.#guard, 'SIGKILL')
    this.#guard = undefined
    signal(this.#process, 'SIGCONT')
  }

  /** Cut it off from the server: in the network, where the world can, or else inside the process. */
  async cut(): Promise<void> {
    this.#spoiled = true
    if (this.#module.cut !== undefined) await this.#module.cut()
    else await this.ask('cut', {})
  }

  /** Break its connections to the server, and refuse new ones. False: the world cannot do that. */
  async refuse(): Promise<boolean> {
    if (this.#module.refuse === undefined) return false
    this.#spoiled = true
    await this.#module.refuse()
    return true
  }

  async heal(): Promise<void> {
    if (this.#module.heal !== undefined) await this.#module.heal()
    else await this.ask('heal', {})
  }

  #heard(message: FromActor, onUnhandled: OnUnhandled): void {
    if (message.type === 'unhandled') onUnhandled(message.message)
    else if (message.type === 'answer') this.#settle(message.number)?.resolve(message.value)
    else if (message.type === 'refusal')
      this.#settle(message.number)?.reject(new ActorError(message.name, message.message))
  }

  #settle(number: number): Pending | undefined {
    const pending = this.#pending.get(number)
    this.#pending.delete(number)
    return pending
  }

  #ended(how: string): void {
    const error = new Error(`the actor ${how}${this.#complaints === '' ? '' : `\n${this.#complaints}`}`)
    for (const { reject } of this.#pending.values()) reject(error)
    this.#pending.clear()
  }
}

/** By its number: `kill` of Deno first closes what connects us to the child. */
function signal({ pid }: ChildProcess, name: NodeJS.Signals): void {
  if (pid !== undefined) process.kill(pid, name)
}

/** A compiled script of this folder: beside us in the package; in the source tree, where `npm run build` puts it. */
export function compiled(name: 'actor' | 'program'): string {
  const path = import.meta.url.endsWith('.ts') ? `../../dist/conformance/actor/${name}.js` : `./${name}.js`
  const script = fileURLToPath(new URL(path, import.meta.url))
  if (existsSync(script)) return script
  throw new Error(`${script} is missing: actors run compiled code, so run \`npm run build\` first`)
}
