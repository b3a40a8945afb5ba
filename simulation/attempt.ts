/**
 * One attempt of a worker to get a lease: for which keys, and for how long it waits. It is drawn, and written into the
 * history together with how it ended.
 */
import { UNLIMITED } from '../src/core/engine.ts'
import { AcquireTimeoutError, EngineError, LeaseLostError } from '../src/core/errors.ts'
import type { WeightedAcquireOptions } from '../src/core/lock.ts'
import type { Attempt, Stay } from './history.ts'
import type { Share } from './holder.ts'
import type { SimulatedProcess } from './process.ts'
import type { World } from './world.ts'

/** The reason of every cancellation: the caller must get exactly this back. */
const CANCELLED = Symbol('cancelled')

/** What most attempts for a key agree on, in turn: that it is a mutex, a read-write lock, a semaphore. */
const USUAL_LIMITS: readonly (readonly number[])[] = [[1], [1, UNLIMITED, UNLIMITED], [3]]

/** A key, and how much of it; now and then something that disagrees with the others about the limit. */
export function drawShare(world: World, key: string = world.random.pick(world.keys)): Share {
  const { random, keys, conditions } = world
  const usual = USUAL_LIMITS[keys.indexOf(key) % USUAL_LIMITS.length] as readonly number[]
  const limit = random.happens(0.12) ? random.pick([1, 2, 3, UNLIMITED]) : random.pick(usual)
  const weight = limit > 1 && limit < UNLIMITED ? random.whole(1, limit) : 1
  const ttlMs = random.happens(0.3) ? conditions.longTtlMs : conditions.ttlMs
  const limited = conditions.maxHolds && random.happens(0.5)
  return { key, limit, weight, ttlMs, maxHoldMs: limited ? random.between(0.1, 2) * ttlMs : Number.POSITIVE_INFINITY }
}

export function drawWaitMs(world: World): number {
  const { random, conditions } = world
  return random.happens(0.6) ? Number.POSITIVE_INFINITY : random.between(0, 2) * conditions.ttlMs
}

/** What makes one entry, at once. */
const ONE_ENTRY: ReadonlySet<string> = new Set(['acquire', 'try', 'using', 'nested using', 'lead'])

export class SimulatedAttempt {
  readonly #world: World
  readonly #process: SimulatedProcess
  readonly #shares: readonly Share[]
  readonly #record: Attempt

  constructor(world: World, process: SimulatedProcess, what: string, shares: readonly Share[], waitMs: number) {
    this.#world = world
    this.#process = process
    this.#shares = shares
    const keys = shares.map(({ key }) => key)
    this.#record = {
      process: process.number,
      what,
      keys,
      // The core makes the id when it is asked, which is right after this.
      id: ONE_ENTRY.has(what) ? process.nextId : undefined,
      ttlMs: Math.min(...shares.map(({ ttlMs }) => ttlMs)),
      at: world.now,
      waitMs,
      settledAt: undefined,
      outcome: undefined,
      error: undefined,
    }
    world.history.attempts.push(this.#record)
    if (world.logging)
      world.log(
        process.name,
        `asks: ${this.#named()}${waitMs === Number.POSITIVE_INFINITY ? '' : `, waits ${waitMs.toFixed(1)} ms`}`,
      )
  }

  get settled(): boolean {
    return this.#record.outcome !== undefined
  }

  /** How to say it to a lock. Some carry a signal, which aborts at some moment, granted or not. */
  options(): WeightedAcquireOptions {
    const { waitMs } = this.#record
    const { random, conditions } = this.#world
    const [first] = this.#shares
    const options: { wait?: number; signal?: AbortSignal; weight?: number; maxHold?: number } = {}
    if (first !== undefined && first.maxHoldMs < Number.POSITIVE_INFINITY) options.maxHold = first.maxHoldMs
    if (waitMs < Number.POSITIVE_INFINITY) options.wait = waitMs
    if (this.#shares.length === 1 && first !== undefined && first.weight > 1) options.weight = first.weight
    if (random.happens(0.25)) {
      const controller = new AbortController()
      options.signal = controller.signal
      this.#process.schedule(random.between(0, 1.5 * conditions.ttlMs), 'work', () => controller.abort(CANCELLED))
    }
    return options
  }

  ends(outcome: NonNullable<Attempt['outcome']>, error?: unknown): void {
    if (this.settled) return
    this.#record.outcome = outcome
    this.#record.settledAt = this.#world.now
    this.#record.error = error
    if ((outcome === 'timeout' || outcome === 'cancelled') && this.#raced()) this.#world.coverage.racedCancels += 1
    if (this.#world.logging)
      this.#world.log(
        this.#process.name,
        `${this.#named()}: ${outcome}${error instanceof Error ? ` (${error.message})` : ''}`,
      )
  }

  /** It ended with this error. False: an attempt must not end with such an error. */
  endsWith(error: unknown): boolean {
    const outcome = outcomeOf(error)
    if (outcome !== undefined) this.ends(outcome, error)
    return outcome !== undefined
  }

  /** The server holds something for this process that no program of it has heard of. */
  #raced(): boolean {
    const { witness, history } = this.#world
    const { number } = this.#process
    const isNews = ({ process, token, grantedAt }: Stay): boolean =>
      process === number &&
      grantedAt !== undefined &&
      !history.holdings.some((holding) => holding.process === number && holding.token === token)
    return this.#shares.some(({ key }) => witness.stays(key).some(isNews))
  }

  #named(): string {
    const parts = this.#shares.map(
      ({ key, weight, limit }) => `${key} ${weight}/${limit === UNLIMITED ? 'unlimited' : limit}`,
    )
    return `${this.#record.what} of ${parts.join(' + ')}`
  }
}

export function outcomeOf(error: unknown): Attempt['outcome'] {
  if (error === CANCELLED) return 'cancelled'
  if (error instanceof AcquireTimeoutError) return 'timeout'
  if (error instanceof EngineError) return 'refused'
  return error instanceof LeaseLostError ? 'lost' : undefined
}
