/** What users give to `cache()` and to `get()`, read and checked. */
import { type Duration, parseDuration } from '../../core/duration.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import type { Serializer } from '../../store/serializer.ts'
import type { ValueStore } from './values.ts'

/** The first level: values in the memory of this process. */
export interface LocalOptions {
  /** How many values; those that were not asked for longest go first. */
  readonly max: number
  /**
   * How long one is served without asking the store. What another process invalidates is served for as long, at most.
   */
  readonly ttl: Duration
}

/** Options of `cache()`. */
export interface CacheOptions {
  /** What these values are called in keys: `cache` unless given. Two of the same name have the same values. */
  readonly name?: string
  /** How long a value is fresh, at most: `jitter` makes it a little less. Counted from when it was stored. */
  readonly ttl: Duration
  /** How long after that it is served while one caller of all makes a new one: 0 unless given. */
  readonly stale?: Duration
  /**
   * Make a new value before the old one is stale, by chance: the sooner, the longer it takes to make one (XFetch).
   * `true` is 1; a higher number is earlier. Off unless given.
   */
  readonly early?: boolean | number
  /** How long a failure of the fill is remembered, for all processes: 1 s unless given. 0: it is not. */
  readonly negative?: Duration
  /** How long to wait for a new value where there is a stale one: 0 unless given. Then the stale one is served. */
  readonly softWait?: Duration
  /** By how much ttls differ, so that what was stored together does not end together: 0.1 (a tenth) unless given. */
  readonly jitter?: number
  /** A first level in the memory of this process. None unless given. */
  readonly local?: LocalOptions
  /**
   * When the store cannot be asked. `fail` (unless given): `get` rejects with its error. `fill`: this process makes the
   * value by itself, once for all of its callers, and nothing is stored.
   */
  readonly outage?: 'fail' | 'fill'
  /** How long a filler lives without renewal: after a crash, others wait this long. That of the locks. */
  readonly leaseTtl?: Duration
  /** Where the records are, if the engine of the locks has no store: locks on another engine. */
  readonly store?: Locks
  /** A key-value store of yours for the values themselves, which may then be of any size. */
  readonly values?: ValueStore
  /** How values become bytes. JSON unless given. */
  readonly serialize?: Serializer
}

/** Options of one `get()`. */
export interface CacheGetOptions {
  /** For the value that this call makes, instead of `ttl` of `cache()`. */
  readonly ttl?: Duration
  /** For the value that this call makes, instead of `stale` of `cache()`. */
  readonly stale?: Duration
  /** Instead of `softWait` of `cache()`. */
  readonly softWait?: Duration
  /** Ends the waiting of this call, not the fill. The get rejects with the signal's own reason. */
  readonly signal?: AbortSignal
}

/** What a fill is given. */
export interface Fill {
  /** As it was given to `get()`. */
  readonly key: string
  /**
   * Aborts when this process cannot be sure to be the only one that fills any more, or the locks are closed. Not when
   * the caller is cancelled: others may wait for the value.
   */
  readonly signal: AbortSignal
  /** How long this value is fresh, if only the value tells: a token that says when it ends, for example. */
  ttl(ttl: Duration): void
}

/** Makes the value. It is called by one caller of all processes at a time, for each key. */
export type CacheFill<Value> = (fill: Fill) => Promise<Value> | Value

/** Values that are made once for all processes. */
export interface Cache {
  readonly name: string
  /**
   * The value of `key`; made by `fill` if there is none. Callers that come meanwhile, in any process, are given the
   * same. Rejects with what the fill threw, or with a `CachedFailureError` if that was in another call. It is given as
   * it was stored: with JSON, a `Date` is a string, whatever its type says.
   */
  get<Value>(key: string, fill: CacheFill<Value>): Promise<Value>
  get<Value>(key: string, options: CacheGetOptions, fill: CacheFill<Value>): Promise<Value>
  /**
   * Forget the value. Once this has resolved, no call of `get` that begins gives a value from before, in any process:
   * also not from a fill that was under way. (From the first level of another process: for its `local.ttl`.)
   */
  invalidate(key: string): Promise<void>
}

const CACHE_OPTIONS: OptionNames<CacheOptions> = {
  name: true,
  ttl: true,
  stale: true,
  early: true,
  negative: true,
  softWait: true,
  jitter: true,
  local: true,
  outage: true,
  leaseTtl: true,
  store: true,
  values: true,
  serialize: true,
}
const GET_OPTIONS: OptionNames<CacheGetOptions> = { ttl: true, stale: true, softWait: true, signal: true }
const LOCAL_OPTIONS: OptionNames<LocalOptions> = { max: true, ttl: true }

const DEFAULT_NEGATIVE = '1s'
const DEFAULT_JITTER = 0.1
const LONGEST_MS = 366 * 24 * 3_600_000
const MOST_LOCAL = 10_000_000

/** How long a value lives. */
export interface Lifetime {
  readonly ttlMs: number
  readonly staleMs: number
}

export interface ReadCache extends Lifetime {
  readonly name: string
  readonly early: number
  readonly negativeMs: number
  readonly softWaitMs: number
  readonly jitter: number
  readonly local: { readonly max: number; readonly ttlMs: number } | undefined
  readonly outage: 'fail' | 'fill'
}

/** Throws a `TypeError` or a `RangeError` for what cannot be meant. */
export function readCacheOptions(options: CacheOptions): ReadCache {
  checkOptions('cache()', options, CACHE_OPTIONS)
  const { name = 'cache', early = false, jitter = DEFAULT_JITTER, outage = 'fail', local } = options
  if (typeof name !== 'string' || name === '') throw new TypeError('name must be a string that is not empty')
  if (outage !== 'fail' && outage !== 'fill')
    throw new TypeError(`outage must be 'fail' or 'fill'; got '${String(outage)}'`)
  const beta = typeof early === 'boolean' ? Number(early) : early
  if (!(beta >= 0 && beta <= 100)) throw new RangeError(`early must be true or a number from 0 to 100; got ${beta}`)
  if (!(jitter >= 0 && jitter < 1)) throw new RangeError(`jitter must be from 0 up to, not including, 1; got ${jitter}`)
  return {
    name,
    ttlMs: readTtl(options.ttl),
    staleMs: readLong(options.stale ?? 0, 'stale'),
    early: beta,
    negativeMs: readLong(options.negative ?? DEFAULT_NEGATIVE, 'negative'),
    softWaitMs: parseDuration(options.softWait ?? 0, 'softWait'),
    jitter,
    local: local === undefined ? undefined : readLocal(local),
    outage,
  }
}

function readLocal(local: LocalOptions): NonNullable<ReadCache['local']> {
  checkOptions('local of cache()', local, LOCAL_OPTIONS)
  const { max, ttl } = local
  if (!Number.isInteger(max) || max < 1 || max > MOST_LOCAL)
    throw new RangeError(`local.max must be a whole number from 1 to ${MOST_LOCAL}; got ${String(max)}`)
  const ttlMs = parseDuration(ttl, 'local.ttl')
  if (ttlMs <= 0) throw new RangeError('local.ttl must be more than 0; leave local out to have no first level')
  return { max, ttlMs }
}

export interface ReadGet extends Lifetime {
  readonly softWaitMs: number
  readonly signal: AbortSignal | undefined
}

export function readGetOptions(cache: ReadCache, options: CacheGetOptions): ReadGet {
  checkOptions('get()', options, GET_OPTIONS)
  const { ttl, stale, softWait, signal } = options
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new TypeError(`signal must be an AbortSignal; got ${typeof signal}`)
  return {
    ttlMs: ttl === undefined ? cache.ttlMs : readTtl(ttl),
    staleMs: stale === undefined ? cache.staleMs : readLong(stale, 'stale'),
    softWaitMs: softWait === undefined ? cache.softWaitMs : parseDuration(softWait, 'softWait'),
    signal,
  }
}

export function readTtl(ttl: Duration): number {
  const ttlMs = readLong(ttl, 'ttl')
  if (ttlMs >= 1) return ttlMs
  throw new RangeError(`ttl must be at least 1 ms; got ${ttlMs} ms`)
}

function readLong(duration: Duration, what: string): number {
  const ms = parseDuration(duration, what)
  if (ms <= LONGEST_MS) return ms
  throw new RangeError(`${what} must be at most 366 days (8784h); got ${ms} ms`)
}
