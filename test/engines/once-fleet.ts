/**
 * Eight processes, each with twenty callers of one key, while some are killed and some are stopped for longer than the
 * ttl, in the middle of the work: what the tests of `once` on every engine have in common.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { expect } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { builtModule } from '../built.ts'

const PROCESSES = 8
const CALLERS = 20
const TTL_MS = 800
const ROUNDS = Number(process.env.HOLDFAST_ROUNDS ?? 2)
const SEED = Number(process.env.HOLDFAST_SEED ?? Date.now() % 1_000_000)
/** A process that is killed at no gate is killed before this: by then, all of them have asked. */
const LATEST_STRIKE_MS = 60
/** How often it is looked whether another process has taken over. */
const TAKE_OVER_LOOK_MS = 50
/** How long that is waited for, in ttls. Where the file is locked by the process that stands still, none can. */
const LONGEST_STOP = 5
export const LIMIT_MS: number = 60_000 + 20_000 * ROUNDS

interface Execution {
  readonly id: string
  readonly number: number
}

interface Shop {
  setup(): Promise<unknown>
  orders(name: string): Promise<readonly { readonly attempt: string; readonly number: number }[]>
  close(): Promise<void>
}

type Kind = 'sqlite' | 'postgres' | 'mysql' | 'provider'

type Fault = 'kill' | 'stop'

export interface FleetOptions {
  readonly ttlMs?: number
  /** What is done to processes: both unless given. */
  readonly faults?: readonly Fault[]
  readonly rounds?: number
}

type Said =
  | { readonly ready: true }
  | ({ readonly gate: string; readonly at: string; readonly key: string } & Execution)
  | { readonly answered: string; readonly values: readonly string[] }
  | { readonly failed: string }

/** The processes, and what is done to them. */
class OnceFleet implements AsyncDisposable {
  readonly #args: readonly string[]
  readonly #ttlMs: number
  readonly #chance = dice(SEED)
  readonly #children = new Set<ChildProcess>()
  readonly #stopped = new Set<ChildProcess>()
  readonly #timers = new Set<NodeJS.Timeout>()
  readonly #kinds: readonly Fault[]
  /** A process that was stopped stays so until another one has begun to do its work, if one can. */
  readonly #awaitsTakeOver: boolean
  /** The executions of the round, in the order in which they began. */
  executions: Execution[] = []
  faults: string[] = []
  #faultsLeft = 0
  #key = ''
  #waiting = new Map<ChildProcess, { resolve(values: readonly string[]): void; reject(error: Error): void }>()

  constructor(url: string, kind: Kind, { ttlMs = TTL_MS, faults = ['kill', 'stop'] }: FleetOptions = {}) {
    // They use what `npm run build` made.
    builtModule('src/index.ts')
    this.#ttlMs = ttlMs
    this.#kinds = faults
    this.#awaitsTakeOver = kind === 'provider'
    this.#args = [url, String(ttlMs), kind, String(CALLERS)]
  }

  async start(): Promise<void> {
    await Promise.all(Array.from({ length: PROCESSES }, () => this.#spawn()))
  }

  async #spawn(): Promise<ChildProcess> {
    const child = fork('test/engines/once.child.mjs', this.#args)
    this.#children.add(child)
    const ready = once(child, 'message')
    await ready
    child.on('message', (said: Said) => this.#hear(child, said))
    child.on('exit', (code, signal) => {
      if (this.#children.has(child)) this.#waiting.get(child)?.reject(new Error(`a worker ended (${code ?? signal})`))
    })
    return child
  }

  /** Ask all of them for `key`. Resolves with what they were given, when each that lives has answered. */
  async round(key: string): Promise<ReadonlySet<string>> {
    this.#key = key
    this.executions = []
    this.#faultsLeft = 1 + this.#chance.below(3)
    const answers = [...this.#children].map((child) => this.#ask(child))
    if (this.#chance.oneIn(2)) this.#strikeAtRandom()
    const values = new Set((await Promise.all(answers)).flat())
    this.#faultsLeft = 0
    return values
  }

  /** A process that is killed is followed by another one, which is asked for the same. */
  async #ask(child: ChildProcess): Promise<readonly string[]> {
    const answered = new Promise<readonly string[]>((resolve, reject) => {
      this.#waiting.set(child, { resolve, reject })
    })
    child.send({ key: this.#key })
    return answered
  }

  #hear(child: ChildProcess, said: Said): void {
    if ('failed' in said) this.#waiting.get(child)?.reject(new Error(`a worker failed: ${said.failed}`))
    if ('answered' in said && said.answered === this.#key) {
      this.#waiting.get(child)?.resolve(said.values)
      this.#waiting.delete(child)
    }
    if (!('gate' in said)) return
    const { at, id, number, gate } = said
    if (at === 'begun') this.executions.push({ id, number })
    // The first one to begin never gets through unhurt: without faults, this would show nothing.
    const strike = this.#faultsLeft > 0 && (at === 'worked' || this.#chance.oneIn(3))
    if (!strike) {
      child.send({ open: gate })
      return
    }
    this.#faultsLeft -= 1
    const how = this.#chance.pick(this.#kinds)
    this.faults.push(`${how} at '${at}'`)
    if (how === 'kill') this.#kill(child)
    else this.#stop(child, gate)
  }

  /** At no gate: while it enters, stores or leaves. */
  #strikeAtRandom(): void {
    const child = this.#chance.pick([...this.#children])
    const afterMs = this.#chance.below(LATEST_STRIKE_MS)
    this.#later(afterMs, () => {
      // One that has answered is left alone: the round would not wait for the process that follows it.
      if (!this.#waiting.has(child) || this.#stopped.has(child)) return
      this.faults.push(`kill after ${afterMs} ms`)
      this.#kill(child)
    })
  }

  #later(ms: number, work: () => void): void {
    const timer = setTimeout(() => {
      this.#timers.delete(timer)
      work()
    }, ms)
    this.#timers.add(timer)
  }

  #kill(child: ChildProcess): void {
    this.#children.delete(child)
    child.kill('SIGKILL')
    const waiting = this.#waiting.get(child)
    this.#waiting.delete(child)
    const follow = async (): Promise<readonly string[]> => this.#ask(await this.#spawn())
    follow().then(
      (values) => waiting?.resolve(values),
      (error: Error) => waiting?.reject(error),
    )
  }

  /** It finds the word to go on when it wakes. */
  #stop(child: ChildProcess, gate: string): void {
    child.kill('SIGSTOP')
    this.#stopped.add(child)
    child.send({ open: gate })
    const begun = this.executions.length
    const latest = performance.now() + LONGEST_STOP * this.#ttlMs
    const wake = (): void => {
      // A server may let it expire later than after its ttl: ZooKeeper does. In a shop it is not waited for: there, the
      // process that is stopped may have rows locked.
      if (this.#awaitsTakeOver && this.executions.length === begun && performance.now() < latest) {
        this.#later(TAKE_OVER_LOOK_MS, wake)
        return
      }
      this.#stopped.delete(child)
      child.kill('SIGCONT')
    }
    this.#later(this.#ttlMs * (1.2 + this.#chance.below(20) / 10), wake)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const timer of this.#timers) clearTimeout(timer)
    const children = [...this.#children]
    this.#children.clear()
    await Promise.all(
      children.map(async (child) => {
        const gone = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : undefined
        child.kill('SIGKILL')
        await gone
      }),
    )
  }
}

/** Every execution is of the same attempt, and has a number of its own. (Of one that died at once nothing is heard.) */
function checkExecutions(executions: readonly Execution[]): void {
  expect(new Set(executions.map(({ id }) => id)).size, 'ids of one request').toBe(1)
  const numbers = executions.map(({ number }) => number)
  expect(new Set(numbers).size, `numbers of executions: ${numbers.join()}`).toBe(numbers.length)
}

/** All callers of a key get one answer, and every further execution has the same attempt id and a higher number. */
export async function expectOneCharge(url: string, options: FleetOptions = {}): Promise<void> {
  const { rounds = ROUNDS } = options
  await using fleet = new OnceFleet(url, 'provider', options)
  await fleet.start()
  let executions = 0
  for (let round = 0; round < rounds; round += 1) {
    const values = await fleet.round(`key ${round}`)
    checkExecutions(fleet.executions)
    expect(values.size, `answers, with HOLDFAST_SEED=${SEED}`).toBe(1)
    executions += fleet.executions.length
  }
  expect(executions, `executions after ${fleet.faults.join(', ')}`).toBeGreaterThan(rounds)
}

/** With `commit`, there is one order for each key. */
export async function expectOneOrder(url: string, kind: Exclude<Kind, 'provider'>): Promise<void> {
  const { shops } = (await import('./once.shops.mjs' as string)) as {
    shops: Record<typeof kind, (url: string) => Promise<Shop>>
  }
  const shop = await shops[kind](url)
  const fleet = new OnceFleet(url, kind)
  try {
    await shop.setup()
    await fleet.start()
    for (let round = 0; round < ROUNDS; round += 1) {
      const key = `key ${round}`
      const values = await fleet.round(key)
      checkExecutions(fleet.executions)
      const [order, ...others] = await shop.orders(key)
      expect(others, `further orders, with HOLDFAST_SEED=${SEED}`).toEqual([])
      expect([...values], 'answers').toEqual([JSON.stringify({ order: key, number: order?.number })])
    }
    expect(fleet.faults.length, 'faults').toBeGreaterThanOrEqual(ROUNDS)
  } finally {
    // Before their server goes: they would complain, in this process as an unhandled error.
    await Promise.all([shop.close(), fleet[Symbol.asyncDispose]()])
  }
}
