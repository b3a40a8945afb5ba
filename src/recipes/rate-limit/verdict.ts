/** What a draw has come to, in the words of users: whether it is allowed, what is left, when to come again. */
import type { EngineError } from '../../core/errors.ts'
import { delayUs, remainingOf, resetUs, retryAfterUs } from '../../core/rate.ts'
import type { ReadRateLimit } from './options.ts'

/** What is left of one limit. */
export interface LimitStatus {
  /** The name of the limit. */
  readonly name: string
  readonly key: string
  readonly limit: number
  readonly perMs: number
  readonly burst: number
  /** How many could be taken at once now. */
  readonly remaining: number
  /** When a refused take would be allowed, if no other came first. 0 if this limit has not refused it. */
  readonly retryAfterMs: number
  /** When all of the burst will be there again. */
  readonly resetMs: number
}

/** The answer to `take`. */
export interface RateVerdict {
  /** Whether it may go on. If not, nothing was taken. */
  readonly allowed: boolean
  /** How many more could be taken at once: of several limits, the fewest. */
  readonly remaining: number
  /** When to try again, rounded up: never too early, if no other takes meanwhile. 0 if it is allowed. */
  readonly retryAfterMs: number
  /** When all of the burst will be there again: of several limits, the last one. */
  readonly resetMs: number
  /** For how long its turn was ahead. With `wait`, that has passed. */
  readonly delayMs: number
  /** Each limit that was asked; in an outage none, unless this process counts by itself. */
  readonly limits: readonly LimitStatus[]
  /** Why the server could not be asked, if it could not: then `outage` has decided. */
  readonly outage?: EngineError
}

/** A key of a limit, and what is taken from it. */
export interface TakenPart {
  readonly limit: ReadRateLimit
  readonly key: string
  readonly cost: number
}

export function verdictOf(
  parts: readonly TakenPart[],
  { taken, debts }: { readonly taken: boolean; readonly debts: readonly number[] },
  bookUs: number,
): RateVerdict {
  const limits: LimitStatus[] = []
  let [remaining, retryAfterMs, resetMs, longestDelayUs] = [Number.POSITIVE_INFINITY, 0, 0, 0]
  for (let index = 0; index < parts.length; index += 1) {
    const part = parts[index] as TakenPart
    const debt = debts[index] as number
    const status = statusOf(part, debt, taken, bookUs)
    limits.push(status)
    remaining = Math.min(remaining, status.remaining)
    retryAfterMs = Math.max(retryAfterMs, status.retryAfterMs)
    resetMs = Math.max(resetMs, status.resetMs)
    if (taken) longestDelayUs = Math.max(longestDelayUs, delayUs(part.limit.rate, debt))
  }
  // Alone of these times, the delay is not rounded up: at a high rate a millisecond has many turns, and callers that
  // wait for theirs would all go on at its end.
  return { allowed: taken, remaining, retryAfterMs, resetMs, delayMs: longestDelayUs / 1000, limits }
}

function statusOf({ limit, key, cost }: TakenPart, debt: number, taken: boolean, bookUs: number): LimitStatus {
  const { name, perMs, burst, rate } = limit
  return {
    name,
    key,
    limit: limit.limit,
    perMs,
    burst,
    remaining: remainingOf(rate, debt),
    retryAfterMs: taken ? 0 : inMs(retryAfterUs(rate, debt, cost, bookUs)),
    resetMs: inMs(resetUs(rate, debt)),
  }
}

/** Up: a moment too early would be refused. */
function inMs(us: number): number {
  return Math.ceil(us / 1000)
}
