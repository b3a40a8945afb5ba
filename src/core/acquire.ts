/**
 * The wait loop. It exists once, for all engines and all primitives.
 *
 * Ask; if the answer is "waiting", the tracker's heartbeat and the engine's news do the rest, and this loop sleeps. It
 * wakes when the entry is held, when the wait runs out, when the caller cancels, or when the entry expired in line (our
 * process was stopped for longer than its ttl): then it asks again, at the back.
 */

import type { Operation } from './diagnostics.ts'
import { formatDuration } from './duration.ts'
import type { Line } from './engine.ts'
import { type ChangeBeside, Entry } from './entry.ts'
import { EntryLease } from './entry-lease.ts'
import { AcquireTimeoutError, EngineError } from './errors.ts'
import { withoutEngine } from './failed-call.ts'
import type { Keeper } from './keeper.ts'
import { onAbort } from './on-abort.ts'
import { fallbackAfter } from './time-limit.ts'
import type { Outcome } from './verdict.ts'

/** What is asked for. */
export interface Ask {
  readonly key: string
  readonly holder: string
  readonly weight: number
  readonly limit: number
  readonly ttlMs: number
  /** How long it may be held, from the grant on. */
  readonly maxHoldMs: number
}

/** What a recipe wants with an entrance. */
export interface AskBeside {
  /** Called with the id of the entry when the engine is asked to let it in, each time. */
  readonly onEntering?: (id: string) => void
  /** For an entry of this id: a change that is made together with its entrance, or else it does not enter. */
  readonly beside?: (id: string) => ChangeBeside
}

/** How long the caller waits. `waitMs` 0: hold at once or not at all; Infinity: for ever. */
export interface WaitLimit {
  readonly waitMs: number
  readonly signal?: AbortSignal | undefined
  /** The engine has answered before, in the same wait of the caller: what follows is no outage of the whole wait. */
  readonly answered?: boolean
}

export const NO_WAIT_LIMIT: WaitLimit = { waitMs: Number.POSITIVE_INFINITY }

/** How long a time-out may take to learn who held the lock; it is only for the message. */
const NAMING_MS = 250

/** Wait until it is held. Undefined: `waitMs` is 0 and it is busy. `granted` hears of the lease first. */
export async function acquireLease(
  keeper: Keeper,
  ask: Ask,
  limit: WaitLimit,
  granted: ((lease: EntryLease) => void) | undefined,
  recipe?: AskBeside,
): Promise<EntryLease | undefined> {
  const operation: Operation = { engine: keeper.engine.name, key: ask.key, weight: ask.weight, limit: ask.limit }
  const { waitMs, signal } = limit
  signal?.throwIfAborted()
  keeper.publish.request({ operation })
  const startedAt = keeper.clock.now()
  for (let queued = false; ; queued = true) {
    const entry = new Entry(ask, keeper.chance.id(), waitMs > 0, operation)
    if (recipe !== undefined) {
      entry.onEntering = recipe.onEntering
      entry.beside = changeBeside(keeper, entry, recipe, startedAt)
    }
    const outcome = await outcomeWithin(
      keeper,
      entry,
      startedAt + waitMs,
      signal,
      queued ? keeper.clock.now() : startedAt,
    )
    if (outcome.state === 'held') {
      const { token, grantedAt } = entry
      keeper.publish.grant({ operation, token, waitedMs: grantedAt - startedAt, queued: queued || entry.queued })
      return leaseOf(keeper, entry, ask.maxHoldMs, granted)
    }
    if (outcome.state === 'busy') {
      keeper.publish.refusal({ operation, waitedMs: keeper.clock.now() - startedAt, why: 'busy' })
      return undefined
    }
    if (outcome.state !== 'again') throw await waitError(keeper, entry, outcome, limit, startedAt, queued)
  }
}

/** It may be one that cannot be stored. Then the engine is not asked, and the caller waits no more. */
function changeBeside(
  { clock, publish }: Keeper,
  { id, operation }: Entry,
  { beside }: AskBeside,
  startedAt: number,
): ChangeBeside | undefined {
  try {
    return beside?.(id)
  } catch (error) {
    publish.refusal({ operation, waitedMs: clock.now() - startedAt, why: 'error', error })
    throw error
  }
}

/** What a caller is told whose wait has ended without a lease. */
async function waitError(
  keeper: Keeper,
  entry: Entry,
  outcome: Exclude<WaitOutcome, { state: 'held' | 'again' | 'busy' }>,
  { signal, answered }: WaitLimit,
  startedAt: number,
  queued: boolean,
): Promise<unknown> {
  const { operation } = entry
  const waitedMs = keeper.clock.now() - startedAt
  switch (outcome.state) {
    case 'timeout': {
      const error = queued || entry.answered ? undefined : unansweredError(keeper, entry, waitedMs)
      if (error !== undefined && !answered) {
        keeper.publish.refusal({ operation, waitedMs, why: 'error', error })
        return error
      }
      keeper.publish.refusal({ operation, waitedMs, why: 'timeout' })
      return timeoutError(keeper, entry.key, waitedMs, entry, error)
    }
    case 'cancelled':
      keeper.publish.refusal({ operation, waitedMs, why: 'cancelled' })
      return signal?.reason
    case 'refused':
      keeper.publish.refusal({ operation, waitedMs, why: 'error', error: outcome.error })
      return outcome.error
  }
}

function leaseOf(
  keeper: Keeper,
  entry: Entry,
  maxHoldMs: number,
  granted: ((lease: EntryLease) => void) | undefined,
): EntryLease {
  const lease = new EntryLease(keeper, entry)
  if (maxHoldMs < Number.POSITIVE_INFINITY) lease.limitHold(entry.grantedAt + maxHoldMs)
  granted?.(lease)
  return lease
}

/** The error for a wait in which the engine has answered nothing: whether others are in the way is not known. */
function unansweredError({ engine: { name } }: Keeper, entry: Entry, waitedMs: number): EngineError {
  const { lastError } = entry
  const why = lastError === undefined ? '' : `: ${withoutEngine(lastError)}`
  const outcome = entry.isDoubtful || entry.pendingEnter !== 0 ? 'unknown' : 'not-applied'
  return new EngineError(
    name,
    `did not answer during the wait of ${formatDuration(waitedMs)} for '${entry.key}'${why}`,
    {
      outcome,
      ...(lastError === undefined ? {} : { cause: lastError }),
    },
  )
}

/** The error for a wait that ran out, with who was in the way; its cause is an outage that was not over by then. */
export async function timeoutError(
  keeper: Keeper,
  key: string,
  waitedMs: number,
  entry?: Entry,
  unanswered?: EngineError,
): Promise<AcquireTimeoutError> {
  const unknown: Line = { key, entries: [] }
  const look = async (): Promise<Line> => keeper.engine.inspect(key)
  const { entries } = await fallbackAfter(keeper.clock, NAMING_MS, look(), unknown)
  const place = entries.findIndex(({ id }) => id === entry?.id)
  const holders = entries.filter(({ id, state }) => state === 'held' && id !== entry?.id)
  const cause = unanswered ?? (entry?.failingSince === undefined ? undefined : entry.lastError)
  const options = cause === undefined ? undefined : { cause }
  return new AcquireTimeoutError(key, waitedMs, place >= 0 ? place : (entry?.ahead ?? null), holders, options)
}

type WaitOutcome = Outcome | { readonly state: 'timeout' } | { readonly state: 'cancelled' }

/** The outcome of one attempt, or the end of the wait. */
function outcomeWithin(
  keeper: Keeper,
  entry: Entry,
  deadline: number,
  signal: AbortSignal | undefined,
  now: number,
): Promise<WaitOutcome> {
  const outcome = keeper.entries.enter(entry, now)
  const endless = deadline === Number.POSITIVE_INFINITY || !entry.wait
  if (endless && signal === undefined) return outcome

  return new Promise((resolve) => {
    const timer = endless ? undefined : keeper.clock.timer(deadline - now, () => giveUp('timeout'))
    const end = (result: WaitOutcome): void => {
      timer?.cancel()
      forget()
      resolve(result)
    }
    const giveUp = (state: 'timeout' | 'cancelled'): void => {
      // Granted in this very moment: a time-out takes it, a cancellation gives it back.
      if (state === 'timeout' && entry.phase === 'held') return
      end({ state })
      void keeper.entries.leave(entry)
    }
    const forget = onAbort(signal, () => giveUp('cancelled'))
    if (signal?.aborted) giveUp('cancelled')
    else void outcome.then(end)
  })
}
