/**
 * The scene of one case: clients, actors, keys and claims that are its own, and that are cleared away when the case is
 * over, however it ended.
 */
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Claim, Engine, Line, Traits } from '../src/core/engine.ts'
import type { LocksOptions } from '../src/core/locks-options.ts'
import type { Store } from '../src/core/store.ts'
import { createLocks, type Locks } from '../src/locks.ts'
import type { ActorPool } from './actor/actor-pool.ts'
import type { Actor } from './actor/client.ts'
import { type Ended, type Program, runProgram } from './actor/run-program.ts'
import { type FaultyEngine, faulty } from './faulty.ts'
import type { UnhandledErrors } from './unhandled-errors.ts'
import type { Deployment, World } from './world.ts'

/** What all scenes of one run share. */
export interface Stage extends Deployment {
  /** How much more than usual to try: 1 is usual. */
  readonly rounds: number
  /** Where chance begins. */
  readonly seed: number
  readonly unhandled: UnhandledErrors
  readonly actorPool: ActorPool
  /** Begins every key of this run, so that a server that was used before does no harm. */
  readonly prefix: string
}

/** A client of the core whose way to the engine can fail. */
export interface FaultyClient {
  readonly engine: FaultyEngine
  readonly locks: Locks
}

/** Thrown by a case that finds out on the way that it does not apply. */
export class DoesNotApply extends Error {}

/** For what is asked now and awaited later: should the case fail in between, a rejection of it does not matter. */
export function later<Answer>(asked: Promise<Answer>): Promise<Answer> {
  asked.catch(() => {})
  return asked
}

/** Neither nothing nor false. */
type Something = object | string | number | bigint | true

const LONG_TTL_MS = 120_000
const SHORT_TTL_MS = 300
const FAIR_TTL_MS = 900
let keysMade = 0

export class Scene implements AsyncDisposable {
  readonly world: World
  readonly traits: Traits
  readonly rounds: number
  readonly seed: number
  /** For entries that are not meant to expire. */
  readonly longTtlMs: number
  /** For entries that are. */
  readonly shortTtlMs: number
  /**
   * For entries and leases that are meant to expire, but only after something else has happened: long enough for that
   * on a busy machine.
   */
  readonly fairTtlMs: number
  readonly #stage: Stage
  readonly #giveUpAfterMs: number
  readonly #engines: Engine[] = []
  readonly #faulty: FaultyEngine[] = []
  readonly #locks: Locks[] = []
  readonly #actors: Actor[] = []
  readonly #claims: Claim[] = []
  readonly #recordKeys: string[] = []

  /** `limitMs`: how long the case may take. */
  constructor(stage: Stage, limitMs: number) {
    // Less than the limit, so that the report says what never happened, and not only that it took too long.
    this.#giveUpAfterMs = 0.75 * limitMs
    this.#stage = stage
    this.world = stage.world
    this.traits = stage.traits
    this.rounds = stage.rounds
    this.seed = stage.seed
    this.longTtlMs = Math.min(stage.traits.maxTtlMs ?? LONG_TTL_MS, LONG_TTL_MS)
    this.shortTtlMs = Math.max(stage.traits.minTtlMs, SHORT_TTL_MS)
    this.fairTtlMs = Math.max(stage.traits.minTtlMs, FAIR_TTL_MS)
  }

  /** A key that no other case uses. */
  key(label = 'line'): string {
    keysMade += 1
    return `${this.#stage.prefix}${keysMade}:${label}`
  }

  /**
   * A claim of a mutex with a long ttl, unless told otherwise. Whatever becomes of it, it is left when the case is
   * over.
   */
  claim(key: string, more: Partial<Claim> = {}): Claim {
    const id = randomBytes(16).toString('hex')
    const claim = { key, id, holder: 'conformance', weight: 1, limit: 1, ttlMs: this.longTtlMs, wait: true, ...more }
    this.#claims.push(claim)
    return claim
  }

  /** A key whose record is removed when the case is over. */
  recordKey(label?: string): string {
    return this.recordKeyBelow(this.key(label ?? 'record'), '')
  }

  /** One that begins with another key. */
  recordKeyBelow(key: string, ending: string): string {
    this.#recordKeys.push(key + ending)
    return key + ending
  }

  /** A client, at the level of the contract, and its store. */
  async engineAndStore(): Promise<[Engine, Store]> {
    const engine = await this.engine()
    assert(engine.store !== undefined, 'every client has a store, or none has')
    return [engine, engine.store]
  }

  /** A client, at the level of the contract. */
  async engine(): Promise<Engine> {
    const engine = await this.world.engine()
    this.#engines.push(engine)
    return engine
  }

  /** A client, with the core on top. */
  async locks(options: LocksOptions = {}): Promise<Locks> {
    return this.#createLocks(await this.world.engine(), options)
  }

  /** A client with the core on top and a bad way to the server. */
  async faulty(options: LocksOptions = {}): Promise<FaultyClient> {
    const engine = faulty(await this.world.engine())
    this.#faulty.push(engine)
    return { engine, locks: this.#createLocks(engine, options) }
  }

  /** A client in a process of its own. */
  async actor(options: { readonly ttlMs?: number } = {}): Promise<Actor> {
    const holder = `actor ${this.#actors.length + 1}`
    const actor = await this.#stage.actorPool.take({ ttlMs: options.ttlMs ?? this.longTtlMs, holder })
    this.#actors.push(actor)
    return actor
  }

  /** Run a short program in a process of its own, to its end. */
  async program(how: Program['how'], key: string): Promise<Ended> {
    const seat = await this.world.actor?.()
    if (seat === undefined) throw new Error('a case that runs programs needs actors')
    const { module, export: name, options } = seat
    const engine = { module, export: name, options }
    return runProgram({ engine, key, ttlMs: this.fairTtlMs, how }, this.#giveUpAfterMs)
  }

  /** For what no trait tells: end the case as not applicable. */
  doesNotApply(reason: string): never {
    throw new DoesNotApply(reason)
  }

  /** Several at once. */
  async times<Made>(count: number, make: (index: number) => Promise<Made>): Promise<Made[]> {
    return Promise.all(Array.from({ length: count }, (_, index) => make(index)))
  }

  /** Ask again and again until `check` answers something true. For what the engine does in its own time. */
  async eventually<Found>(
    what: string,
    check: () => Promise<Found> | Found,
    giveUpAfterMs: number = this.#giveUpAfterMs,
  ): Promise<Found & Something> {
    const giveUpAt = performance.now() + giveUpAfterMs
    for (let pauseMs = 1; ; pauseMs = Math.min(pauseMs * 1.5, 50)) {
      const found = await check()
      if (found !== undefined && found !== null && found !== false) return found as Found & Something
      assert(performance.now() < giveUpAt, `never happened: ${what}`)
      await sleep(pauseMs)
    }
  }

  /**
   * For what must be seen within some time, to mean anything: do it again, from the beginning, until this machine was
   * fast enough. What fails when that time is over says nothing either; what fails within it does.
   */
  async promptly<Seen>(withinMs: number, look: () => Promise<Seen>): Promise<Seen> {
    let late: { readonly error: unknown } | undefined
    const lookInTime = async (): Promise<{ readonly seen: Seen } | false> => {
      const startedAt = performance.now()
      late = undefined
      const looked = await look().then(
        (seen) => ({ seen }),
        (error: unknown) => ({ error }),
      )
      const inTime = performance.now() - startedAt < withinMs
      if ('seen' in looked) return inTime && looked
      if (inTime || looked.error instanceof DoesNotApply) throw looked.error
      late = looked
      return false
    }
    try {
      return (await this.eventually(`a look that takes less than ${withinMs} ms`, lookInTime)).seen
    } catch (error) {
      if (late === undefined) throw error
      throw new Error(`${(error as Error).message}; the last one failed: ${String(late.error)}`, { cause: late.error })
    }
  }

  /** Until as many are in line. */
  async inLine(engine: Engine, key: string, count: number): Promise<Line> {
    return this.eventually(`${count} in the line of ${key}`, async () => {
      const line = await engine.inspect(key)
      return line.entries.length === count && line
    })
  }

  /** Until that entry is in no line. */
  async gone(engine: Engine, { key, id }: { readonly key: string; readonly id: string }): Promise<void> {
    await this.eventually(`${id} gone from ${key}`, async () =>
      (await engine.inspect(key)).entries.every((entry) => entry.id !== id),
    )
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const engine of this.#faulty) engine.heal()
    await Promise.all(this.#actors.map((actor) => this.#stage.actorPool.giveBack(actor)))
    await Promise.all(this.#locks.map((locks) => locks.close()))
    await this.#leaveAll()
    await this.#removeRecords()
    await Promise.all(this.#engines.map((engine) => engine[Symbol.asyncDispose]()))
  }

  async #leaveAll(): Promise<void> {
    const [engine] = this.#engines
    const { batchLimit } = this.traits
    for (let from = 0; engine !== undefined && from < this.#claims.length; from += batchLimit) {
      await engine.leave(this.#claims.slice(from, from + batchLimit))
    }
  }

  /** The lines are empty: then a removal leaves nothing behind. */
  async #removeRecords(): Promise<void> {
    const store = this.#engines.find((engine) => engine.store !== undefined)?.store
    const batchLimit = store?.traits.batchLimit ?? 0
    for (let from = 0; store !== undefined && from < this.#recordKeys.length; from += batchLimit) {
      const keys = this.#recordKeys.slice(from, from + batchLimit)
      await store.put(keys.map((key) => ({ key, value: null, ttlMs: null, when: {} })))
    }
  }

  #createLocks(engine: Engine, options: LocksOptions): Locks {
    const locks = createLocks(engine, { ttl: this.longTtlMs, ...options })
    this.#locks.push(locks)
    return locks
  }
}
