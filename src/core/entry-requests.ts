/**
 * What the engine is asked for entries: to enter, and to be renewed. Each verb has a batch of its own, and an entry has
 * at most one request in them. What an answer means is known by entry.ts. An entry that brings a change of a record
 * with it is let in by the store, which makes both or neither.
 */
import { Batch, type BatchSpec, type Sent } from './batch.ts'
import type { Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine, Standing } from './engine.ts'
import { type Answer, type ChangeBeside, type Entry, QUEUED } from './entry.ts'
import { EngineError, type LineFullError } from './errors.ts'
import type { KeepAlive } from './keep-alive.ts'
import type { Entered, Entrance, Store } from './store.ts'
import type { NewsSubscription } from './subscription.ts'

export type EntryVerb = 'enter' | 'renew'

/** Is told what became of each request. After a time-out, `answered` may follow `failed`. */
export interface RequestListener {
  answered(entry: Entry, standing: Answer, sent: Sent, now: number, verb: EntryVerb): void
  failed(entry: Entry, error: EngineError, sent: Sent, verb: EntryVerb): void
  /** The line has no room for an entry that is still wanted. */
  full(entry: Entry, error: LineFullError): void
}

export interface EntryRequestsOptions {
  readonly engine: Engine
  readonly clock: Clock
  readonly publish: Publish
  readonly keepAlive: KeepAlive
  /** No call to the engine is waited for longer. */
  readonly callTimeoutMs: number
  readonly subscription: NewsSubscription
  readonly nextSequence: () => number
}

export class EntryRequests {
  readonly #enters: Batch<Entry, Standing>
  readonly #renewals: Batch<Entry, Standing>
  /** Those that bring a change with them. Undefined where the store cannot do it. */
  readonly #entrances: Batch<Entry, Entered> | undefined

  constructor(options: EntryRequestsOptions, listener: RequestListener) {
    const { clock, keepAlive, nextSequence } = options
    this.#enters = new Batch(enterSpec(options, listener), clock, keepAlive, nextSequence)
    this.#renewals = new Batch(renewSpec(options, listener), clock, keepAlive, nextSequence)
    const { store } = options.engine
    if (store?.putEntering !== undefined)
      this.#entrances = new Batch(entranceSpec(store, options, listener), clock, keepAlive, nextSequence)
  }

  /** Ask the engine where `entry` stands. False: it is gone, or a request of it is unanswered and will tell. */
  ask(entry: Entry): boolean {
    if (entry.over) return false
    if (entry.pendingRequest !== 0) {
      entry.askAgain = entry.pendingRequest !== QUEUED
      return false
    }
    entry.pendingRequest = QUEUED
    entry.askAgain = false
    if (entry.phase !== 'entering') this.#renewals.add(entry)
    else if (entry.beside === undefined) this.#enters.add(entry)
    else this.#entrances?.add(entry)
    return true
  }

  /** Resolves when no enter is queued or unanswered. */
  async entersEnded(): Promise<void> {
    await this.#enters.drained()
    await this.#entrances?.drained()
  }

  /** Resolves when no renewal is queued or unanswered. */
  renewalsEnded(): Promise<void> {
    return this.#renewals.drained()
  }

  stop(): void {
    this.#enters.stop()
    this.#renewals.stop()
    this.#entrances?.stop()
  }
}

function enterSpec(options: EntryRequestsOptions, listener: RequestListener): BatchSpec<Entry, Standing> {
  const { engine } = options
  const { batchLimit, claimsPerLine, splitFrom = Number.POSITIVE_INFINITY, takesSignal } = engine.traits
  return {
    ...bothSpecs('enter', listener),
    ...subscribed(options, takesSignal.includes('enter'), (entries, signal) => engine.enter(entries, signal)),
    engine: engine.name,
    batchLimit,
    itemsPerKey: claimsPerLine,
    splitFrom,
  }
}

/** As for an enter, of which `putEntering` is a kind. */
function entranceSpec(
  store: Store,
  options: EntryRequestsOptions,
  listener: RequestListener,
): BatchSpec<Entry, Entered> {
  const { engine } = options
  const { batchLimit, takesSignal } = store.traits
  const enters = bothSpecs('enter', listener)
  const enter = store.putEntering?.bind(store) as NonNullable<Store['putEntering']>
  return {
    ...enters,
    ...subscribed(options, takesSignal.includes('putEntering'), (entries, signal) =>
      enter(entries.map(entranceOf), signal),
    ),
    engine: engine.name,
    batchLimit,
    splitFrom: engine.traits.splitFrom ?? Number.POSITIVE_INFINITY,
    answered: (entry, { standing, put }, sent, now) => {
      entry.beside?.answered(put)
      enters.answered(entry, standing, sent, now)
      // It is asked no more. What the recipe keeps there would live for as long as the entry.
      if (entry.phase !== 'entering') entry.beside = undefined
    },
  }
}

function entranceOf(claim: Entry): Entrance {
  return { claim, change: (claim.beside as ChangeBeside).change }
}

/** How an enter is called: not before the engine can wake who enters. */
function subscribed<Told>(
  { callTimeoutMs, subscription }: EntryRequestsOptions,
  takesSignal: boolean,
  call: (entries: readonly Entry[], signal: AbortSignal | undefined) => Promise<readonly Told[]>,
): Pick<BatchSpec<Entry, Told>, 'call' | 'takesSignal' | 'timeoutMs'> {
  const subscribeAndCall = async (
    entries: readonly Entry[],
    signal: AbortSignal | undefined,
  ): Promise<readonly Told[]> => {
    await subscription.ready(
      signal,
      entries.some(({ wait }) => wait),
    )
    return call(entries, takesSignal ? signal : undefined)
  }
  return {
    call: (entries, signal) => (subscription.stands ? call(entries, signal) : subscribeAndCall(entries, signal)),
    takesSignal: () => takesSignal || !subscription.stands,
    timeoutMs: (entries) => Math.min(callTimeoutMs, longestTtlMs(entries)),
  }
}

function renewSpec(options: EntryRequestsOptions, listener: RequestListener): BatchSpec<Entry, Standing> {
  const { engine, clock, publish, callTimeoutMs } = options
  const { batchLimit, takesSignal } = engine.traits
  const renewTakesSignal = takesSignal.includes('renew')
  const renew = async (entries: readonly Entry[], signal: AbortSignal | undefined): Promise<readonly Standing[]> => {
    const standings = await engine.renew(entries, signal)
    const now = clock.now()
    let marginMs = Number.POSITIVE_INFINITY
    for (const entry of entries) if (entry.phase === 'held') marginMs = Math.min(marginMs, entry.deadline - now)
    if (marginMs < Number.POSITIVE_INFINITY) publish.renewal({ engine: engine.name, count: entries.length, marginMs })
    return standings
  }
  return {
    ...bothSpecs('renew', listener),
    engine: engine.name,
    batchLimit,
    // No caller waits for a renewal: one call disturbs the server less than two.
    splitFrom: Number.POSITIVE_INFINITY,
    call: renew,
    takesSignal: () => renewTakesSignal,
    timeoutMs: (entries) => Math.min(callTimeoutMs, renewalTimeoutMs(entries, clock.now())),
    mayWaitMs: ({ ttlMs }) => ttlMs / 3,
  }
}

function bothSpecs(
  verb: EntryVerb,
  listener: RequestListener,
): Pick<BatchSpec<Entry, Standing>, 'verb' | 'sending' | 'answered' | 'failed' | 'abandoned'> {
  return {
    verb,
    sending: (entry, sent) => {
      if (entry.over) return false
      entry.pendingRequest = sent.sequence
      entry.lastSentAt = sent.at
      if (verb === 'enter') {
        entry.pendingEnter = sent.sequence
        entry.onEntering?.(entry.id)
      }
      return true
    },
    answered: (entry, standing, sent, now) => {
      if (standing.state !== 'failed') {
        listener.answered(entry, standing, sent, now, verb)
      } else if (standing.error instanceof EngineError) {
        listener.failed(entry, standing.error, sent, verb)
      } else {
        entry.endRequest(sent)
        if (!entry.over) listener.full(entry, standing.error)
      }
    },
    failed: (entry, error, sent) => listener.failed(entry, error, sent, verb),
    // The locks are closed, and no answer is waited for any more. A release that waits for this request goes on.
    abandoned: (entry, sent) => {
      if (sent !== undefined) entry.endRequest(sent)
    },
  }
}

/**
 * A third of the ttl is gone when a renewal is sent. The time-out comes early enough for the shortest lease to try once
 * more; and where a renewal has failed before, more than once. An answer that comes after its time-out still counts.
 */
function renewalTimeoutMs(entries: readonly Entry[], now: number): number {
  let shortest = Number.POSITIVE_INFINITY
  for (const { ttlMs, phase, failingSince, deadline } of entries) {
    shortest = Math.min(shortest, ttlMs / 3)
    if (phase === 'held' && failingSince !== undefined)
      shortest = Math.min(shortest, Math.max((deadline - now) / 2, ttlMs / 50))
  }
  return shortest
}

function longestTtlMs(entries: readonly Entry[]): number {
  let longest = 0
  for (const entry of entries) longest = Math.max(longest, entry.ttlMs)
  return longest
}
