/**
 * Nesting: asking for a key inside work that already holds it.
 *
 * `using` remembers, in the async context of the work, what is held around it. Asking again for something that can
 * never be granted beside it is an immediate `DeadlockError` instead of a hang; with `reentrant: true` it is a nested
 * lease. Whether it can be granted is decided by the rule of the line: a read inside a read can, a write inside a read
 * cannot.
 *
 * Only what `using` holds counts, because only there the end of the work is known. What is asked for inside of it is
 * looked at, by `using` and by `acquire` alike. Contexts whose lease has ended (a forgotten promise) do not count.
 * Siblings of one `Promise.all` are strangers to each other: two of them asking for the same key queue, also inside a
 * common outer lease.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import { UNLIMITED } from './engine.ts'
import { DeadlockError, LeaseLostError } from './errors.ts'
import type { Keeper } from './keeper.ts'
import type { CoreLease, Holding } from './lease.ts'
import { heldCount, type Weighted } from './line.ts'
import { LocalQueue } from './local-queue.ts'
import { joinSignals } from './on-abort.ts'
import { type LeaseView, showAs, viewLease } from './show.ts'

export interface Frame {
  readonly keeper: Keeper
  readonly lease: CoreLease
  readonly parent: Frame | undefined
}

/**
 * What is held around the caller. Exported for the simulator, which ends it where nothing nests: until Node 24, every
 * promise pays for it from its first use on.
 */
export const context: AsyncLocalStorage<Frame | undefined> = new AsyncLocalStorage()

/** Run `work` so that whatever it asks for is known to be inside `leases`. */
export function runInside<Result>(
  keeper: Keeper,
  leases: readonly CoreLease[],
  work: () => Promise<Result>,
): Promise<Result> {
  let frame = context.getStore()
  for (const lease of leases) frame = { keeper, lease, parent: frame }
  return context.run(frame, work)
}

/** Whether we are inside the work of any `using`. */
export function insideWork(): boolean {
  return context.getStore() !== undefined
}

/** The innermost live lease of `key` around us, if any. */
export function enclosing(keeper: Keeper, key: string): CoreLease | undefined {
  for (const lease of around(keeper, key)) return lease
  return undefined
}

/** Throw if what is held around us can never let `asked` through. */
export function refuseDeadlock(keeper: Keeper, asked: Holding): void {
  const held: Weighted[] = []
  for (const lease of around(keeper, asked.key)) if (!lease.nested) held.push(lease.holding)
  if (held.length === 0 || heldCount([...held, asked]) === held.length + 1) return
  throw new DeadlockError(
    asked.key,
    `asking for '${asked.key}' (${described(asked)}) inside work that already holds it (${held.map(described).join(', ')}) would wait for itself for ever; ` +
      `if the nesting is meant, create the lock with { reentrant: true }, or pass { within: lease }`,
  )
}

function* around(keeper: Keeper, key: string): Iterable<CoreLease> {
  for (let frame = context.getStore(); frame !== undefined; frame = frame.parent) {
    if (frame.keeper === keeper && frame.lease.holding.key === key && frame.lease.held) yield frame.lease
  }
}

function described({ weight, limit }: Weighted): string {
  if (limit === 1) return 'exclusive'
  return limit === UNLIMITED ? 'read' : `${weight} of ${limit}`
}

/**
 * A lease inside a lease: same key, same token, same end. Its release only gives the turn to the next sibling; the
 * outermost release leaves the line.
 */
export class NestedLease implements CoreLease {
  readonly nested = true
  readonly queue: LocalQueue = new LocalQueue()
  readonly #outer: CoreLease
  #released: Promise<boolean> | undefined
  #lossError: LeaseLostError | undefined

  private constructor(outer: CoreLease) {
    this.#outer = outer
  }

  static {
    showAs('Lease', NestedLease)
  }

  /** Undefined: `waitMs` ran out while a sibling had the turn. */
  static async take(
    outer: CoreLease,
    asked: Holding,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<NestedLease | undefined> {
    refuseWidening(outer, asked)
    outer.assertHeld()
    if (NestedLease.#takesTurns(outer)) {
      // A caller that waits for its turn is told when the outer lease ends.
      const joined = signal === undefined ? undefined : joinSignals([outer.signal, signal])
      try {
        const ending = joined?.signal ?? outer.signal
        if (!(await outer.queue.take(outer.keeper.clock, waitMs, ending))) return undefined
      } finally {
        joined?.stop()
      }
    }
    const lease = new NestedLease(outer)
    try {
      outer.assertHeld()
    } catch (error) {
      await lease.release()
      throw error
    }
    return lease
  }

  /** Readers inside a reader need no turns. */
  static #takesTurns(outer: CoreLease): boolean {
    return outer.holding.limit === 1
  }

  get key(): string {
    return this.#outer.key
  }

  get holding(): Holding {
    return this.#outer.holding
  }

  get keeper(): Keeper {
    return this.#outer.keeper
  }

  get token(): bigint | null {
    return this.#outer.token
  }

  get shared(): boolean {
    return this.#outer.shared
  }

  get signal(): AbortSignal {
    return this.#outer.signal
  }

  get held(): boolean {
    return this.#released === undefined && this.#outer.held
  }

  get remainingMs(): number {
    return this.#released === undefined ? this.#outer.remainingMs : 0
  }

  /** Also an outer lease that was released takes this one with it: the rest of the work was not covered by it. */
  get lossError(): LeaseLostError | undefined {
    const { held, lossError } = this.#outer
    if (lossError !== undefined || held || this.#released !== undefined) return lossError
    this.#lossError ??= new LeaseLostError(this.key, this.token, 'released')
    return this.#lossError
  }

  assertHeld(): void {
    if (this.#released !== undefined) throw new LeaseLostError(this.key, this.token, 'released')
    this.#outer.assertHeld()
  }

  /**
   * Gives the turn to the next sibling, no more: when the key becomes free, and how long after, is up to the outermost
   * lease.
   */
  release(): Promise<boolean> {
    if (this.#released === undefined) {
      this.#released = Promise.resolve(this.#outer.held)
      if (NestedLease.#takesTurns(this.#outer)) this.#outer.queue.give()
    }
    return this.#released
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release()
  }

  toJSON(): LeaseView {
    return viewLease(this)
  }
}

/** Exclusive covers everything; a read covers reads; a part of a semaphore covers nothing. */
function refuseWidening(outer: CoreLease, asked: Holding): void {
  if (outer.holding.key !== asked.key) {
    throw new TypeError(`within must be a lease of '${asked.key}'; got one of '${outer.holding.key}'`)
  }
  const { limit } = outer.holding
  if (limit === 1 || (limit === UNLIMITED && asked.limit === UNLIMITED)) return
  throw new DeadlockError(
    asked.key,
    `'${asked.key}' (${described(asked)}) cannot be nested in a lease that is not exclusive (${described(outer.holding)}): it would have to wait for the others`,
  )
}
