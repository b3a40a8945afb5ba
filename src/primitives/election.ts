/**
 * Leader election: a mutex that is held for as long as one leads, and a window on who does.
 *
 * A leader that was stopped for longer than its ttl may still believe for a moment that it leads. `lease.token` is the
 * term: whatever the leader commands should carry it, and whoever obeys should refuse a lower one.
 */

import type { Clock } from '../core/clock.ts'
import type { Duration } from '../core/duration.ts'
import { LeaseLostError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import type { Lease } from '../core/lease.ts'
import { type LineLock, usingArguments, type Work } from '../core/lock.ts'
import { onAbort } from '../core/on-abort.ts'

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
  /**
   * Who leads now, and then every change; undefined while nobody does. Changes in quick succession may be seen as one.
   */
  observe(options?: { readonly signal?: AbortSignal }): AsyncGenerator<Leader | undefined, void, void>
}

export class LineElection implements Election {
  readonly #lock: LineLock
  readonly #keeper: Keeper

  constructor(lock: LineLock) {
    this.#lock = lock
    this.#keeper = lock.scope.keeper
  }

  get key(): string {
    return this.#lock.key
  }

  async lead<Result>(first: LeadOptions | Work<Result>, second?: Work<Result>): Promise<Result> {
    const [{ again = false, ...options }, work] = usingArguments<LeadOptions, Work<Result>>(first, second)
    for (;;) {
      let term: Lease | undefined
      try {
        return await this.#lock.using(options, (lease) => {
          term = lease
          return work(lease)
        })
      } catch (error) {
        if (!again || !endsTerm(error, this.key, term)) throw error
      }
    }
  }

  async leader(): Promise<Leader | undefined> {
    const { entries } = await this.#keeper.call('inspect', (engine) => engine.inspect(this.key))
    const first = entries.find(({ state }) => state === 'held')
    return first && { holder: first.holder, token: first.token }
  }

  observe(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Leader | undefined, void, void> {
    // A generator that waits cannot be told to end: what it waits for is.
    const ending = new AbortController()
    const signal = options.signal === undefined ? ending.signal : AbortSignal.any([options.signal, ending.signal])
    const changes = this.#changes(signal)
    return {
      next: () => changes.next(),
      return: (value) => {
        ending.abort()
        return changes.return(value)
      },
      throw: (error) => {
        ending.abort()
        return changes.throw(error)
      },
      [Symbol.asyncIterator]() {
        return this
      },
      async [Symbol.asyncDispose]() {
        await this.return()
      },
    }
  }

  async *#changes(signal: AbortSignal): AsyncGenerator<Leader | undefined, void, void> {
    const { clock } = this.#keeper
    const bell = new Bell(clock)
    const forget = onAbort(signal, () => bell.ring())
    let watching: AsyncDisposable | undefined
    try {
      watching = await this.#watch(() => bell.ring())
      const intervalMs = this.#lock.spec.ttlMs / (watching === undefined ? 10 : 3)
      let last: Leader | undefined | null = null
      let seenAt = clock.now()
      while (!signal.aborted) {
        const seen = await this.#look(seenAt)
        if (seen !== undefined && (last === null || !sameLeader(last, seen.leader))) yield seen.leader
        if (seen !== undefined) {
          last = seen.leader
          // After the yield: an observer may take its time.
          seenAt = clock.now()
        }
        // The watch is a hint and can be lost; looking now and then is the promise.
        await bell.rung(intervalMs, () => signal.aborted)
      }
    } finally {
      forget()
      await watching?.[Symbol.asyncDispose]()
    }
  }

  /** Undefined: no answer. As for waiters, an outage shorter than the ttl is our business. */
  async #look(seenAt: number): Promise<{ leader: Leader | undefined } | undefined> {
    try {
      return { leader: await this.leader() }
    } catch (error) {
      if (this.#keeper.clock.now() - seenAt >= this.#lock.spec.ttlMs) throw error
      return undefined
    }
  }

  /** Undefined: this engine cannot watch, or not now. */
  async #watch(ring: () => void): Promise<AsyncDisposable | undefined> {
    let late = false
    const watching = this.#keeper.call('watch', async (engine) => {
      const watch = await engine.watch?.(this.key, ring)
      if (late) await watch?.[Symbol.asyncDispose]()
      return watch
    })
    return watching.catch(() => {
      late = true
      return undefined
    })
  }
}

function sameLeader(a: Leader | undefined, b: Leader | undefined): boolean {
  return a?.token === b?.token && a?.holder === b?.holder
}

/**
 * Whether this error says that the term is over, and not that something else was lost or that the locks were closed.
 */
function endsTerm(error: unknown, key: string, term: Lease | undefined): boolean {
  if (term === undefined || !(error instanceof LeaseLostError)) return false
  return error.key === key && error.token === term.token && error.why !== 'closed'
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
