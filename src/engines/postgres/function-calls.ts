/**
 * How a function of ours is called, and what is done when a call does not go as usual: functions that are not there,
 * rows that another transaction has locked, and a server that may have crashed.
 */

import type { PostgresCallLimits, PostgresWire } from '../../clients/postgres/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { EntryName, Place } from '../../core/engine.ts'
import type { EngineError } from '../../core/errors.ts'
import { calledFor, type EngineCall, failingAs, withOutcome } from '../../core/failed-call.ts'
import { type PostgresReply, replyOf } from './codec.ts'
import { asEngineError, isMissing, isRowLocked } from './errors.ts'
import { firstUse } from './migration.ts'
import { type PostgresNames, renamed } from './names.ts'

/** A connection that is not there after this long is not waited for: it would be time to ask again. */
const CONNECT_MS = 3000
/** A first connection takes some tens of milliseconds: a call with a short limit gives it those. */
const LEAST_CONNECT_MS = 50
/** No answer is waited for longer, whatever the core says. */
const ANSWER_MS = 10_000
/** How long a call waits for a row that another transaction has locked; ours lock one for the time of a commit. */
export const ROW_WAIT_MS = 1000
const LEAST_ROW_WAIT_MS = 20

/** Of each function, the types of its parameters. */
const PARAMETERS = {
  enter: 'text[] text[] text[] integer[] integer[] bigint[] boolean[] integer[] text integer',
  enter_one: 'text text text integer integer bigint boolean text integer',
  renew: 'text[] text[] bigint[] boolean[] text integer',
  leave: 'text[] text[] text integer',
  leave_one: 'text text text integer',
  evict: 'text bigint boolean text integer',
  inspect: 'text text',
  list: 'text boolean integer text',
  tidy: 'text[]',
  sweep: 'text',
  locked_keys: 'text[]',
  get: 'text[]',
  put: 'text[] text[] bigint[] bigint[] text[] boolean[] bigint[] bigint[] integer',
  begin: 'text[] text[] bigint[] bigint[] boolean[] bigint[] bigint[] text[] text[] bigint[] text integer',
  end: 'text[] text[] bigint[] bigint[] boolean[] bigint[] bigint[] text[] text integer',
  take: 'text[] integer[] bigint[] integer[] integer[] bigint[] bigint[] bigint[] bigint[] bigint[] integer',
  hold: 'text[] integer[] text[] text[] text[] bigint[] bigint[] boolean[] integer',
  facts: 'text text',
  records: 'text boolean integer',
  forget: 'integer',
} as const

export type PostgresFunction = keyof typeof PARAMETERS

/** What the core has called, for messages of errors, where that is not the name of the function. */
const CALLS: Readonly<Record<Exclude<PostgresFunction, EngineCall>, EngineCall>> = {
  enter_one: 'enter',
  leave_one: 'leave',
  tidy: 'leave',
  sweep: 'leave',
  locked_keys: 'enter',
  begin: 'put',
  end: 'put',
  facts: 'put',
  records: 'list',
  forget: 'put',
}

/**
 * Calls, each within a limit of time. Where the functions are not there, they are made first. The database is not asked
 * whether they are there: nearly always they are, and the question would cost a round trip.
 */
export class PostgresCaller {
  readonly #wire: PostgresWire
  readonly #names: PostgresNames
  readonly #statements: Readonly<Record<PostgresFunction, string>>
  #making: Promise<unknown> | undefined

  constructor(wire: PostgresWire, names: PostgresNames) {
    this.#wire = wire
    this.#names = names
    const statements = Object.entries(PARAMETERS).map(([name, types]) => [name, callOf(name, types.split(' '), names)])
    this.#statements = Object.fromEntries(statements) as Record<PostgresFunction, string>
  }

  /**
   * Rejects with an `EngineError` that names `verb`, which the function is called for. `limitMs`: a caller with little
   * time says how much.
   */
  call(
    name: PostgresFunction,
    values: readonly string[],
    limitMs: number = ANSWER_MS,
    verb?: EngineCall,
  ): Promise<PostgresReply> {
    // Half of it for a connection: the caller learns that nothing was sent while it still waits. Once it has given up,
    // it would have to fear that the server had applied the call.
    const connectMs = Math.min(CONNECT_MS, Math.max(limitMs / 2, Math.min(limitMs, LEAST_CONNECT_MS)))
    const limits = { connectMs, answerMs: Math.min(ANSWER_MS, limitMs) }
    return this.#wire.ask(this.#statements[name], values, limits).then(
      (answer) => replyOf(verb ?? calledFor(CALLS, name), answer),
      (error: unknown) => this.#afterMaking(name, values, limits, error, verb ?? calledFor(CALLS, name)),
    )
  }

  async #afterMaking(
    name: PostgresFunction,
    values: readonly string[],
    limits: PostgresCallLimits,
    error: unknown,
    verb: EngineCall,
  ): Promise<PostgresReply> {
    if (!isMissing(error)) throw asEngineError(verb, error)
    // Whatever becomes of the tables, the call itself has not been made.
    await failingAs(asEngineError, verb, this.#make(), { outcome: 'not-applied' })
    try {
      return replyOf(verb, await this.#wire.ask(this.#statements[name], values, limits))
    } catch (again) {
      throw asEngineError(verb, again)
    }
  }

  /** Once for all calls that find something missing at the same time. */
  #make(): Promise<unknown> {
    this.#making ??= this.#wire
      .run(firstUse(this.#names), { connectMs: CONNECT_MS, answerMs: ANSWER_MS })
      .finally(() => {
        this.#making = undefined
      })
    return this.#making
  }
}

/**
 * A call of one of our functions. Every parameter goes as a text: what a client makes of other types is its own
 * business, and its user's.
 */
export function callOf(verb: string, types: readonly string[], names: PostgresNames): string {
  const parameters = types.map((type, index) => `$${index + 1}::text${type === 'text' ? '' : `::${type}`}`)
  return renamed(`SELECT public.holdfast_${verb}(${parameters.join(', ')})`, names)
}

/** How long an answer is of use. What is to outlive its process may be short without being urgent. */
export function usefulMs(items: readonly Pick<Place, 'ttlMs' | 'outlives'>[]): number | undefined {
  let longest = 0
  for (const { ttlMs, outlives } of items) {
    if (outlives === true) return undefined
    longest = Math.max(longest, ttlMs)
  }
  return longest
}

// ---- rows that another transaction has locked ----

/** How long a call about these waits for a locked row. It leaves the lease that ends first most of its ttl. */
export function rowWaitMs(items: readonly { readonly ttlMs: number }[], part: number): number {
  let shortest = ROW_WAIT_MS * part
  for (const { ttlMs } of items) shortest = Math.min(shortest, ttlMs)
  return Math.max(LEAST_ROW_WAIT_MS, Math.ceil(shortest / part))
}

export interface BatchCall<One, Answer> {
  readonly verb: 'enter' | 'renew' | 'leave'
  readonly call: (items: readonly One[]) => Promise<readonly Answer[]>
  /** The keys of these items whose rows are locked, right now. */
  readonly lockedKeys: (items: readonly One[], verb: EngineCall) => Promise<ReadonlySet<string>>
  /**
   * What to answer for an item whose row is locked. Undefined: an answer cannot say so. Then the call fails all the
   * same, but the other items are done, and its outcome is not known.
   */
  readonly refused: ((error: EngineError) => Answer) | undefined
}

/**
 * A row that another transaction has locked for good (one that a person began by hand, a backend that stands still)
 * fails the whole batch that touches it. Then the other items of the batch go without it.
 */
export async function aroundLockedRows<One extends { readonly key: string }, Answer>(
  items: readonly One[],
  { verb, call, lockedKeys, refused }: BatchCall<One, Answer>,
): Promise<readonly Answer[]> {
  try {
    return await call(items)
  } catch (error) {
    if (!isRowLocked(error) || items.length === 1) throw error
    const locked = await lockedKeys(items, verb)
    const free = items.filter(({ key }) => !locked.has(key))
    const answers = free.length === 0 ? [] : await call(free)
    if (locked.size === 0) return answers
    if (refused === undefined) throw free.length === 0 ? error : withOutcome(error as EngineError, 'unknown')
    let next = 0
    return items.map(({ key }) => {
      if (locked.has(key)) return refused(error as EngineError)
      next += 1
      return answers[next - 1] as Answer
    })
  }
}

// ---- a server that may have crashed ----

/** A server writes what it has within a second; to notice that it has crashed may take longer. */
const REMEMBERED_MS = 60_000
const MOST = 1000

/**
 * Leaves that the server may not have written to its disk yet.
 *
 * A release that hands off to a waiter does not wait for the server's disk (see sql/leave.sql). If the server then
 * crashes, it comes back with the line as it was before: with the entry of the holder that left in front. No entry is
 * let in that should not be, but the waiters would wait until that entry has expired. So after this process has lost
 * its connection it leaves these lines once more.
 */
export class UnsyncedLeaves {
  readonly #clock: Clock
  /** In the order of time. */
  readonly #recent = new Map<string, { readonly place: EntryName; readonly at: number }>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  add(place: EntryName): void {
    const now = this.#clock.now()
    this.#recent.set(`${place.id} ${place.key}`, { place, at: now })
    for (const [name, { at }] of this.#recent) {
      if (this.#recent.size <= MOST && at > now - REMEMBERED_MS) break
      this.#recent.delete(name)
    }
  }

  /** All of them, to be left again. */
  take(): readonly EntryName[] {
    const after = this.#clock.now() - REMEMBERED_MS
    const places = [...this.#recent.values()].filter(({ at }) => at > after).map(({ place }) => place)
    this.#recent.clear()
    return places
  }
}
