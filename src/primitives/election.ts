/**
 * Leader election: a mutex that is held for as long as one leads, and a window on who does.
 *
 * A leader that was stopped for longer than its ttl may still believe for a moment that it leads. `lease.token` is the term: whatever the leader commands
 * should carry it, and whoever obeys should refuse a lower one.
 */
import { onAbort } from '../core/cancel.ts'
import type { Clock } from '../core/clock.ts'
import type { Duration } from '../core/duration.ts'
import type { Engine } from '../core/engine.ts'
import { LeaseLostError } from '../core/errors.ts'
import { type LineLock, usingArguments, type Work } from '../core/lock.ts'

export interface LeadOptions {
  /** Stop campaigning. While leading, ending is up to the work: it resigns by returning. */
  readonly signal?: AbortSignal
  /** How long to campaign; for ever unless given. */
  readonly wait?: Duration
  /** Campaign again after a loss, instead of rejecting with `LeaseLostError`. */
  readonly again?: boolean
}

/** Who leads. */
export interface Leader {
  readonly holder: string
  /** The term: grows with every new leader. Null where the engine has no fencing. */
  readonly token: bigint | null
}

export interface Election {
  readonly key: string
  /** Campaign, run the work as leader, resign when it settles. */
  lead<Result>(work: Work<Result>): Promise<Result>
  lead<Result>(options: LeadOptions, work: Work<Result>): Promise<Result>
  /** Who leads now; undefined if nobody does. */
  leader(): Promise<Leader | undefined>
  /** Who leads now, and then every change; undefined while nobody does. Changes in quick succession may be seen as one. */
  observe(options?: { readonly signal?: AbortSignal }): AsyncGenerator<Leader | undefined, void, void>
}

export class LineElection implements Election {
  readonly #lock: LineLock
  readonly #engine: Engine
  readonly #clock: Clock

  constructor(lock: LineLock) {
    this.#lock = lock
    this.#engine = lock.scope.keeper.engine
    this.#clock = lock.scope.keeper.clock
  }

  get key(): string {
    return this.#lock.key
  }

  async lead<Result>(first: LeadOptions | Work<Result>, second?: Work<Result>): Promise<Result> {
    const [{ again = false, ...options }, work] = usingArguments<LeadOptions, Work<Result>>(first, second)
    for (;;) {
      let led = false
      try {
        return await this.#lock.using(options, (lease) => {
          led = true
          return work(lease)
        })
      } catch (error) {
        // A loss while campaigning (an eviction from the line) is an answer, not a term that ended.
        if (!again || !led || !(error instanceof LeaseLostError) || error.why === 'closed') throw error
      }
    }
  }

  async leader(): Promise<Leader | undefined> {
    const { entries } = await this.#engine.inspect(this.key)
    const first = entries.find(({ state }) => state === 'held')
    return first && { holder: first.holder, token: first.token }
  }

  async *observe(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Leader | undefined, void, void> {
    const { signal } = options
    const bell = new Bell(this.#clock)
    const ring = (): void => bell.ring()
    const forget = onAbort(signal, ring)
    const watching = await this.#engine.watch?.(this.key, ring)
    try {
      let last: Leader | undefined | null = null
      while (!signal?.aborted) {
        const leader = await this.leader()
        if (last === null || leader?.token !== last?.token || leader?.holder !== last?.holder) yield leader
        last = leader
        // The watch is a hint and can be lost; looking now and then is the promise.
        await bell.rung(this.#lock.spec.ttlMs / (watching === undefined ? 10 : 3), () => signal?.aborted === true)
      }
    } finally {
      forget()
      await watching?.[Symbol.asyncDispose]()
    }
  }
}

/** Sleep until somebody rings, or for a while. A ring while nobody sleeps wakes the next sleeper at once. */
class Bell {
  readonly #clock: Clock
  #rang = false
  #wake: (() => void) | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  ring(): void {
    this.#rang = true
    this.#wake?.()
  }

  async rung(atMostMs: number, over: () => boolean): Promise<void> {
    if (!this.#rang && !over()) {
      const alive = this.#clock.stayAlive()
      await new Promise<void>((resolve) => {
        const timer = this.#clock.timer(atMostMs, resolve)
        this.#wake = () => {
          timer.cancel()
          resolve()
        }
      })
      this.#wake = undefined
      alive.cancel()
    }
    this.#rang = false
  }
}
