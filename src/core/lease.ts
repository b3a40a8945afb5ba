/**
 * The lease: what you hold. It says the truth about itself at any moment, because it looks at the clock and not at a
 * flag.
 */
import { type Duration, parseDuration } from './duration.ts'
import type { Entry } from './entry.ts'
import { LeaseLostError, type LossReason } from './errors.ts'
import type { Keeper } from './keeper.ts'
import { LocalQueue } from './local-queue.ts'
import { type Holding, type InnerLease, isShared } from './nesting.ts'
import { withoutContext } from './no-context.ts'
import { truthfulController } from './signal.ts'

export interface ReleaseOptions {
  readonly after?: Duration
}

export interface Lease extends AsyncDisposable {
  readonly key: string
  /**
   * The fencing token: higher than that of every earlier holder of this key. Hand it to the resource, and let the
   * resource refuse lower ones. Null where the engine has no fencing, and for several locks at once (see `tokens`). On
   * any wire: a decimal string.
   */
  readonly token: bigint | null
  /**
   * Whether others may hold beside it: a read lock, or a part of a semaphore. Its token then says nothing about who
   * came after whom among them, so guards let it read and refuse its writes.
   */
  readonly shared: boolean
  /**
   * Aborts when the lease is lost, with the `LeaseLostError` as its reason. Not when you release it. Pass it to
   * whatever you await.
   */
  readonly signal: AbortSignal
  /** Whether it is held now, by the clock. */
  readonly held: boolean
  /** How long it is certain to be held without another renewal. 0 when it is not. Renewals come by themselves. */
  readonly remainingMs: number
  /** Throws `LeaseLostError` unless it is held now. Call it right before a step that must not happen twice. */
  assertHeld(): void
  /**
   * Give it back. True: it was held until now and is free. False: it was lost before, or the engine could not be
   * reached, in which case Holdfast goes on trying until the lease has expired by itself. Calling it again changes
   * nothing. Never rejects.
   *
   * `after`: let the key stay busy for that much longer, even if this process ends before: a job that must not run
   * again within a minute, however fast it was.
   */
  release(options?: ReleaseOptions): Promise<boolean>
}

export class EntryLease implements InnerLease {
  readonly nested = false
  readonly keeper: Keeper
  readonly #entry: Entry
  #queue: LocalQueue | undefined
  #controller: AbortController | undefined
  #lossError: LeaseLostError | undefined
  #released: Promise<boolean> | undefined

  constructor(keeper: Keeper, entry: Entry) {
    this.keeper = keeper
    this.#entry = entry
    entry.onLost = (why) => this.#lost(why)
    // Lost between the grant and this line: say so at the first look.
    if (entry.lost !== undefined) this.#lost(entry.lost)
  }

  get key(): string {
    return this.#entry.key
  }

  /** Made when first asked for, like the signal: most leases have none nested in them. */
  get queue(): LocalQueue {
    this.#queue ??= new LocalQueue()
    return this.#queue
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
    return this.keeper.check(this.#entry)
  }

  get remainingMs(): number {
    if (!this.held) return 0
    return Math.max(0, this.#entry.deadline - this.keeper.clock.now())
  }

  /** Made when first asked for: most short leases never need one. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = truthfulController(() => this.keeper.check(this.#entry))
      if (this.lossError !== undefined) this.#controller.abort(this.lossError)
    }
    return this.#controller.signal
  }

  get lossError(): LeaseLostError | undefined {
    this.keeper.check(this.#entry)
    return this.#lossError
  }

  assertHeld(): void {
    if (this.held) return
    throw this.#lossError ?? new LeaseLostError(this.key, this.token, 'released')
  }

  release(options?: ReleaseOptions): Promise<boolean> {
    const afterMs = options?.after === undefined ? 0 : parseDuration(options.after, 'after')
    this.#released ??= this.#release(afterMs)
    return this.#released
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }

  #release(afterMs: number): Promise<boolean> {
    const { operation, grantedAt } = this.#entry
    const now = this.keeper.clock.now()
    this.keeper.check(this.#entry, now)
    this.keeper.publish.release({ operation, heldMs: now - grantedAt, lost: this.#entry.lost })
    return afterMs > 0 ? this.keeper.leaveAfter(this.#entry, afterMs) : this.keeper.leave(this.#entry)
  }

  #lost(why: LossReason): void {
    this.#lossError = new LeaseLostError(this.key, this.token, why)
    // Whoever listens is not inside the work of whoever noticed.
    withoutContext(() => this.#controller?.abort(this.#lossError))
  }
}
