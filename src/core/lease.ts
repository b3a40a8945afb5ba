/**
 * The lease: what you hold. `Lease` is what users see; `CoreLease` adds what only the core needs. `EntryLease`
 * (entry-lease.ts) stands for an entry in a line, `NestedLease` (nested-lease.ts) for a lease inside a lease.
 */
import type { Cover } from './cover.ts'
import type { Duration } from './duration.ts'
import type { LeaseLostError } from './errors.ts'
import type { Keeper } from './keeper.ts'
import type { Weighted } from './line.ts'

/** How to give a lease back. */
export interface ReleaseOptions {
  readonly after?: Duration
}

/** What a holder has: it is renewed by itself, until it is released or lost. */
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
   * Aborts when the lease is lost, with the `LeaseLostError` as its reason. Not when you release it, but that of a
   * nested lease also when the outer one is released. Pass it to whatever you await.
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
   * again within a minute, however fast it was. Throws `UnsupportedError`, and releases nothing, where a lock ends with
   * the session of its process (postgres-advisory).
   */
  release(options?: ReleaseOptions): Promise<boolean>
}

/** What is held, or asked for, of one key. */
export interface Holding extends Weighted {
  readonly key: string
}

/** What a lease of ours has besides what the user sees. */
export interface CoreLease extends Lease {
  readonly holding: Holding
  /** Where it is held. */
  readonly keeper: Keeper
  /**
   * The id of its entry: what the condition `holding` of a store names. A nested lease has none of its own, but that of
   * the lease around it.
   */
  readonly entryId: string
  /** The leases that are nested in this one: they take turns, and end with it. */
  readonly cover: Cover
  /** For how long no other can hold, whether or not this one still does: past its `maxHold` it stands in the line. */
  readonly protectedMs: number
  /** It is to be held until then, by the clock of its keeper, at most. */
  limitHold(at: number): void
  /**
   * Whether work under it that asks for the key again waits for what it is itself a part of: the key is held, and this
   * lease is not released. A nested lease that is lost is in the way until its release.
   */
  readonly inTheWay: boolean
  /** Why its work is covered no more, a release included; undefined while it is held. */
  readonly ended: LeaseLostError | undefined
  /** Why it was lost, if it was. */
  readonly lossError: LeaseLostError | undefined
}
