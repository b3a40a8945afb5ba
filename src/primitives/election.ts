/**
 * Leader election: a mutex that is held for as long as one leads, and a window on who does.
 *
 * A leader that was stopped for longer than its ttl may still believe for a moment that it leads. `lease.token` is the
 * term: whatever the leader commands should carry it, and what obeys should refuse a lower one.
 */

import type { Duration } from '../core/duration.ts'
import type { Line } from '../core/engine.ts'
import type { EntryLease } from '../core/entry-lease.ts'
import { LeaseLostError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { type AcquireOptions, type LineLock, usingArguments, type Work } from '../core/lock.ts'
import { joinSignals, onAbort } from '../core/on-abort.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import { showAs } from '../core/show.ts'
import { endable, watchLine } from '../core/watch.ts'

/** How to stand for election. */
export interface LeadOptions {
  /** Stop campaigning. While leading, ending is up to the work: it resigns by returning. */
  readonly signal?: AbortSignal
  /** How long to campaign; for ever unless given. */
  readonly wait?: Duration
  /** How long one term may last; that of the election unless given. With `again`, the leader then stands again. */
  readonly maxHold?: Duration
  /**
   * Resign when this aborts. A candidate stops campaigning, and is rejected with the reason of the signal. A leader's
   * `lease.signal` aborts with that reason; it leads, and is renewed, until its work has settled. Neither stands again.
   */
  readonly resignOn?: AbortSignal
  /** Campaign again after a loss, instead of rejecting with `LeaseLostError`. */
  readonly again?: boolean
}

const LEAD_OPTIONS: OptionNames<LeadOptions> = { signal: true, wait: true, maxHold: true, again: true, resignOn: true }

/** How to watch who leads. */
export interface ObserveOptions {
  /** Ends the watch. */
  readonly signal?: AbortSignal
}

const OBSERVE_OPTIONS: OptionNames<ObserveOptions> = { signal: true }

/** Who leads. */
export interface Leader {
  readonly holder: string
  /** The term: grows with every new leader. Null where the engine has no fencing. */
  readonly token: bigint | null
}

/** One leader at a time, of all processes that stand for it. */
export interface Election {
  readonly key: string
  /** Campaign, run the work as leader, resign when it settles. */
  lead<Result>(work: Work<Result>): Promise<Result>
  lead<Result>(options: LeadOptions, work: Work<Result>): Promise<Result>
  /** Who leads now; undefined while there is no leader. */
  leader(): Promise<Leader | undefined>
  /**
   * Who leads now, and then every change; undefined while there is no leader. Changes in quick succession may be seen
   * as one. Ends when the locks are closed.
   */
  observe(options?: ObserveOptions): AsyncGenerator<Leader | undefined, void, void>
}

export class LineElection implements Election {
  readonly #lock: LineLock
  readonly #keeper: Keeper

  static {
    showAs('Election', LineElection)
  }

  constructor(lock: LineLock) {
    this.#lock = lock
    this.#keeper = lock.scope.keeper
  }

  get key(): string {
    return this.#lock.key
  }

  async lead<Result>(first: LeadOptions | Work<Result>, second?: Work<Result>): Promise<Result> {
    const [given, work] = usingArguments<LeadOptions, Work<Result>>(first, second)
    checkOptions('lead()', given, LEAD_OPTIONS)
    const { again = false, resignOn, ...options } = given
    if (resignOn !== undefined && !(resignOn instanceof AbortSignal))
      throw new TypeError(`resignOn must be an AbortSignal; got ${typeof resignOn}`)
    for (;;) {
      resignOn?.throwIfAborted()
      let term: EntryLease | undefined
      try {
        return await this.#term(options, resignOn, (lease) => {
          term = lease
          return work(lease)
        })
      } catch (error) {
        if (!again || resignOn?.aborted || !endsTerm(error, term)) throw error
      }
    }
  }

  /** Campaign and lead once. */
  async #term<Result>(
    options: AcquireOptions,
    resignOn: AbortSignal | undefined,
    work: Work<Result, EntryLease>,
  ): Promise<Result> {
    if (resignOn === undefined) return this.#lock.using(options, (lease) => work(lease as EntryLease))
    const campaign = joinSignals([options.signal, resignOn])
    let forget: (() => void) | undefined
    try {
      return await this.#lock.using({ ...options, signal: campaign.signal }, (held) => {
        const lease = held as EntryLease
        const resign = (): void => lease.tellToEnd(resignOn.reason)
        forget = onAbort(resignOn, resign)
        if (resignOn.aborted) resign()
        return work(lease)
      })
    } finally {
      campaign.stop()
      forget?.()
    }
  }

  async leader(): Promise<Leader | undefined> {
    return leaderOf(await this.#keeper.call('inspect', (engine) => engine.inspect(this.key)))
  }

  observe(options: ObserveOptions = {}): AsyncGenerator<Leader | undefined, void, void> {
    checkOptions('observe()', options, OBSERVE_OPTIONS)
    return endable(options.signal, (signal) => this.#changes(signal))
  }

  toJSON(): object {
    return { key: this.key, engine: this.#keeper.engine.name }
  }

  async *#changes(signal: AbortSignal): AsyncGenerator<Leader | undefined, void, void> {
    const { ttlMs } = this.#lock.spec
    // As for waiters, an outage shorter than the ttl is not the observer's business.
    const timing = { everyMs: ttlMs / 3, unwatchedEveryMs: ttlMs / 10, toleratedMs: ttlMs }
    let last: Leader | undefined | null = null
    for await (const line of watchLine(this.#keeper, this.key, timing, signal)) {
      const leader = leaderOf(line)
      if (last === null || !sameLeader(last, leader)) yield leader
      last = leader
    }
  }
}

function leaderOf({ entries }: Line): Leader | undefined {
  const first = entries.find(({ state }) => state === 'held')
  return first && { holder: first.holder, token: first.token }
}

function sameLeader(a: Leader | undefined, b: Leader | undefined): boolean {
  return a?.token === b?.token && a?.holder === b?.holder
}

/**
 * Whether this error says that the term was lost, and not that another lease was, like one that is nested in the term,
 * or that the locks were closed.
 */
function endsTerm(error: unknown, term: EntryLease | undefined): boolean {
  const why = term?.lossError?.why
  if (term === undefined || why === undefined || why === 'closed' || !(error instanceof LeaseLostError)) return false
  return error.key === term.key && error.token === term.token && error.why === why
}
