/**
 * The two calls that carry entries to the engine, ready to be batched: how they are made, and how long each is waited
 * for.
 */
import type { Sent, Verb } from './batch.ts'
import type { Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine, News, Standing } from './engine.ts'
import type { Entry } from './entry.ts'
import { EngineError } from './errors.ts'
import type { KeeperOptions } from './keeper.ts'
import { onAbort } from './on-abort.ts'
import { fallbackAfter } from './time-limit.ts'

/** What the keeper does with what comes back. */
export interface Hearing {
  sending(entry: Entry, sent: Sent, verb: 'enter' | 'renew'): boolean
  answered(entry: Entry, standing: Standing, sent: Sent, now: number, verb: 'enter' | 'renew'): void
  failed(entry: Entry, error: EngineError, sent: Sent, verb: 'enter' | 'renew'): void
  heard(news: News): void
}

export class Verbs {
  readonly enter: Verb<Entry, Standing>
  readonly renew: Verb<Entry, Standing>
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #publish: Publish
  readonly #hearing: Hearing
  readonly #callTimeoutMs: number
  #subscription: Promise<AsyncDisposable | undefined> | undefined
  #subscribed = false

  constructor(engine: Engine, options: KeeperOptions, hearing: Hearing) {
    const { callTimeoutMs } = options
    this.#callTimeoutMs = callTimeoutMs
    this.#engine = engine
    this.#clock = options.clock
    this.#publish = options.publish
    this.#hearing = hearing
    const common = {
      engine: engine.name,
      batchLimit: engine.traits.batchLimit,
    }
    this.enter = {
      ...common,
      name: 'enter',
      halfFrom: engine.traits.splitFrom ?? Number.POSITIVE_INFINITY,
      call: (entries, signal) => this.#enter(entries, signal),
      cancellable: () => engine.traits.takesSignal || (engine.subscribe !== undefined && !this.#subscribed),
      timeoutMs: (entries) => Math.min(callTimeoutMs, longestTtlMs(entries)),
      sending: (entry, sent) => hearing.sending(entry, sent, 'enter'),
      answered: (entry, standing, sent, now) => hearing.answered(entry, standing, sent, now, 'enter'),
      failed: (entry, error, sent) => hearing.failed(entry, error, sent, 'enter'),
    }
    this.renew = {
      ...common,
      name: 'renew',
      // Nobody waits for a beat: one call disturbs the server less than two.
      halfFrom: Number.POSITIVE_INFINITY,
      call: (entries, signal) => this.#renew(entries, signal),
      cancellable: () => engine.traits.takesSignal,
      // A third of the ttl is gone when a renewal is sent: time out early enough for the shortest lease to try once
      // more.
      timeoutMs: (entries) => Math.min(callTimeoutMs, shortestTtlMs(entries) / 3),
      sending: (entry, sent) => hearing.sending(entry, sent, 'renew'),
      answered: (entry, standing, sent, now) => hearing.answered(entry, standing, sent, now, 'renew'),
      failed: (entry, error, sent) => hearing.failed(entry, error, sent, 'renew'),
    }
  }

  /** End the subscription, unless that takes too long as well. Never rejects. */
  async close(): Promise<void> {
    const ending = this.#subscription?.then((subscription) => subscription?.[Symbol.asyncDispose]())
    if (ending !== undefined) await fallbackAfter(this.#clock, this.#callTimeoutMs, ending, undefined)
  }

  /** Whoever enters before the subscription stands can miss its own grant: the subscription comes first. */
  #enter(entries: readonly Entry[], signal: AbortSignal | undefined): Promise<readonly Standing[]> {
    if (this.#engine.subscribe === undefined || this.#subscribed) return this.#engine.enter(entries, signal)
    return this.#subscribeAndEnter(entries, signal)
  }

  async #subscribeAndEnter(entries: readonly Entry[], signal: AbortSignal | undefined): Promise<readonly Standing[]> {
    const attempt = this.#subscription ?? this.#subscribe()
    this.#subscription = attempt
    const forget = onAbort(signal, () => this.#giveUpOn(attempt))
    try {
      await attempt
      if (this.#subscription !== attempt) throw new Error('no answer in time')
      this.#subscribed = true
    } catch (error) {
      if (this.#subscription === attempt) this.#subscription = undefined
      const message = error instanceof Error ? error.message : String(error)
      const transient = error instanceof EngineError ? error.transient : true
      throw new EngineError(this.#engine.name, `cannot subscribe: ${message}`, {
        outcome: 'not-applied',
        transient,
        cause: error,
      })
    } finally {
      forget()
    }
    return this.#engine.enter(entries, this.#engine.traits.takesSignal ? signal : undefined)
  }

  async #subscribe(): Promise<AsyncDisposable | undefined> {
    return this.#engine.subscribe?.((news) => this.#hearing.heard(news))
  }

  /** A subscription that hangs must not hang all that comes after it: the next enter tries anew. */
  #giveUpOn(attempt: Promise<AsyncDisposable | undefined>): void {
    if (this.#subscribed || this.#subscription !== attempt) return
    this.#subscription = undefined
    attempt.then((late) => late?.[Symbol.asyncDispose]()).catch(() => {})
  }

  async #renew(entries: readonly Entry[], signal: AbortSignal | undefined): Promise<readonly Standing[]> {
    const standings = await this.#engine.renew(entries, signal)
    const now = this.#clock.now()
    let marginMs = Number.POSITIVE_INFINITY
    for (const entry of entries) if (entry.phase === 'held') marginMs = Math.min(marginMs, entry.deadline - now)
    if (marginMs < Number.POSITIVE_INFINITY)
      this.#publish.renewal({ engine: this.#engine.name, count: entries.length, marginMs })
    return standings
  }
}

function shortestTtlMs(entries: readonly Entry[]): number {
  let shortest = Number.POSITIVE_INFINITY
  for (const entry of entries) shortest = Math.min(shortest, entry.ttlMs)
  return shortest
}

function longestTtlMs(entries: readonly Entry[]): number {
  let longest = 0
  for (const entry of entries) longest = Math.max(longest, entry.ttlMs)
  return longest
}
