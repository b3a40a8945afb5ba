/**
 * The lease of an entry in a line. It says the truth about itself at any moment, because it looks at the clock and not
 * at a flag.
 */
import { Cover } from './cover.ts'
import { formatDuration, parseDuration } from './duration.ts'
import type { Engine } from './engine.ts'
import type { Entry } from './entry.ts'
import { LeaseLostError, type LossReason, UnsupportedError } from './errors.ts'
import { FirstCall } from './first-call.ts'
import type { Keeper } from './keeper.ts'
import type { CoreLease, Holding, ReleaseOptions } from './lease.ts'
import { isShared } from './line.ts'
import { withoutContext } from './no-context.ts'
import { checkOptions, type OptionNames } from './options.ts'
import { type LeaseView, showAs, viewLease } from './show.ts'
import { truthfulController } from './signal.ts'

const RELEASE_OPTIONS: OptionNames<ReleaseOptions> = { after: true }

export class EntryLease implements CoreLease {
  readonly #keeper: Keeper
  readonly #entry: Entry
  #cover: Cover | undefined
  #controller: AbortController | undefined
  #lossError: LeaseLostError | undefined
  /** A listener that hears of a loss, or of the end of a nested lease, may release this one again. */
  readonly #releasing = new FirstCall<boolean>()

  static {
    showAs('Lease', EntryLease)
  }

  constructor(keeper: Keeper, entry: Entry) {
    this.#keeper = keeper
    this.#entry = entry
    entry.onLost = (why) => this.#lost(why)
    // Lost between the grant and this line: it is told now, and not again.
    if (entry.lost !== undefined) this.#lost(entry.lost)
  }

  get key(): string {
    return this.#entry.key
  }

  get keeper(): Keeper {
    return this.#keeper
  }

  get entryId(): string {
    return this.#entry.id
  }

  /** Made when first asked for, like the signal: most leases have none nested in them. */
  get cover(): Cover {
    this.#cover ??= new Cover()
    return this.#cover
  }

  get holding(): Holding {
    return this.#entry
  }

  get token(): bigint | null {
    return this.#entry.token
  }

  get shared(): boolean {
    return isShared(this.#entry)
  }

  get held(): boolean {
    return this.#keeper.entries.check(this.#entry)
  }

  /** Lost, it is not in the way for ever: what is left of it in the line expires. */
  get inTheWay(): boolean {
    return this.held
  }

  get remainingMs(): number {
    if (!this.held) return 0
    return Math.max(0, Math.min(this.#entry.deadline, this.#entry.endsAt) - this.#keeper.clock.now())
  }

  get protectedMs(): number {
    return Math.max(0, this.#entry.deadline - this.#keeper.clock.now())
  }

  limitHold(at: number): void {
    this.#keeper.entries.limitHold(this.#entry, at)
  }

  /** Made when first asked for: most short leases never need one. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = truthfulController(() => this.#keeper.entries.check(this.#entry))
      if (this.lossError !== undefined) this.#controller.abort(this.lossError)
    }
    return this.#controller.signal
  }

  get lossError(): LeaseLostError | undefined {
    this.#keeper.entries.check(this.#entry)
    return this.#lossError
  }

  get ended(): LeaseLostError | undefined {
    if (this.held) return undefined
    return this.#lossError ?? new LeaseLostError(this.key, this.token, 'released')
  }

  assertHeld(): void {
    const { ended } = this
    if (ended !== undefined) throw ended
  }

  release(options?: ReleaseOptions): Promise<boolean> {
    const afterMs = releaseAfterMs(options, this.#keeper.engine)
    return this.#releasing.do(() => this.#release(afterMs, false))
  }

  /** For recipes: a change of the store has released it, in its step. */
  releasedByStore(): void {
    void this.#releasing.do(() => this.#release(0, true))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }

  toJSON(): LeaseView {
    return viewLease(this)
  }

  #release(afterMs: number, byStore: boolean): Promise<boolean> {
    const { operation, grantedAt } = this.#entry
    const now = this.#keeper.clock.now()
    this.#keeper.entries.check(this.#entry, now)
    const { lost: why } = this.#entry
    const heldMs = now - grantedAt
    this.#keeper.publish.release(why === undefined ? { operation, heldMs } : { operation, heldMs, why })
    const left = this.#leave(afterMs, byStore)
    this.#cover?.end(this.#lossError ?? new LeaseLostError(this.key, this.token, 'released'))
    return left
  }

  #leave(afterMs: number, byStore: boolean): Promise<boolean> {
    const { entries } = this.#keeper
    if (byStore) return entries.leftByStore(this.#entry)
    return afterMs > 0 ? entries.leaveAfter(this.#entry, afterMs) : entries.leave(this.#entry)
  }

  /** Tell the holder to end, with this reason. It goes on holding until it has: a leader resigns so. */
  tellToEnd(reason: unknown): void {
    if (this.signal.aborted) return
    withoutContext(() => this.#controller?.abort(reason))
  }

  #lost(why: LossReason): void {
    const { operation, token } = this.#entry
    this.#lossError = new LeaseLostError(this.key, token, why)
    this.#keeper.publish.loss({ operation, token, why })
    // Listeners do not run in the async context of the code that noticed the loss.
    withoutContext(() => this.#controller?.abort(this.#lossError))
    this.#cover?.end(this.#lossError)
  }
}

/** For how long the key is to stay busy after a release with these options. Throws if they are wrong. */
export function releaseAfterMs(options: ReleaseOptions | undefined, engine: Engine): number {
  if (options === undefined) return 0
  checkOptions('release()', options, RELEASE_OPTIONS)
  const afterMs = options.after === undefined ? 0 : parseDuration(options.after, 'after')
  checkOutlives(afterMs, engine)
  return afterMs
}

/**
 * Throws where no key stays busy for so long behind its process: a lease ends with its session, or lives for `maxTtlMs`
 * at most.
 */
export function checkOutlives(afterMs: number, { name, traits }: Engine): void {
  if (afterMs === 0) return
  if (traits.ttl === 'session')
    throw new UnsupportedError(name, `${name} cannot keep a key busy behind its process; use any other engine`)
  if (traits.maxTtlMs === undefined || afterMs <= traits.maxTtlMs) return
  const most = formatDuration(traits.maxTtlMs)
  throw new UnsupportedError(name, `${name} keeps a key busy behind its process for ${most} at most`)
}
