/**
 * Several locks at once, as one lock: all or nothing.
 *
 * They are taken in bytewise order of their keys, and while one is waited for, only those before it are held: so two
 * `all`s can never wait for each other in a circle. The free ones are tried together first; when all are free, one
 * round trip is all it costs.
 */
import { timeoutError, type WaitLimit } from '../core/acquire.ts'
import { releaseAfterMs } from '../core/entry-lease.ts'
import { AcquireTimeoutError, ClosedError, DeadlockError, EngineError, type LeaseLostError } from '../core/errors.ts'
import { withOutcome } from '../core/failed-call.ts'
import { FirstCall } from '../core/first-call.ts'
import { compareKeys } from '../core/keys.ts'
import type { CoreLease, Lease, ReleaseOptions } from '../core/lease.ts'
import {
  ACQUIRE_OPTIONS,
  type AcquireOptions,
  type LineLock,
  type Lock,
  maxHoldMsOf,
  type Scope,
  TRY_OPTIONS,
  usingArguments,
  type Work,
  waitMsOf,
  workUnder,
} from '../core/lock.ts'
import { insideWork, refuseDeadlock } from '../core/nesting.ts'
import { joinSignals } from '../core/on-abort.ts'
import { checkOptions } from '../core/options.ts'
import { type LeaseView, showAs, viewLease } from '../core/show.ts'
import { truthfulController } from '../core/signal.ts'

/** A lease of several keys. Lost as soon as one of them is. */
export interface AllLease extends Lease {
  /** The fencing token of each key. `token` is that of the only key, or null where there are several. */
  readonly tokens: ReadonlyMap<string, bigint | null>
}

export class AllLock implements Lock<AcquireOptions, AllLease> {
  readonly key: string
  readonly #scope: Scope
  readonly #locks: readonly LineLock[]

  constructor(scope: Scope, locks: readonly LineLock[]) {
    if (locks.length === 0) throw new RangeError('all takes at least one lock')
    this.#scope = scope
    this.#locks = locks.toSorted((a, b) => compareKeys(a.key, b.key))
    this.#locks.forEach(({ key }, index) => {
      if (key !== this.#locks[index + 1]?.key) return
      throw new DeadlockError(key, `all was given '${key}' twice: the second would wait for the first for ever`)
    })
    this.key = this.#locks.map(({ key }) => key).join(' + ')
  }

  static {
    showAs('Lock', AllLock)
  }

  async acquire(options: AcquireOptions = {}): Promise<AllLease> {
    checkOptions('acquire()', options, ACQUIRE_OPTIONS)
    if (insideWork() && waitMsOf(options) > 0) this.#refuseDeadlock()
    return this.#acquire(options)
  }

  async tryAcquire(options: Omit<AcquireOptions, 'wait'> = {}): Promise<AllLease | undefined> {
    checkOptions('tryAcquire()', options, TRY_OPTIONS)
    const maxHoldMs = maxHoldMsOf(options)
    const { parts, error, givenBack } = await this.#tryEach(options.signal)
    if (error === undefined && parts.length === this.#locks.length) return this.#together(parts, maxHoldMs)
    // Together: a release that is not answered does not keep the others from being sent.
    const left = await Promise.all([givenBack, giveBack(parts)])
    if (error !== undefined) throw left.every(Boolean) ? error : inDoubt(error)
    return undefined
  }

  async using<Result>(
    first: AcquireOptions | Work<Result, AllLease>,
    second?: Work<Result, AllLease>,
  ): Promise<Result> {
    const [options, work] = usingArguments<AcquireOptions, Work<Result, AllLease>>(first, second)
    checkOptions('using()', options, ACQUIRE_OPTIONS)
    const { keeper, order } = this.#scope
    const run = async (): Promise<Result> => {
      this.#refuseDeadlock()
      const lease = await this.#acquire(options)
      return workUnder(keeper, lease, lease.parts, work)
    }
    return order === undefined ? run() : order.apart(run)
  }

  toJSON(): object {
    return { key: this.key, kind: 'all', engine: this.#scope.keeper.engine.name }
  }

  #refuseDeadlock(): void {
    for (const { spec } of this.#locks) refuseDeadlock(this.#scope.keeper, spec)
  }

  async #acquire(options: AcquireOptions): Promise<PartsLease> {
    const waitMs = waitMsOf(options)
    const maxHoldMs = maxHoldMsOf(options)
    const { keeper } = this.#scope
    const startedAt = keeper.clock.now()
    const deadline = startedAt + waitMs
    this.#scope.order?.together(this.#locks.map(({ key }) => key))
    const { parts, error: unanswered, mayRemain } = await this.#tryEach(options.signal)
    // As for one lock: an outage shorter than the ttl is not the caller's business, as long as it waits.
    const bearable = unanswered instanceof EngineError && unanswered.transient && keeper.clock.now() < deadline
    let answered = unanswered === undefined
    try {
      if (unanswered !== undefined && !bearable) throw unanswered
      for (const lock of this.#locks.slice(parts.length)) {
        const leftMs = deadline - keeper.clock.now()
        if (leftMs <= 0) throw await timeoutError(keeper, lock.key, waitMs)
        parts.push(await acquireNext(lock, parts, { waitMs: leftMs, signal: options.signal, answered }))
        answered = true
      }
    } catch (error) {
      // Not awaited: a caller who cancels is not kept waiting for an engine that does not answer.
      void giveBack(parts)
      if (!(error instanceof AcquireTimeoutError)) throw mayRemain || parts.length > 0 ? inDoubt(error) : error
      const { key, ahead, holders, cause } = error
      const waitedMs = keeper.clock.now() - startedAt
      throw new AcquireTimeoutError(key, waitedMs, ahead, holders, cause === undefined ? undefined : { cause })
    }
    return this.#together(parts, maxHoldMs)
  }

  /** One lease of all of them, if none was lost while another was waited for. */
  #together(parts: readonly CoreLease[], maxHoldMs: number | undefined): PartsLease {
    // From when all are held: waiting for the others is no holding.
    const now = this.#scope.keeper.clock.now()
    if (maxHoldMs !== undefined) for (const part of parts) part.limitHold(now + maxHoldMs)
    const lease = new PartsLease(this.key, parts)
    if (lease.lossError === undefined) return lease
    void giveBack(parts)
    throw lease.lossError
  }

  /**
   * Take what is free, in one batch. Answers the leases up to the first one that was not had, in order, and gives back
   * those behind it. `error`: why it was not had, unless it was busy. `givenBack` resolves when those behind it were
   * given back, with whether they surely were. It is apart, because the caller must not wait for that before it has the
   * leases. `mayRemain`: a lock that is not in `parts` may be in its line for a while.
   */
  async #tryEach(
    signal: AbortSignal | undefined,
  ): Promise<{ parts: CoreLease[]; error: unknown; givenBack: Promise<boolean>; mayRemain: boolean }> {
    const tries = await Promise.allSettled(
      this.#locks.map((lock) => lock.tryAcquire(signal === undefined ? {} : { signal })),
    )
    const taken = tries.map((result) => (result.status === 'fulfilled' ? result.value : undefined))
    const errors = tries.flatMap((result) => (result.status === 'rejected' ? [result.reason as unknown] : []))
    const doubtful = errors.some((error) => error instanceof EngineError && error.outcome === 'unknown')
    const missing = taken.indexOf(undefined)
    const kept = missing < 0 ? taken.length : missing
    const behind = taken.slice(kept).filter((lease) => lease !== undefined)
    return {
      parts: taken.slice(0, kept) as CoreLease[],
      error: doubtful ? inDoubt(errors[0]) : errors[0],
      givenBack: giveBack(behind),
      mayRemain: doubtful || behind.length > 0,
    }
  }
}

/** Wait for one more. Losing a part meanwhile ends the wait: what is left would not be all. */
async function acquireNext(lock: LineLock, parts: readonly CoreLease[], limit: WaitLimit): Promise<CoreLease> {
  const joined = joinSignals([...parts.map((part) => part.signal), limit.signal])
  try {
    return await lock.acquirePart({ ...limit, signal: joined.signal })
  } finally {
    joined.stop()
  }
}

/** Answers whether all of them were there, and are out of their lines. */
async function giveBack(leases: readonly CoreLease[]): Promise<boolean> {
  const released = await Promise.all(leases.map((lease) => lease.release()))
  return released.every(Boolean)
}

/** What failed may not have been applied. But another part may still be in its line. */
function inDoubt(error: unknown): unknown {
  // What is closed takes all of it out of the lines by itself.
  return error instanceof EngineError && !(error instanceof ClosedError) ? withOutcome(error, 'unknown') : error
}

class PartsLease implements AllLease {
  readonly key: string
  readonly #parts: readonly CoreLease[]
  readonly tokens: ReadonlyMap<string, bigint | null>
  #signal: AbortSignal | undefined
  /** A listener that hears of the end of one part may release all of them again, before the others are. */
  readonly #releasing = new FirstCall<boolean>()

  constructor(key: string, parts: readonly CoreLease[]) {
    this.key = key
    this.#parts = parts
    this.tokens = new Map(parts.map((part) => [part.key, part.token]))
  }

  static {
    showAs('Lease', PartsLease)
  }

  /** As for any lease, and the token of each key. */
  toJSON(): LeaseView & { readonly tokens: Readonly<Record<string, string | null>> } {
    const tokens = this.#parts.map((part) => [part.key, part.token === null ? null : String(part.token)] as const)
    return { ...viewLease(this), tokens: Object.fromEntries(tokens) }
  }

  /** The lease of each key. */
  get parts(): readonly CoreLease[] {
    return this.#parts
  }

  get token(): bigint | null {
    return this.#parts.length === 1 ? (this.#parts[0] as CoreLease).token : null
  }

  get shared(): boolean {
    return this.#parts.some((part) => part.shared)
  }

  get held(): boolean {
    return this.#parts.every((part) => part.held)
  }

  get remainingMs(): number {
    return Math.min(...this.#parts.map((part) => part.remainingMs))
  }

  get lossError(): LeaseLostError | undefined {
    for (const part of this.#parts) if (part.lossError !== undefined) return part.lossError
    return undefined
  }

  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      const controller = truthfulController(() => this.lossError)
      for (const part of this.#parts) {
        const abort = (): void => controller.abort(part.lossError)
        if (part.signal.aborted) abort()
        else part.signal.addEventListener('abort', abort, { once: true })
      }
      this.#signal = controller.signal
    }
    return this.#signal
  }

  assertHeld(): void {
    for (const part of this.#parts) part.assertHeld()
  }

  async release(options?: ReleaseOptions): Promise<boolean> {
    for (const { keeper } of this.#parts) releaseAfterMs(options, keeper.engine)
    return await this.#releasing.do(() => this.#release(options))
  }

  async #release(options: ReleaseOptions | undefined): Promise<boolean> {
    const released = await Promise.all(this.#parts.map((part) => part.release(options)))
    return released.every(Boolean)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }
}
