/** The options of `createLocks()` and of its locks, with their defaults and the checks of their values. */
import type { Chance, Clock } from './clock.ts'
import type { DrainOptions } from './drain.ts'
import { type Duration, parseDuration } from './duration.ts'
import type { Engine } from './engine.ts'
import type { Logger } from './logging.ts'
import type { OptionNames } from './options.ts'
import type { OrderReport } from './order.ts'
import type { WarnAfter } from './warn-after.ts'

/** Options of one lock. */
export interface LockOptions {
  /** How long the lease lives without renewal: after a crash, others wait this long. Renewed every third of it. */
  readonly ttl?: Duration
  /**
   * How long one hold may last, from the grant on; without limit unless given. At its end the work is told to stop
   * (`lease.signal`, with `why: 'maxHold'`) and the lease is not renewed any more: the next one is let in when the work
   * has settled, or else when the ttl is over.
   */
  readonly maxHold?: Duration
}

/** Options of a lock that its holder may be allowed to take again. */
export interface ReentrantLockOptions extends LockOptions {
  /** Asking inside a `using` of the same key gives a nested lease instead of a `DeadlockError`. */
  readonly reentrant?: boolean
}

/** Options for all locks of one engine; those of a lock or of an acquire win over them. */
export interface LocksOptions {
  /** The ttl of locks that name none: 30 s. */
  readonly ttl?: Duration
  /**
   * The name of this process, for people who look at the line: `host:pid script.mjs` unless given. A name of yours is
   * stored as it is. If it begins like that, as in `${hostname()}:${process.pid} billing`, `holdfast show` knows host
   * and pid.
   */
  readonly holder?: string
  /**
   * How long one call to the engine may take before its outcome counts as unknown: 5 s, and never more than the ttl.
   */
  readonly callTimeout?: Duration
  /** For development: report keys taken in opposite orders. `true` warns through `process.emitWarning`. */
  readonly checkOrder?: boolean | ((report: OrderReport) => void)
  /**
   * `{ hold: '5m', wait: '1m' }`: tell of every hold and every wait that is longer, once, on `holdfast:warning` and to
   * the logger. Off unless given.
   */
  readonly warnAfter?: WarnAfter
  /** Where to log: pino, or anything with its four methods. Silent unless given. */
  readonly logger?: Logger
  /**
   * Drain when the process gets SIGTERM or SIGINT, and then let the signal end it: see `drain`. With `{ grace }` for
   * another grace than that of `drain`. Not unless given: a library does not listen to signals unasked.
   */
  readonly signals?: boolean | DrainOptions
  /** For tests: where time comes from. */
  readonly clock?: Clock
  /** For tests: where ids and jitter come from. */
  readonly chance?: Chance
}

/** How to watch a line. */
export interface WatchOptions {
  /** How long to go without a look at most: 1 s. Engines that can watch are looked at sooner, when the line changes. */
  readonly every?: Duration
  /** Ends the watch. */
  readonly signal?: AbortSignal
}

export const LOCK_OPTIONS: OptionNames<LockOptions> = { ttl: true, maxHold: true }
export const REENTRANT_LOCK_OPTIONS: OptionNames<ReentrantLockOptions> = { ...LOCK_OPTIONS, reentrant: true }
export const WATCH_OPTIONS: OptionNames<WatchOptions> = { every: true, signal: true }
export const LOCKS_OPTIONS: OptionNames<LocksOptions> = {
  ttl: true,
  holder: true,
  callTimeout: true,
  checkOrder: true,
  logger: true,
  warnAfter: true,
  signals: true,
  clock: true,
  chance: true,
}

export const DEFAULT_TTL_MS = 30_000
const DEFAULT_CALL_TIMEOUT_MS = 5_000
const DEFAULT_WATCH_MS = 1_000
const SHORTEST_WATCH_MS = 10
const SHORTEST_CALL_TIMEOUT_MS = 1
/** A ttl above this is a mistake (seconds taken for milliseconds): a crash would block others for days. */
const LONGEST_TTL_MS = 24 * 3_600_000

/** A plain number below this is one of seconds, by mistake. A lease that is meant to be so short has a unit. */
const SHORTEST_PLAIN_TTL_MS = 100

/**
 * The ttl of a lock for which `ttl` was asked: at most what `engine` keeps. Throws if none so short is kept, or if it
 * is surely a mistake.
 */
export function ttlMsOf(ttl: Duration, { name, traits }: Engine): number {
  const ttlMs = Math.ceil(parseDuration(ttl, 'ttl'))
  if (typeof ttl === 'number' && ttl < SHORTEST_PLAIN_TTL_MS)
    throw new RangeError(
      `ttl: ${ttl} is ${ttl} milliseconds; write '${ttl}s' for seconds, or '${ttl}ms' if that is meant`,
    )
  if (ttlMs >= traits.minTtlMs && ttlMs <= LONGEST_TTL_MS) return Math.min(ttlMs, traits.maxTtlMs ?? LONGEST_TTL_MS)
  throw new RangeError(`ttl must be from ${traits.minTtlMs} ms (${name}) to 24 h; got ${ttlMs} ms`)
}

export function callTimeoutMsOf({ callTimeout = DEFAULT_CALL_TIMEOUT_MS }: LocksOptions): number {
  const callTimeoutMs = parseDuration(callTimeout, 'callTimeout')
  if (callTimeoutMs >= SHORTEST_CALL_TIMEOUT_MS) return callTimeoutMs
  throw new RangeError(`callTimeout must be at least ${SHORTEST_CALL_TIMEOUT_MS} ms; got ${callTimeoutMs} ms`)
}

export function everyMsOf({ every = DEFAULT_WATCH_MS }: WatchOptions): number {
  const everyMs = parseDuration(every, 'every')
  if (everyMs >= SHORTEST_WATCH_MS) return everyMs
  throw new RangeError(`every must be at least ${SHORTEST_WATCH_MS} ms; got ${everyMs} ms`)
}
