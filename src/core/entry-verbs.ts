/**
 * The two verbs that are asked for entries, `enter` and `renew`, as batches send them: which call of the engine it is,
 * and how long it may take. What an answer means is the keeper's business.
 */
import type { Sent, Verb } from './batch.ts'
import type { Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine, Standing } from './engine.ts'
import type { Entry } from './entry.ts'
import type { EngineError } from './errors.ts'
import type { NewsSubscription } from './subscription.ts'

export type EntryVerb = 'enter' | 'renew'

/** Who hears what becomes of a request. */
export interface Asker {
  /** About to be sent. False: no longer wanted. */
  sending(entry: Entry, sent: Sent, verb: EntryVerb): boolean
  answered(entry: Entry, standing: Standing, sent: Sent, now: number, verb: EntryVerb): void
  failed(entry: Entry, error: EngineError, sent: Sent, verb: EntryVerb): void
}

export interface EntryVerbOptions {
  readonly engine: Engine
  readonly clock: Clock
  readonly publish: Publish
  /** No call to the engine is waited for longer. */
  readonly callTimeoutMs: number
  readonly subscription: NewsSubscription
}

export function enterVerb(options: EntryVerbOptions, asker: Asker): Verb<Entry, Standing> {
  const { engine, callTimeoutMs, subscription } = options
  const { batchLimit, claimsPerLine, splitFrom = Number.POSITIVE_INFINITY, takesSignal } = engine.traits
  const enterTakesSignal = takesSignal.includes('enter')
  const subscribeAndEnter = async (
    entries: readonly Entry[],
    signal: AbortSignal | undefined,
  ): Promise<readonly Standing[]> => {
    await subscription.ready(signal)
    return engine.enter(entries, enterTakesSignal ? signal : undefined)
  }
  return {
    ...hearing('enter', asker),
    engine: engine.name,
    batchLimit,
    itemsPerKey: claimsPerLine,
    splitFrom,
    call: (entries, signal) =>
      subscription.stands ? engine.enter(entries, signal) : subscribeAndEnter(entries, signal),
    takesSignal: () => enterTakesSignal || !subscription.stands,
    timeoutMs: (entries) => Math.min(callTimeoutMs, longestTtlMs(entries)),
  }
}

export function renewVerb(options: EntryVerbOptions, asker: Asker): Verb<Entry, Standing> {
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
    ...hearing('renew', asker),
    engine: engine.name,
    batchLimit,
    // No caller waits for a renewal: one call disturbs the server less than two.
    splitFrom: Number.POSITIVE_INFINITY,
    call: renew,
    takesSignal: () => renewTakesSignal,
    timeoutMs: (entries) => Math.min(callTimeoutMs, renewalTimeoutMs(entries, clock.now())),
  }
}

function hearing(
  verb: EntryVerb,
  asker: Asker,
): Pick<Verb<Entry, Standing>, 'name' | 'sending' | 'answered' | 'failed' | 'abandoned'> {
  return {
    name: verb,
    sending: (entry, sent) => asker.sending(entry, sent, verb),
    answered: (entry, standing, sent, now) => asker.answered(entry, standing, sent, now, verb),
    failed: (entry, error, sent) => asker.failed(entry, error, sent, verb),
    // No answer is waited for any more: a release that does is told.
    abandoned: (entry, sent) => {
      entry.endAsking(sent)
      entry.endEntering(sent)
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
