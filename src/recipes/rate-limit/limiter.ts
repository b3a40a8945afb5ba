/** `rateLimit(locks, …)`: one limit, and what can be asked of it. How a `take` goes is in take.ts. */
import { checkKey } from '../../core/keys.ts'
import { showAs } from '../../core/show.ts'
import type { Locks } from '../../locks.ts'
import { DrawStore } from '../../store/draws.ts'
import {
  checkTake,
  type RateLimitOptions,
  type ReadRateLimit,
  readRateLimitOptions,
  readTakeOptions,
  type TakeOptions,
} from './options.ts'
import { LocalStates } from './outage.ts'
import { type RatePart, takeParts } from './take.ts'
import { type RateVerdict, verdictOf } from './verdict.ts'

const NO_OPTIONS: TakeOptions = {}

/** A limit on how often something happens, in all processes together. */
export interface RateLimit {
  readonly name: string
  /** Take from what `key` may do: one call to the server. If it is refused, nothing is taken. */
  take(key: string, options?: TakeOptions): Promise<RateVerdict>
  /** A key of this limit, for `takeAll`. With `cost`: that many from this limit, whatever `takeAll` says. */
  of(key: string, cost?: number): LimitedKey
  /** What is left, without taking anything. `allowed`: whether one could be taken now. */
  peek(key: string): Promise<RateVerdict>
  /** Forget what was taken: all of the burst is there again. Callers that wait for their turn still wait. */
  reset(key: string): Promise<void>
}

/** A key of one limit. */
export interface LimitedKey {
  readonly name: string
  readonly key: string
}

/** What the keys of the records of a key begin with. The name of the limit follows. */
export function recordPrefixOf(key: string): string {
  return `rate:${key}@`
}

class KeyOfLimit implements LimitedKey {
  readonly limiter: RateLimiter
  readonly key: string
  readonly cost: number | undefined

  constructor(limiter: RateLimiter, key: string, cost: number | undefined) {
    this.limiter = limiter
    this.key = key
    this.cost = cost
  }

  get name(): string {
    return this.limiter.name
  }
}

export class RateLimiter implements RateLimit {
  readonly #limit: ReadRateLimit
  readonly #draws: DrawStore
  readonly #local = new LocalStates()

  static {
    showAs('RateLimit', RateLimiter)
  }

  constructor(locks: Locks, options: RateLimitOptions) {
    this.#limit = readRateLimitOptions(options)
    this.#draws = new DrawStore('rateLimit', options.store ?? locks)
  }

  get name(): string {
    return this.#limit.name
  }

  take(key: string, options: TakeOptions = NO_OPTIONS): Promise<RateVerdict> {
    return takeParts('take()', options, (cost, waitMs) => [this.part(key, cost, waitMs)])
  }

  of(key: string, cost?: number): LimitedKey {
    if (cost !== undefined) readTakeOptions('of()', { cost })
    return new KeyOfLimit(this, key, cost)
  }

  async peek(key: string): Promise<RateVerdict> {
    const { recordKey, limit } = this.part(key, 1, 0)
    const { debts } = await this.#draws.draw({ parts: [{ key: recordKey, rate: limit.rate, cost: 0 }], bookUs: 0 })
    const verdict = verdictOf([{ limit, key, cost: 1 }], { taken: false, debts }, 0)
    return { ...verdict, allowed: verdict.retryAfterMs === 0 }
  }

  async reset(key: string): Promise<void> {
    await this.#draws.forget(this.part(key, 1, 0).recordKey)
  }

  /**
   * What is taken from a key. Throws for what cannot be.
   * @internal
   */
  part(key: string, cost: number, waitMs: number): RatePart {
    checkKey(key)
    checkTake(this.#limit, cost, waitMs)
    const recordKey = recordPrefixOf(key) + this.#limit.name
    checkKey(recordKey)
    return { limit: this.#limit, key, cost, recordKey, draws: this.#draws, local: this.#local }
  }

  toJSON(): object {
    const { name, limit, perMs, burst } = this.#limit
    return { name, limit, perMs, burst, engine: this.#draws.keeper.engine.name }
  }
}

/**
 * Take from several limits, from all of them or from none, in one step. The limits are on the same locks (or the same
 * `store`). `cost` is taken from each.
 */
export function takeAll(limits: readonly LimitedKey[], options: TakeOptions = NO_OPTIONS): Promise<RateVerdict> {
  return takeParts('takeAll()', options, (cost, waitMs) => partsOf(limits, cost, waitMs))
}

function partsOf(limits: readonly LimitedKey[], cost: number, waitMs: number): readonly [RatePart, ...RatePart[]] {
  const parts = new Map<string, RatePart>()
  for (const limit of limits) {
    if (!(limit instanceof KeyOfLimit)) throw new TypeError('takeAll takes keys of limits, like api.of(user)')
    const part = limit.limiter.part(limit.key, limit.cost ?? cost, waitMs)
    // The same key twice is taken from twice.
    const same = parts.get(part.recordKey)
    if (same !== undefined && same.limit !== part.limit)
      throw new TypeError(`two limits of takeAll are called '${limit.name}': give them different names`)
    const both = same === undefined ? part : limit.limiter.part(limit.key, same.cost + part.cost, waitMs)
    parts.set(part.recordKey, both)
  }
  const [first, ...others] = parts.values()
  if (first === undefined) throw new TypeError('takeAll takes at least one key of a limit')
  if (others.some(({ draws }) => draws.keeper !== first.draws.keeper))
    throw new TypeError('takeAll takes limits that are on the same locks: only those are drawn from in one step')
  return [first, ...others]
}
