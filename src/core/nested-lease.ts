/**
 * A lease inside a lease: same key, same token, and it ends with the outer one at the latest. Its release only gives
 * the turn to the next sibling. The outermost release leaves the line, whatever is still nested in it: the signal of
 * what is nested then aborts, as if that was lost. Why it does not wait until all of them are released:
 * docs/decisions/075-a-nested-lease-ends-with-the-outer-one.md.
 */
import type { Ask } from './acquire.ts'
import type { Timer } from './clock.ts'
import { Cover } from './cover.ts'
import { UNLIMITED } from './engine.ts'
import { DeadlockError, LeaseLostError } from './errors.ts'
import type { Keeper } from './keeper.ts'
import type { CoreLease, Holding } from './lease.ts'
import { described, leasesAround } from './nesting.ts'
import { withoutContext } from './no-context.ts'
import { joinSignals, onAbort } from './on-abort.ts'
import { type LeaseView, showAs, viewLease } from './show.ts'
import { truthfulController } from './signal.ts'

export class NestedLease implements CoreLease {
  readonly #outer: CoreLease
  #cover: Cover | undefined
  #released: Promise<boolean> | undefined
  #lossError: LeaseLostError | undefined
  /** When its own `maxHold` is over. The outer one may end before. */
  #endsAt = Number.POSITIVE_INFINITY
  #timer: Timer | undefined
  #controller: AbortController | undefined
  #forgetOuter: (() => void) | undefined

  private constructor(outer: CoreLease) {
    this.#outer = outer
  }

  static {
    showAs('Lease', NestedLease)
  }

  /** Undefined: `waitMs` ran out while a sibling had the turn. */
  static async take(
    outer: CoreLease,
    asked: Holding & Pick<Ask, 'maxHoldMs'>,
    waitMs: number,
    signal?: AbortSignal,
  ): Promise<NestedLease | undefined> {
    signal?.throwIfAborted()
    refuseWidening(outer, asked)
    outer.assertHeld()
    if (NestedLease.#takesTurns(outer)) {
      if (waitMs > 0 && outer.cover.queue.taken) NestedLease.#refuseOwnTurn(outer)
      // A caller that waits for its turn is told when the outer lease ends.
      const { cover } = outer
      const joined = signal === undefined ? undefined : joinSignals([cover.signal, signal])
      try {
        const ending = joined?.signal ?? cover.signal
        if (!(await cover.queue.take(outer.keeper.clock, waitMs, ending))) return undefined
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
    lease.limitHold(outer.keeper.clock.now() + asked.maxHoldMs)
    return lease
  }

  /** Readers inside a reader need no turns. */
  static #takesTurns(outer: CoreLease): boolean {
    return outer.holding.limit === 1
  }

  /**
   * Throw if the turn is that of work which we are inside of: it would end only after us, and we would wait for it. So
   * it is also where the lease of that work was lost, as long as it is not released.
   */
  static #refuseOwnTurn(outer: CoreLease): void {
    for (const around of leasesAround(outer.keeper, outer.key)) {
      if (!around.inTheWay) continue
      for (let inner = around; inner instanceof NestedLease; inner = inner.#outer) {
        if (inner.#outer !== outer || inner.#released !== undefined) continue
        throw new DeadlockError(
          outer.key,
          `asking for a turn in a lease of '${outer.key}' inside work that has this turn already would wait for itself for ever; ` +
            "pass that work's own lease as { within: lease }, or release it before",
        )
      }
    }
  }

  get key(): string {
    return this.#outer.key
  }

  get cover(): Cover {
    this.#cover ??= new Cover(this.#outer.cover)
    return this.#cover
  }

  get holding(): Holding {
    return this.#outer.holding
  }

  get keeper(): Keeper {
    return this.#outer.keeper
  }

  get entryId(): string {
    return this.#outer.entryId
  }

  get token(): bigint | null {
    return this.#outer.token
  }

  get shared(): boolean {
    return this.#outer.shared
  }

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      const controller = truthfulController(() => this.lossError)
      this.#controller = controller
      const { lossError } = this
      if (lossError !== undefined) controller.abort(lossError)
      else if (this.#released === undefined) {
        // The first one aborts also when the holder is told to end, the other also when the outer lease is released.
        const { signal, stop } = joinSignals([this.#outer.signal, this.#outer.cover.signal])
        const end = (): void => controller.abort(this.lossError ?? signal.reason)
        if (signal.aborted) end()
        else onAbort(signal, end)
        this.#forgetOuter = stop
      }
    }
    return this.#controller.signal
  }

  get held(): boolean {
    return this.#released === undefined && this.lossError === undefined
  }

  /** Also when it is lost: then its work goes on inside of what it is nested in. */
  get inTheWay(): boolean {
    let outermost = this.#outer
    while (outermost instanceof NestedLease) outermost = outermost.#outer
    return this.#released === undefined && outermost.held
  }

  get remainingMs(): number {
    if (!this.held) return 0
    let endsAt = this.#endsAt
    let outer = this.#outer
    for (; outer instanceof NestedLease; outer = outer.#outer) endsAt = Math.min(endsAt, outer.#endsAt)
    return Math.min(outer.remainingMs, endsAt - outer.keeper.clock.now())
  }

  get protectedMs(): number {
    return this.#outer.protectedMs
  }

  /**
   * Also an outer lease that was released takes this one with it: the rest of the work was not covered by it. A look
   * asks the outer one once: if it asked twice, each level of nesting would double what it costs.
   */
  get lossError(): LeaseLostError | undefined {
    if (this.#lossError === undefined && this.#released === undefined) {
      const { ended } = this.#outer
      if (ended !== undefined) this.#lossError ??= ended
      else if (this.#endsAt < Number.POSITIVE_INFINITY && this.keeper.clock.now() >= this.#endsAt) this.#lose()
    }
    return this.#lossError
  }

  get ended(): LeaseLostError | undefined {
    return this.#released === undefined ? this.lossError : new LeaseLostError(this.key, this.token, 'released')
  }

  /** Its release, which lets the next sibling have the turn, is up to its work, as ever. */
  #lose(): void {
    this.#lossError = new LeaseLostError(this.key, this.token, 'maxHold')
    withoutContext(() => this.#controller?.abort(this.#lossError))
    this.#cover?.end(this.#lossError)
  }

  limitHold(at: number): void {
    this.#endsAt = Math.min(this.#endsAt, at)
    if (this.#endsAt === Number.POSITIVE_INFINITY) return
    // However it ends, no timer is left: also if it is never released, and ends with the outer lease.
    onAbort(this.cover.signal, () => this.#timer?.cancel())
    this.#setTimer()
  }

  #setTimer(): void {
    this.#timer?.cancel()
    const { clock } = this.keeper
    // A timer may fire a little early: then it is set once more.
    const look = (): void => withoutContext(() => (this.held ? this.#setTimer() : undefined))
    this.#timer = clock.timer(this.#endsAt - clock.now(), look)
  }

  assertHeld(): void {
    const { ended } = this
    if (ended !== undefined) throw ended
  }

  /**
   * Gives the turn to the next sibling, no more: when the key becomes free, and how long after, is up to the outermost
   * lease.
   */
  release(): Promise<boolean> {
    // The look at the clock may tell a listener of its end, and that may release it.
    const { held } = this
    if (this.#released === undefined) {
      this.#released = Promise.resolve(held)
      this.#forgetOuter?.()
      this.#cover?.end(new LeaseLostError(this.key, this.token, 'released'))
      if (NestedLease.#takesTurns(this.#outer)) this.#outer.cover.queue.give()
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
    `'${asked.key}' (${described(asked)}) cannot be nested in a lease that is not exclusive ` +
      `(${described(outer.holding)}): it would have to wait for the others`,
  )
}
