/** What users create: `createLocks(engine)` gives every primitive, on one engine, with one heartbeat. */
import { systemChance, systemClock } from './core/clock.ts'
import { publish } from './core/diagnostics.ts'
import { type DrainOptions, graceMsOf, heedSignals } from './core/drain.ts'
import type { Duration } from './core/duration.ts'
import { type Engine, type Line, type LineSummary, UNLIMITED } from './core/engine.ts'
import { EngineError, HoldfastError, UnsupportedError } from './core/errors.ts'
import { defaultHolder } from './core/holder.ts'
import { Keeper } from './core/keeper.ts'
import { checkHolder, checkKey } from './core/keys.ts'
import { listLines } from './core/list.ts'
import {
  type AcquireOptions,
  type LineAcquireOptions,
  LineLock,
  type Lock,
  maxHoldMsOf,
  type Scope,
  type WeightedAcquireOptions,
} from './core/lock.ts'
import {
  callTimeoutMsOf,
  DEFAULT_TTL_MS,
  everyMsOf,
  LOCK_OPTIONS,
  LOCKS_OPTIONS,
  type LockOptions,
  type LocksOptions,
  REENTRANT_LOCK_OPTIONS,
  type ReentrantLockOptions,
  ttlMsOf,
  WATCH_OPTIONS,
  type WatchOptions,
} from './core/locks-options.ts'
import { logWarnings, publishAndLog } from './core/logging.ts'
import { checkOptions } from './core/options.ts'
import { OrderChecker, type OrderReport } from './core/order.ts'
import { quoted } from './core/quoted.ts'
import { parseSampleOptions, type SampleOptions, sampleUntil } from './core/sample.ts'
import { showAs, shownUrl } from './core/show.ts'
import { LongHoldWarnings, parseWarnAfter } from './core/warn-after.ts'
import { endable, watchLine } from './core/watch.ts'
import { type AllLease, AllLock } from './primitives/all.ts'
import { type Election, LineElection } from './primitives/election.ts'

/** Two locks of one key: many readers, or one writer, in order of arrival. */
export interface ReadWriteLock {
  /** Readers hold together. */
  readonly read: Lock<LineAcquireOptions>
  /** A writer holds alone, and is not overtaken by readers who come after it. */
  readonly write: Lock<LineAcquireOptions>
}

/** Holds up to `limit` together. */
export interface Semaphore extends Lock<WeightedAcquireOptions> {
  readonly limit: number
}

/** Its line is looked at by `ping`; who is in it does not matter. */
const PING_KEY = 'holdfast:ping'

/** Locks on an engine that you have made: `createLocks(redis({ client }))`. By URL: `connect`. */
export function createLocks(engine: Engine, options: LocksOptions = {}): Locks {
  return new Locks(engine, options)
}

/** All kinds of locks on one engine. `close()` gives back what is held. */
export class Locks implements AsyncDisposable {
  readonly engine: Engine
  readonly holder: string
  readonly #scope: Scope
  /**
   * What the user has given for all locks. Undefined: a recipe may have a default of its own.
   * @internal
   */
  readonly givenTtl: Duration | undefined
  readonly #stopLogging: () => void
  readonly #stopHeeding: () => void
  /** Keys of elections: holding and waiting for long is what they are for. */
  readonly #elections = new Set<string>()
  readonly #longHoldWarnings: LongHoldWarnings | undefined
  #closed: Promise<void> | undefined

  static {
    showAs('Locks', Locks)
  }

  constructor(engine: Engine, options: LocksOptions) {
    checkOptions('createLocks()', options, LOCKS_OPTIONS)
    const { clock = systemClock, chance = systemChance, checkOrder = false } = options
    if (typeof engine?.enter !== 'function')
      throw new TypeError(`createLocks takes an engine, like memory() or redis({ client }); got ${typeof engine}`)
    this.engine = engine
    this.holder = options.holder ?? defaultHolder()
    checkHolder(this.holder)
    this.givenTtl = options.ttl
    const callTimeoutMs = callTimeoutMsOf(options)
    const publishing = options.logger === undefined ? publish : publishAndLog(options.logger)
    if (options.warnAfter !== undefined)
      this.#longHoldWarnings = new LongHoldWarnings(
        clock,
        parseWarnAfter(options.warnAfter),
        publishing,
        this.#elections,
        shownUrl(engine),
      )
    const warn = typeof checkOrder === 'function' ? checkOrder : warnOfOrder
    const report = (found: OrderReport): void => {
      publishing.inversion(found)
      warn(found)
    }
    this.#scope = {
      keeper: new Keeper(engine, {
        clock,
        chance,
        callTimeoutMs,
        publish: this.#longHoldWarnings?.publish ?? publishing,
      }),
      holder: this.holder,
      order: checkOrder === false ? undefined : new OrderChecker(report),
    }
    this.#ttlMs({})
    // What is refused has left no listener behind.
    this.#stopHeeding = heedSignals(options.signals ?? false, this.#scope.keeper, (draining) => this.drain(draining))
    this.#stopLogging = options.logger === undefined ? () => {} : logWarnings(options.logger)
  }

  /**
   * What recipes are built on.
   * @internal
   */
  get keeper(): Keeper {
    return this.#scope.keeper
  }

  /** One holder at a time. */
  mutex(key: string, options: ReentrantLockOptions = {}): Lock<LineAcquireOptions> {
    checkOptions('mutex()', options, REENTRANT_LOCK_OPTIONS)
    return this.#lock(key, 1, options)
  }

  /** Up to `limit` holders at a time. Callers who disagree on the limit get the stricter one. */
  semaphore(key: string, limit: number, options: LockOptions = {}): Semaphore {
    checkOptions('semaphore()', options, LOCK_OPTIONS)
    if (!Number.isInteger(limit) || limit < 1 || limit > UNLIMITED) {
      const got = typeof limit === 'object' ? 'an object: it is the second argument, semaphore(key, 4)' : quoted(limit)
      throw new RangeError(`the limit of a semaphore must be a whole number from 1 to ${UNLIMITED}; got ${got}`)
    }
    if (limit > 1 && this.engine.traits.sharing !== 'full') {
      throw new UnsupportedError(
        this.engine.name,
        `${this.engine.name} has no semaphores above 1; use ${SEMAPHORE_ENGINES}`,
      )
    }
    return this.#lock(key, limit, options)
  }

  /** Many readers or one writer, in order of arrival. */
  rw(key: string, options: ReentrantLockOptions = {}): ReadWriteLock {
    checkOptions('rw()', options, REENTRANT_LOCK_OPTIONS)
    if (this.engine.traits.sharing === 'none') {
      throw new UnsupportedError(this.engine.name, `${this.engine.name} has no read locks; use ${READ_WRITE_ENGINES}`)
    }
    return { read: this.#lock(key, UNLIMITED, options), write: this.#lock(key, 1, options) }
  }

  /** Several locks as one: all or nothing, taken in one global order. */
  all(locks: readonly Lock[]): Lock<AcquireOptions, AllLease> {
    return new AllLock(
      this.#scope,
      locks.map((lock) => {
        if (lock instanceof LineLock && lock.scope === this.#scope) return lock
        throw new TypeError('all takes mutexes, semaphores, read and write locks of the same createLocks()')
      }),
    )
  }

  election(key: string, options: LockOptions = {}): Election {
    checkOptions('election()', options, LOCK_OPTIONS)
    const lock = this.#lock(key, 1, options)
    if (this.#longHoldWarnings !== undefined) this.#elections.add(key)
    return new LineElection(lock)
  }

  /** Who holds and who waits, in order. */
  async inspect(key: string): Promise<Line> {
    checkKey(key)
    return this.#scope.keeper.call('inspect', (engine) => engine.inspect(key))
  }

  /**
   * The line of `key`: now, and again whenever it may have changed. It can be the same line again, with other ages and
   * times left. Ends when the loop is left, `signal` aborts or the locks are closed. Rejects when the engine cannot be
   * asked.
   */
  watch(key: string, options: WatchOptions = {}): AsyncGenerator<Line, void, void> {
    checkKey(key)
    checkOptions('watch()', options, WATCH_OPTIONS)
    const everyMs = everyMsOf(options)
    const timing = { everyMs, unwatchedEveryMs: everyMs, toleratedMs: 0 }
    return endable(options.signal, (signal) => watchLine(this.#scope.keeper, key, timing, signal))
  }

  /** The lines that have entries, whose key starts with `prefix`. */
  list(prefix = ''): AsyncGenerator<LineSummary, void, void> {
    return listLines(this.#scope.keeper, prefix)
  }

  /**
   * Look at lines again and again, and publish what they are like on `holdfast:sample`: gauges of how long lines are,
   * and of the oldest hold, are made of it. One process of a fleet is enough, because lines are the same for all.
   * Resolves when `signal` aborts or the locks are closed. Does not keep the process alive.
   */
  async sample(options: SampleOptions): Promise<void> {
    const range = parseSampleOptions(options)
    const { clock, publish, closing } = this.#scope.keeper
    const endings = options.signal === undefined ? [closing] : [closing, options.signal]
    await sampleUntil(this, range, { engine: this.engine.name, clock, publish, endings })
  }

  /**
   * One cheap round trip to the engine, for readiness probes: how many milliseconds it took. Rejects with `EngineError`
   * if the engine does not answer. It says nothing about any lock.
   */
  async ping(): Promise<number> {
    const { keeper } = this.#scope
    const startedAt = keeper.clock.now()
    try {
      await keeper.call('inspect', (engine) => engine.inspect(PING_KEY))
    } catch (error) {
      if (error instanceof HoldfastError) throw error
      const message = `ping failed: ${error instanceof Error ? error.message : String(error)}`
      throw new EngineError(this.engine.name, message, { outcome: 'not-applied', cause: error })
    }
    return keeper.clock.now() - startedAt
  }

  /**
   * Remove an entry of any process, named by its token. `expire` (the default) refuses its renewals: the holder learns
   * of it and stops before the next one is let in. `now` lets the next one in at once, while the holder may still be
   * working: only where it is known to be dead, or where guards check tokens.
   */
  async evict(key: string, token: bigint, how: 'expire' | 'now' = 'expire'): Promise<boolean> {
    checkKey(key)
    if (typeof token !== 'bigint') throw new TypeError(`token must be a bigint; got ${typeof token}`)
    if (how !== 'expire' && how !== 'now') throw new TypeError(`how must be 'expire' or 'now'; got '${String(how)}'`)
    return this.#scope.keeper.call('evict', (engine) => engine.evict(key, token, how))
  }

  /**
   * End in good order: for SIGTERM. From now on nothing new is granted: waiters leave their lines and are refused, as
   * is whatever is asked. Holders have `grace` to end by themselves (they may still nest, and are renewed). Then the
   * signals of those that are left abort, and when their work has settled, half a second later at the latest,
   * everything is given back and closed, as by `close()`.
   */
  async drain(options: DrainOptions = {}): Promise<void> {
    await this.#scope.keeper.drain(graceMsOf(options))
    await this.close()
  }

  /** Aborts when `drain()` or `close()` is called. For `lead({ resignOn: locks.draining })`, and for loops of yours. */
  get draining(): AbortSignal {
    return this.#scope.keeper.draining
  }

  /**
   * Release everything, stop waiting, end observers, close the engine. Leases still held are lost (`closed`), and
   * whatever is asked from now on is refused. Runs of jobs are told to stop, and lose their locks when they have. Takes
   * at most as long as one call may take (`callTimeout`).
   */
  close(): Promise<void> {
    const closed = this.#scope.keeper.close()
    // A listener that heard of the closing may have called this before us.
    this.#closed ??= closed.finally(() => {
      this.#stopHeeding()
      this.#stopLogging()
      this.#longHoldWarnings?.stop()
    })
    return this.#closed
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  toJSON(): object {
    return { engine: this.engine.name, holder: this.holder }
  }

  #lock(key: string, limit: number, options: ReentrantLockOptions): LineLock {
    checkKey(key)
    const { reentrant = false } = options
    const maxHoldMs = maxHoldMsOf(options) ?? Number.POSITIVE_INFINITY
    return new LineLock(this.#scope, { key, weight: 1, limit, ttlMs: this.#ttlMs(options), maxHoldMs, reentrant })
  }

  #ttlMs(options: LockOptions): number {
    return ttlMsOf(options.ttl ?? this.givenTtl ?? DEFAULT_TTL_MS, this.engine)
  }
}

const SEMAPHORE_ENGINES = 'memory, sqlite, redis, postgres, mysql, etcd, zookeeper or mongodb'
const READ_WRITE_ENGINES = 'memory, sqlite, redis, postgres, postgres-advisory, mysql, etcd, zookeeper or mongodb'

function warnOfOrder(report: OrderReport): void {
  process.emitWarning(report.message, { code: 'HOLDFAST_LOCK_ORDER' })
}
