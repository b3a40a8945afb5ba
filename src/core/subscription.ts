/**
 * The subscription to an engine's news, which stands before the first enter is sent: an entry that is in line before it
 * stands could miss its own grant.
 */
import type { Clock } from './clock.ts'
import type { Engine, News } from './engine.ts'
import { EngineError } from './errors.ts'
import { onAbort } from './on-abort.ts'
import { fallbackAfter } from './time-limit.ts'

export class NewsSubscription {
  readonly #engine: Engine
  readonly #listener: (news: News) => void
  #subscription: Promise<AsyncDisposable | undefined> | undefined
  #stands: boolean

  constructor(engine: Engine, listener: (news: News) => void) {
    this.#engine = engine
    this.#listener = listener
    // An engine without news needs no subscription.
    this.#stands = engine.subscribe === undefined
  }

  /** Whether enters may be sent at once. */
  get stands(): boolean {
    return this.#stands
  }

  /**
   * Resolves when the subscription stands. Rejects with an `EngineError` that says that nothing was applied. A
   * subscription that hangs is given up when `signal` aborts, and the next enter tries anew. `waits`: whether any of
   * those who enter would wait; to the others, that it listens means nothing.
   */
  async ready(signal: AbortSignal | undefined, waits: boolean): Promise<void> {
    const attempt = this.#subscription ?? this.#subscribe()
    this.#subscription = attempt
    const forget = onAbort(signal, () => this.#giveUpOn(attempt))
    try {
      await attempt
      if (this.#subscription !== attempt) throw new Error('no answer in time')
      this.#stands = true
    } catch (error) {
      if (this.#subscription === attempt) this.#subscription = undefined
      const { name } = this.#engine
      const message = error instanceof Error ? error.message : String(error)
      const transient = error instanceof EngineError ? error.transient : true
      const why = message.startsWith(`${name}: `) ? message.slice(name.length + 2) : message
      throw new EngineError(name, waits ? `${why} (while it began to listen for its turn)` : why, {
        outcome: 'not-applied',
        transient,
        cause: error,
      })
    } finally {
      forget()
    }
  }

  /** End the subscription, unless that takes longer than `limitMs`. Never rejects. */
  async close(clock: Clock, limitMs: number): Promise<void> {
    const ending = this.#subscription?.then((subscription) => subscription?.[Symbol.asyncDispose]())
    if (ending !== undefined) await fallbackAfter(clock, limitMs, ending, undefined)
  }

  async #subscribe(): Promise<AsyncDisposable | undefined> {
    // A listener of its own for each attempt: the end of one that came late must not be taken for the end of the next.
    return this.#engine.subscribe?.((news) => this.#listener(news))
  }

  #giveUpOn(attempt: Promise<AsyncDisposable | undefined>): void {
    if (this.#stands || this.#subscription !== attempt) return
    this.#subscription = undefined
    attempt.then((late) => late?.[Symbol.asyncDispose]()).catch(() => {})
  }
}
