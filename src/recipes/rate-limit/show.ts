/** The limits of a key, for people who ask what is left: by what is stored, without the program that has made it. */
import { delayUs, remainingOf, resetUs, retryAfterUs } from '../../core/rate.ts'
import type { DrawStore } from '../../store/draws.ts'
import { recordPrefixOf } from './limiter.ts'

/** A limit that has something to show: what was taken is not all drained. */
export interface ShownLimit {
  readonly name: string
  /** One more is allowed after each of these intervals: `per / limit`. */
  readonly everyMs: number
  readonly burst: number
  readonly remaining: number
  /** When one more would be allowed; 0: now. */
  readonly retryAfterMs: number
  readonly resetMs: number
  /** How far ahead turns are booked. */
  readonly bookedMs: number
}

export async function* limitsOf(draws: DrawStore, key: string): AsyncGenerator<ShownLimit, void, void> {
  const prefix = recordPrefixOf(key)
  for await (const { key: recordKey } of draws.list(prefix)) {
    const name = recordKey.slice(prefix.length)
    const state = await draws.look(recordKey)
    // The name of a limit has no @: this is one of another key, which begins like this one.
    if (state === undefined || name.includes('@')) continue
    const { rate } = state
    const { debts } = await draws.draw({ parts: [{ key: recordKey, rate, cost: 0 }], bookUs: 0 })
    const [debt = 0] = debts
    yield {
      name,
      everyMs: (rate.tokenUnits * rate.stepUs) / rate.stepUnits / 1000,
      burst: rate.capacity / rate.tokenUnits,
      remaining: remainingOf(rate, debt),
      retryAfterMs: Math.ceil(retryAfterUs(rate, debt, 1, 0) / 1000),
      resetMs: Math.ceil(resetUs(rate, debt) / 1000),
      bookedMs: Math.ceil(delayUs(rate, debt) / 1000),
    }
  }
}
