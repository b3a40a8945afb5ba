/**
 * `holdfast/rate-limit`: how often something may happen, counted for all processes together.
 *
 *     const api = rateLimit(locks, { limit: 100, per: '1m', burst: 20 })
 *     const { allowed, retryAfterMs } = await api.take(user)
 *     await api.take(user, { wait: '2s' })                        // waits for its turn
 *     await takeAll([api.of(user), tenants.of(tenant)])           // all or nothing
 *
 * Read core/rate.ts for the rule, take.ts for the way of a call, limiter.ts for what users call.
 */
import type { Locks } from '../../locks.ts'
import { type RateLimit, RateLimiter } from './limiter.ts'
import type { RateLimitOptions } from './options.ts'

export { headers } from './headers.ts'
export { type LimitedKey, type RateLimit, takeAll } from './limiter.ts'
export type { RateLimitOptions, RateOptions, RateOutage, TakeOptions } from './options.ts'
export type { LimitStatus, RateVerdict } from './verdict.ts'

/** A limit on these locks. Throws `UnsupportedError` where the engine has no store, and names the option that helps. */
export function rateLimit(locks: Locks, options: RateLimitOptions): RateLimit {
  return new RateLimiter(locks, options)
}
