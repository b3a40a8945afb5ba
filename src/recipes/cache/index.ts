/**
 * `holdfast/cache`: values that are dear to make, made once for all processes.
 *
 *     const pages = cache(locks, { ttl: '5m', stale: '1h', early: true, negative: '5s' })
 *     const page = await pages.get(id, (fill) => render(id, { signal: fill.signal }))
 *     await pages.invalidate(id)                       // no older value is given from here on
 *
 * Read record.ts for what is stored and the rules about time, filler.ts for who fills, fill.ts for one fill, cache.ts
 * for what users call. flights.ts is the single flight of a process, local.ts its first level, values.ts a key-value
 * store of the user.
 */
import type { Locks } from '../../locks.ts'
import { FleetCache } from './cache.ts'
import type { Cache, CacheOptions } from './options.ts'

export { CachedFailureError } from '../../core/errors.ts'
export type { Serializer } from '../../store/serializer.ts'
export type { Cache, CacheFill, CacheGetOptions, CacheOptions, Fill, LocalOptions } from './options.ts'
export { ioredisValues, mapValues, type RedisValuesClient, type ValueStore } from './values.ts'

/** A cache on these locks. Throws `UnsupportedError` where the engine has no store, and names the option that helps. */
export function cache(locks: Locks, options: CacheOptions): Cache {
  return new FleetCache(locks, options)
}
