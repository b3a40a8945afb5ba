/** What users give to `rateLimit()` and to `take()`, read and checked. */
import { type Duration, parseDuration } from '../../core/duration.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { longestBookUs, type Rate, rateOf } from '../../core/rate.ts'
import type { Locks } from '../../locks.ts'

/** How much in how long. */
export interface RateOptions {
  /** How many in `per`. */
  readonly limit: number
  /** `'1s'`, `'1m'`, `'24h'`. */
  readonly per: Duration
  /**
   * How many at once, after a pause: `limit` unless given. In any window of time at most as many as its share of the
   * limit and this are let through. 1: evenly, each `per / limit` after the one before.
   */
  readonly burst?: number
}

/**
 * What to answer when the server cannot be asked. `deny`: not allowed. `allow`: allowed. A rate: what this process
 * would allow by itself, counted in its own memory.
 */
export type RateOutage = 'deny' | 'allow' | RateOptions

/** Options of `rateLimit()`. */
export interface RateLimitOptions extends RateOptions {
  /**
   * Tells limits apart that have the same keys, and names the policy in headers. `100/1m` unless given: made of `limit`
   * and `per`.
   */
  readonly name?: string
  /** When the server cannot be asked. Unless given, `take` rejects then, with an `EngineError`. */
  readonly outage?: RateOutage
  /** Where the counts are, if the engine of the locks has no store: locks on another engine. */
  readonly store?: Locks
}

/** Options of `take()` and `takeAll()`. */
export interface TakeOptions {
  /** How many it counts for: 1 unless given. At most `burst`. */
  readonly cost?: number
  /**
   * How long to wait for its turn, at most: 0 unless given. The turn is booked at once, in the order of the calls of
   * all processes. If it would come later than that, the answer is no, without waiting, and nothing is taken.
   */
  readonly wait?: Duration
  /** Ends the waiting: rejects with the signal's own reason, and gives the booking back if none came behind it. */
  readonly signal?: AbortSignal
}

const RATE_OPTIONS: OptionNames<RateOptions> = { limit: true, per: true, burst: true }
const RATE_LIMIT_OPTIONS: OptionNames<RateLimitOptions> = { ...RATE_OPTIONS, name: true, outage: true, store: true }
const TAKE_OPTIONS: OptionNames<TakeOptions> = { cost: true, wait: true, signal: true }

/** A rate in the user's numbers, and in those of the rule. */
export interface ReadRate {
  readonly limit: number
  readonly perMs: number
  readonly burst: number
  readonly rate: Rate
}

const MOST = 1_000_000_000
const LONGEST_PER_MS = 366 * 24 * 3_600_000

/** Throws a `TypeError` or a `RangeError` for what cannot be meant. */
function readRateOptions(call: string, options: RateOptions): ReadRate {
  checkOptions(call, options, RATE_OPTIONS)
  const { limit, per, burst = limit } = options
  checkCount('limit', limit, MOST)
  checkCount('burst', burst, MOST)
  const perMs = parseDuration(per, 'per')
  if (perMs < 1 || perMs > LONGEST_PER_MS)
    throw new RangeError(`per must be from 1 ms to 366 days (8784h); got ${perMs} ms`)
  return { limit, perMs, burst, rate: rateOf(limit, Math.round(perMs * 1000), burst) }
}

export interface ReadRateLimit extends ReadRate {
  readonly name: string
  readonly outage: 'deny' | 'allow' | ReadRate | undefined
}

export function readRateLimitOptions(options: RateLimitOptions): ReadRateLimit {
  checkOptions('rateLimit()', options, RATE_LIMIT_OPTIONS)
  const { name, outage, store: _, ...rate } = options
  const read = readRateOptions('rateLimit()', rate)
  const named = name ?? `${read.limit}/${spelled(read.perMs)}`
  if (typeof named !== 'string' || named === '' || named.includes('@'))
    throw new TypeError(`name must be a text without @; got ${JSON.stringify(name)}`)
  return { ...read, name: named, outage: readOutage(outage) }
}

function readOutage(outage: RateOutage | undefined): ReadRateLimit['outage'] {
  if (typeof outage === 'object') return readRateOptions('outage of rateLimit()', outage)
  if (outage === undefined || outage === 'deny' || outage === 'allow') return outage
  throw new TypeError(`outage must be deny, allow or a rate like { limit: 5, per: '1s' }; got '${String(outage)}'`)
}

export interface ReadTake {
  readonly cost: number
  readonly waitMs: number
  readonly signal: AbortSignal | undefined
}

export function readTakeOptions(call: string, options: TakeOptions): ReadTake {
  checkOptions(call, options, TAKE_OPTIONS)
  const { cost = 1, wait = 0, signal } = options
  checkCount('cost', cost, MOST)
  return { cost, waitMs: parseDuration(wait, 'wait'), signal }
}

/** Throws where it could never be allowed, and would wait for ever. */
export function checkTake({ name, burst, rate }: ReadRateLimit, cost: number, waitMs: number): void {
  if (cost > burst)
    throw new RangeError(`a cost of ${cost} can never be taken from '${name}', which allows ${burst} at once (burst)`)
  const longestMs = Math.floor(longestBookUs(rate) / 1000)
  if (waitMs > longestMs) throw new RangeError(`wait must be at most ${longestMs} ms for '${name}'; got ${waitMs} ms`)
}

function checkCount(what: string, count: number, most: number): void {
  if (Number.isInteger(count) && count >= 1 && count <= most) return
  throw new RangeError(`${what} must be a whole number from 1 to ${most}; got ${String(count)}`)
}

const UNITS = [
  [3_600_000, 'h'],
  [60_000, 'm'],
  [1000, 's'],
] as const

/** Without rounding: two rates never have the same name. */
function spelled(ms: number): string {
  const [unitMs, unit] = UNITS.find(([size]) => ms % size === 0) ?? [1, 'ms']
  return `${ms / unitMs}${unit}`
}
