/**
 * The two calls that carry entries to the engine, ready to be batched: how they are made, and how long each is waited for.
 */
import type { Sent, Verb } from './batch.ts'
import type { Clock } from './clock.ts'
import { channels, type Publish } from './diagnostics.ts'
import type { Engine, News, Standing } from './engine.ts'
import type { Entry } from './entry.ts'
import { EngineError } from './errors.ts'
import type { KeeperOptions } from './keeper.ts'

/** What the keeper does with what comes back. */
export interface Hearing {
  sending(entry: Entry, sent: Sent): boolean
  answered(entry: Entry, standing: Standing, sent: Sent, verb: 'enter' | 'renew'): void
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
  #subscription: Promise<AsyncDisposable> | undefined
  #subscribed = false

  constructor(engine: Engine, options: KeeperOptions, hearing: Hearing) {
    const { callTimeoutMs } = options
    this.#engine = engine
    this.#clock = options.clock
    this.#publish = options.publish
    this.#hearing = hearing
    const common = {
      engine: engine.name,
      batchLimit: engine.traits.batchLimit,
      sending: hearing.sending,
    }
    this.enter = {
      ...common,
      name: 'enter',
      call: (entries, signal) => this.#enter(entries, signal),
      timeoutMs: (entries) => Math.min(callTimeoutMs, longestTtlMs(entries)),
      answered: (entry, standing, sent) => hearing.answered(entry, standing, sent, 'enter'),
      failed: (entry, error, sent) => hearing.failed(entry, error, sent, 'enter'),
    }
    this.renew = {
      ...common,
      name: 'renew',
      call: (entries, signal) => this.#renew(entries, signal),
      // A third of the ttl is gone when a renewal is sent: time out early enough to try once more.
      timeoutMs: (entries) => Math.min(callTimeoutMs, longestTtlMs(entries) / 3),
      answered: (entry, standing, sent) => hearing.answered(entry, standing, sent, 'renew'),
      failed: (entry, error, sent) => hearing.failed(entry, error, sent, 'renew'),
    }
  }

  async close(): Promise<void> {
    const subscription = await this.#subscription?.catch(() => undefined)
    await subscription?.[Symbol.asyncDispose]()
  }

  /** Whoever enters before the subscription stands can miss its own grant: the subscription comes first. */
  #enter(entries: readonly Entry[], signal: AbortSignal): Promise<readonly Standing[]> {
    if (this.#engine.subscribe === undefined || this.#subscribed) return this.#engine.enter(entries, signal)
    return this.#subscribeAndEnter(entries, signal)
  }

  async #subscribeAndEnter(entries: readonly Entry[], signal: AbortSignal): Promise<readonly Standing[]> {
    try {
      this.#subscription ??= this.#engine.subscribe?.((news) => this.#hearing.heard(news))
      await this.#subscription
      this.#subscribed = true
    } catch (error) {
      this.#subscription = undefined
      const message = error instanceof Error ? error.message : String(error)
      const transient = error instanceof EngineError ? error.transient : true
      throw new EngineError(this.#engine.name, `cannot subscribe: ${message}`, { outcome: 'not-applied', transient, cause: error })
    }
    if (signal.aborted) throw new EngineError(this.#engine.name, 'subscribing took too long', { outcome: 'not-applied' })
    return this.#engine.enter(entries, signal)
  }

  async #renew(entries: readonly Entry[], signal: AbortSignal): Promise<readonly Standing[]> {
    const standings = await this.#engine.renew(entries, signal)
    if (channels.renew.hasSubscribers) {
      const now = this.#clock.now()
      let marginMs = Number.POSITIVE_INFINITY
      for (const entry of entries) if (entry.phase === 'held') marginMs = Math.min(marginMs, entry.deadline - now)
      if (marginMs < Number.POSITIVE_INFINITY) this.#publish.renew({ engine: this.#engine.name, count: entries.length, marginMs })
    }
    return standings
  }
}

function longestTtlMs(entries: readonly Entry[]): number {
  let longest = 0
  for (const entry of entries) longest = Math.max(longest, entry.ttlMs)
  return longest
}
