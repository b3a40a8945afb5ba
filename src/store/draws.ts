/**
 * Draws from rate limits, for recipes: by `take` where the store has it, and by `get` and `put` elsewhere
 * (rate-swaps.ts). Repeats what certainly did not happen, for a moment.
 */
import { EngineError } from '../core/errors.ts'
import { pauseAwaited } from '../core/keep-alive.ts'
import type { Keeper } from '../core/keeper.ts'
import { givenBack, type RateState, rateText, readRate } from '../core/rate.ts'
import type { StoredSummary } from '../core/store.ts'
import type { StoreRequests, Taken } from '../core/store-requests.ts'
import { type Draw, type DrawPart, notARate } from '../core/store-take.ts'
import type { Locks } from '../locks.ts'
import { RateSwaps } from './rate-swaps.ts'
import { RecordStore } from './record-store.ts'
import type { Serializer } from './serializer.ts'

/** A transaction that the server has refused is asked again for so long. An outage is not waited for. */
const REPEAT_MS = 100
const PAUSE_MS = 5

/** What is no state of a rate limit is undefined. */
const rateSerializer: Serializer = {
  encode: (state) => Buffer.from(rateText(state as RateState)),
  decode: (bytes) => readRate(Buffer.from(bytes).toString()),
}

export class DrawStore {
  readonly #keeper: Keeper
  readonly #requests: StoreRequests
  readonly #records: RecordStore<RateState | undefined>
  readonly #swaps: RateSwaps

  /** `recipe`: its name, for error messages. Throws `UnsupportedError` where the engine has no store. */
  constructor(recipe: string, locks: Locks) {
    this.#records = new RecordStore(recipe, locks, { serialize: rateSerializer })
    this.#keeper = locks.keeper
    this.#requests = locks.keeper.store as StoreRequests
    this.#swaps = new RateSwaps(this.#records, this.#keeper)
  }

  /** What is asked of the same keeper goes out together, and can be drawn from in one step. */
  get keeper(): Keeper {
    return this.#keeper
  }

  async draw(draw: Draw): Promise<Taken> {
    if (this.#requests.store.take === undefined) return await this.#swaps.draw(draw)
    const { clock } = this.#keeper
    const giveUpAt = clock.now() + REPEAT_MS
    try {
      return await this.#requests.take(draw)
    } catch (error) {
      return await this.#drawAgain(draw, error, giveUpAt)
    }
  }

  async #drawAgain(draw: Draw, failure: unknown, giveUpAt: number): Promise<Taken> {
    const { clock, chance } = this.#keeper
    for (let error = failure; ; ) {
      if (!(error instanceof EngineError) || !error.transient || error.outcome !== 'not-applied') throw error
      if (clock.now() + PAUSE_MS >= giveUpAt) throw error
      await pauseAwaited(clock, PAUSE_MS * (0.5 + chance.fraction()))
      try {
        return await this.#requests.take(draw)
      } catch (again) {
        error = again
      }
    }
  }

  /**
   * Give back what `own` has taken from one key, if no other draw came since. Resolves with whether it was given back.
   */
  async giveBack({ key, cost }: DrawPart, own: RateState): Promise<boolean> {
    const { value, version } = await this.#records.get(key)
    const less = value === undefined ? undefined : givenBack(value, own, cost)
    if (less === undefined) return false
    const ttlMs = Math.ceil((less.debt / less.rate.stepUnits) * (less.rate.stepUs / 1000)) + 1
    const put = await this.#records.put(key, less, { version, ttlMs })
    return put.state === 'stored'
  }

  /** What is stored under that key: undefined if nothing is. */
  async look(key: string): Promise<RateState | undefined> {
    const { exists, value } = await this.#records.get(key)
    if (exists && value === undefined) throw notARate(this.#keeper.engine.name, key)
    return value
  }

  /** As if nothing had been taken from that key. */
  async forget(key: string): Promise<void> {
    await this.#records.remove(key)
  }

  list(prefix: string): AsyncIterable<StoredSummary> {
    return this.#records.list(prefix)
  }
}
