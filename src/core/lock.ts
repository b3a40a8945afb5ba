/**
 * The lock: what you acquire from. One interface for everything acquirable, and one class behind mutex, semaphore, read
 * and write lock, which differ only in weight and limit.
 */
import { type Ask, acquireLease, NO_WAIT_LIMIT, timeoutError, type WaitLimit } from './acquire.ts'
import { type Duration, parseDuration } from './duration.ts'
import { UNLIMITED } from './engine.ts'
import type { ChangeBeside } from './entry.ts'
import { EntryLease } from './entry-lease.ts'
import { LeaseLostError } from './errors.ts'
import type { Keeper } from './keeper.ts'
import type { CoreLease, Holding, Lease } from './lease.ts'
import { NestedLease } from './nested-lease.ts'
import { enclosing, insideWork, refuseDeadlock, runInside } from './nesting.ts'
import { checkOptions, type OptionNames } from './options.ts'
import type { OrderChecker } from './order.ts'
import { showAs } from './show.ts'
import type { Change, Put } from './store.ts'

/** How to ask for a lock: for how long, until when, and as whom. */
export interface AcquireOptions {
  /** How long to stand in line. For ever unless given; 0 is one try. When it runs out: `AcquireTimeoutError`. */
  readonly wait?: Duration
  /**
   * Cancels the waiting. The place in line is given up at once, and the acquire rejects with the signal's own reason.
   */
  readonly signal?: AbortSignal
  /**
   * How long to hold it at most, from the grant on; that of the lock unless given. At its end `lease.signal` aborts
   * (`why: 'maxHold'`) and renewals stop. The next one is let in when you have released, or else when the ttl is over.
   */
  readonly maxHold?: Duration
}

/** How to ask for a lock of one key, which can be nested in one that you hold. */
export interface LineAcquireOptions extends AcquireOptions {
  /** A lease of the same key that you hold: the new lease is nested in it, with the same token, and ends with it. */
  readonly within?: Lease
}

type LineOptions = LineAcquireOptions & WeightedAcquireOptions

/** How to ask for a part of a semaphore. */
export interface WeightedAcquireOptions extends AcquireOptions {
  /** How much of the limit to take: 1 unless given, the whole limit at most. */
  readonly weight?: number
}

const TRY_OPTIONS: OptionNames<Omit<AcquireOptions, 'wait'>> = { signal: true, maxHold: true }
const LINE_TRY_OPTIONS: OptionNames<Omit<LineOptions, 'wait'>> = { ...TRY_OPTIONS, within: true, weight: true }
const LINE_OPTIONS: OptionNames<LineOptions> = { wait: true, ...LINE_TRY_OPTIONS }
/** The options of what takes neither a weight nor a lease to nest in. */
export const ACQUIRE_OPTIONS: OptionNames<AcquireOptions> = { wait: true, ...TRY_OPTIONS }
export { TRY_OPTIONS }

/** One object for all callers that give none. */
const NO_OPTIONS: LineOptions = {}

/** The work done under a lease. */
export type Work<Result, Held extends Lease = Lease> = (lease: Held) => Promise<Result> | Result

/** What can be held, by `acquire`, `tryAcquire` or `using`. Mutexes, semaphores and all others are such locks. */
export interface Lock<Options extends AcquireOptions = AcquireOptions, Held extends Lease = Lease> {
  readonly key: string
  /** Wait until it is held. */
  acquire(options?: Options): Promise<Held>
  /** Take it if it is free now; undefined if not. Leaves no trace then. */
  tryAcquire(options?: Omit<Options, 'wait'>): Promise<Held | undefined>
  /**
   * Acquire, work, release. Rejects with `LeaseLostError` if the lease was lost before the work settled, even if the
   * work succeeded; else with what the work threw. The release never masks either.
   */
  using<Result>(work: Work<Result, Held>): Promise<Result>
  using<Result>(options: Options, work: Work<Result, Held>): Promise<Result>
}

/** What locks of one `createLocks` share. */
export interface Scope {
  readonly keeper: Keeper
  readonly holder: string
  readonly order: OrderChecker | undefined
}

/** Which lock this is. */
export interface LockSpec extends Holding {
  readonly ttlMs: number
  readonly maxHoldMs: number
  readonly reentrant: boolean
}

export class LineLock implements Lock<LineOptions> {
  readonly scope: Scope
  readonly spec: LockSpec
  /** What is asked for unless the caller says otherwise: one object for all who wait. */
  readonly #ask: Ask

  static {
    showAs('Lock', LineLock)
  }

  constructor(scope: Scope, spec: LockSpec) {
    this.scope = scope
    this.spec = spec
    const { key, weight, limit, ttlMs, maxHoldMs } = spec
    this.#ask = { key, weight, limit, ttlMs, maxHoldMs, holder: scope.holder }
  }

  get key(): string {
    return this.spec.key
  }

  get limit(): number {
    return this.spec.limit
  }

  acquire(options: LineOptions = NO_OPTIONS): Promise<CoreLease> {
    try {
      if (options !== NO_OPTIONS) checkOptions('acquire()', options, LINE_OPTIONS)
      const waitMs = waitMsOf(options)
      // One try that cannot succeed is told that it is busy. A wait that cannot end is told why.
      return this.#acquireIn(waitMs > 0 && insideWork() ? this.#nestedOptions(options) : options, waitMs)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #acquireIn(options: LineOptions, waitMs: number): Promise<CoreLease> {
    const asked = this.#acquire(options, waitMs)
    // A caller that waits at all gets a lease, or an error. Nested, the wait can run out as well.
    return waitMs > 0 && options.within === undefined ? (asked as Promise<CoreLease>) : this.#orTimeout(asked, waitMs)
  }

  /**
   * For `acquire` inside the work of a `using`: in a reentrant lock it nests, and what would wait for itself is
   * refused. A read inside a read has an entry of its own, unlike with `using`: the caller may keep it for longer than
   * the outer one.
   */
  #nestedOptions(options: LineOptions): LineOptions {
    if (options.within !== undefined) return options
    const within = this.spec.reentrant ? enclosing(this.scope.keeper, this.key) : undefined
    if (within !== undefined) return { ...options, within }
    this.#refuseDeadlock(options)
    return options
  }

  #refuseDeadlock(options: LineOptions): void {
    refuseDeadlock(this.scope.keeper, { ...this.spec, weight: this.#weight(options) })
  }

  async #orTimeout(asked: Promise<CoreLease | undefined>, waitMs: number): Promise<CoreLease> {
    const lease = await asked
    if (lease !== undefined) return lease
    throw await timeoutError(this.scope.keeper, this.key, waitMs)
  }

  /** For `all`: wait until it is held, as one of several. Rejects when the wait runs out. */
  acquirePart(limit: WaitLimit): Promise<CoreLease> {
    const { keeper, order } = this.scope
    return acquireLease(keeper, this.#ask, limit, order?.asking(this.key)) as Promise<CoreLease>
  }

  /**
   * For recipes: `onEntering` is called with the id of the entry when the engine is asked to let it in. What is sent to
   * a store then is not before the entry. Undefined: it is not to wait, and the lock is busy.
   */
  acquireEntering(limit: WaitLimit, onEntering: (id: string) => void): Promise<EntryLease | undefined> {
    const { keeper, order } = this.scope
    if (limit.waitMs > 0 && insideWork()) this.#refuseDeadlock(NO_OPTIONS)
    return acquireLease(keeper, this.#ask, limit, order?.asking(this.key), { onEntering })
  }

  /**
   * For recipes on a store that has `putEntering`: hold at once and make the change of that entry in the same step, or
   * do neither. `onPut` is called with what became of the change, before this resolves.
   */
  acquirePutting(
    signal: AbortSignal | undefined,
    changeOf: (entryId: string) => Change,
    onPut: (put: Put) => void,
  ): Promise<EntryLease | undefined> {
    const { keeper, order } = this.scope
    const beside = (entryId: string): ChangeBeside => ({ change: changeOf(entryId), answered: onPut })
    return acquireLease(keeper, this.#ask, { waitMs: 0, signal }, order?.asking(this.key), { beside })
  }

  async tryAcquire(options: Omit<LineOptions, 'wait'> = NO_OPTIONS): Promise<CoreLease | undefined> {
    if (options !== NO_OPTIONS) checkOptions('tryAcquire()', options, LINE_TRY_OPTIONS)
    return this.#acquire(options, 0)
  }

  async using<Result>(first: LineOptions | Work<Result>, second?: Work<Result>): Promise<Result> {
    const [options, work] = usingArguments<LineOptions, Work<Result>>(first, second)
    checkOptions('using()', options, LINE_OPTIONS)
    const { keeper, order } = this.scope
    const run = async (): Promise<Result> => {
      const inside = insideWork()
      const within = options.within ?? (inside ? this.#around() : undefined)
      if (within === undefined && inside) this.#refuseDeadlock(options)
      const lease = await this.#acquireIn(within === undefined ? options : { ...options, within }, waitMsOf(options))
      return workUnder(keeper, lease, [lease], work)
    }
    return order === undefined ? run() : order.apart(run)
  }

  /**
   * The lease around us to nest in. A read inside a read always nests: it could be granted beside the outer one, but a
   * writer that queued between the two would wait for the outer one, and the inner one for the writer.
   */
  #around(): CoreLease | undefined {
    const lease = enclosing(this.scope.keeper, this.key)
    const bothRead = lease?.holding.limit === UNLIMITED && this.spec.limit === UNLIMITED
    return this.spec.reentrant || bothRead ? lease : undefined
  }

  /** The weight asked for, checked. */
  #weight(options: WeightedAcquireOptions): number {
    const { weight = this.spec.weight } = options
    if (Number.isInteger(weight) && weight >= 1 && weight <= this.spec.limit) return weight
    throw new RangeError(`weight must be a whole number from 1 to the limit of ${this.spec.limit}; got ${weight}`)
  }

  /**
   * Throws, or answers a promise: not async itself, because each layer of promises is a noticeable part of what a lock
   * in memory costs.
   */
  #acquire(options: LineOptions, waitMs: number): Promise<CoreLease | undefined> {
    const { scope, spec } = this
    const { signal, within } = options
    if (signal !== undefined && !(signal instanceof AbortSignal))
      throw new TypeError(`signal must be an AbortSignal; got ${typeof signal}`)
    const ask = this.#askFor(options)
    if (within !== undefined) return NestedLease.take(this.#checkOuter(within), ask, waitMs, signal)
    const limit = signal === undefined && waitMs === Number.POSITIVE_INFINITY ? NO_WAIT_LIMIT : { waitMs, signal }
    return acquireLease(scope.keeper, ask, limit, scope.order?.asking(spec.key))
  }

  #askFor(options: LineOptions): Ask {
    if (options.weight === undefined && options.maxHold === undefined) return this.#ask
    return { ...this.#ask, weight: this.#weight(options), maxHoldMs: maxHoldMsOf(options) ?? this.spec.maxHoldMs }
  }

  /** Throws unless `lease` is one to nest in. */
  #checkOuter(lease: Lease): CoreLease {
    const ours = lease instanceof EntryLease || lease instanceof NestedLease
    if (ours && lease.keeper === this.scope.keeper) return lease
    throw new TypeError(
      'within must be a lease that a mutex, a read lock or a write lock of the same createLocks() gave',
    )
  }

  toJSON(): object {
    const { key, limit } = this.spec
    const kind = limit === 1 ? 'exclusive' : limit === UNLIMITED ? 'read' : 'semaphore'
    return { key, kind, ...(kind === 'semaphore' ? { limit } : {}), engine: this.scope.keeper.engine.name }
  }
}

/**
 * Work under a lease, release, and tell how it went. `parts` are what nested askings can meet: for several locks at
 * once, each of them. The process stays alive meanwhile: the caller awaits the work, which may await nothing but the
 * signal of its lease.
 */
export async function workUnder<Result, Held extends Lease>(
  keeper: Keeper,
  lease: Held & Pick<CoreLease, 'lossError'>,
  parts: readonly CoreLease[],
  work: Work<Result, Held>,
): Promise<Result> {
  let lossError: LeaseLostError | undefined
  keeper.keepAlive.begin()
  try {
    const result = await runInside(keeper, parts, async () => work(lease))
    lossError = lease.lossError
    if (lossError === undefined) return result
  } catch (error) {
    lossError = lease.lossError
    if (lossError === undefined) throw error
    // The caller has to learn of the loss, and what the work threw because of it, or besides it, is not forgotten.
    if (error !== lossError)
      lossError = new LeaseLostError(lossError.key, lossError.token, lossError.why, { cause: error })
  } finally {
    await lease.release()
    keeper.keepAlive.end()
  }
  throw lossError
}

/** `using(work)` or `using(options, work)`. */
export function usingArguments<Options extends object, Doing>(
  first: Options | Doing,
  second: Doing | undefined,
): [Options, Doing] {
  const [options, work] = second === undefined ? [{}, first] : [first, second]
  if (typeof work !== 'function')
    throw new TypeError(`using takes the work as a function, and options before it; got ${typeof work}`)
  return [options as Options, work as Doing]
}

/** How long the caller waits, in milliseconds; Infinity unless it says. */
export function waitMsOf(options: AcquireOptions): number {
  return options.wait === undefined ? Number.POSITIVE_INFINITY : parseDuration(options.wait, 'wait')
}

/** The longest hold that is asked for, in milliseconds, if any is. */
export function maxHoldMsOf({ maxHold }: Pick<AcquireOptions, 'maxHold'>): number | undefined {
  if (maxHold === undefined) return undefined
  const ms = parseDuration(maxHold, 'maxHold')
  if (ms > 0) return ms
  throw new RangeError('maxHold must be more than 0; leave it out to hold for as long as the work takes')
}
