/**
 * The keeper: what all locks of one `createLocks()` have in common. Its entries are in entry-tracker.ts, with all about
 * time and doubt; here is what is asked of the engine besides, and how all of it ends.
 */

import type { Chance, Clock } from './clock.ts'
import { Closing } from './closing.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine } from './engine.ts'
import { EntryTracker } from './entry-tracker.ts'
import type { ClosedError, EngineError } from './errors.ts'
import { type EngineCall, noAnswer } from './failed-call.ts'
import { KeepAlive } from './keep-alive.ts'
import { StoreRequests } from './store-requests.ts'
import { fallbackAfter, rejectAfter, resolveAfter } from './time-limit.ts'

/**
 * Work that is told only at the end of a drain has this long to tidy up, before its lock is given back: what listens to
 * the signal of its lease runs at least once more.
 */
export const LAST_MOMENT_MS = 500
/** How much of the time that closing may take is for work that has something to store before it ends. */
const LAST_WORDS_SHARE = 1 / 2
/** How much of the time that is left then is for leaving lines. The rest is for closing the engine. */
const LEAVING_SHARE = 3 / 4

export interface KeeperOptions {
  readonly clock: Clock
  readonly chance: Chance
  /** No call to the engine is waited for longer. */
  readonly callTimeoutMs: number
  readonly publish: Publish
}

/** Tells work to end. Resolves when it has, and has stored so. */
type LastWords = (reason: ClosedError) => Promise<unknown>

export class Keeper {
  readonly engine: Engine
  readonly clock: Clock
  readonly chance: Chance
  readonly callTimeoutMs: number
  readonly publish: Publish
  /** What this process has in lines. */
  readonly entries: EntryTracker
  readonly keepAlive: KeepAlive
  readonly #draining: Closing
  readonly #closing: Closing
  /** Aborts when records are not stored any more, not even the last ones. */
  readonly #storeClosed = new AbortController()
  /** By the ids of entries. */
  readonly #lastWords = new Map<string, LastWords>()
  #store: StoreRequests | undefined
  #sequence = 0

  constructor(engine: Engine, options: KeeperOptions) {
    this.engine = engine
    this.clock = options.clock
    this.chance = options.chance
    this.callTimeoutMs = options.callTimeoutMs
    this.publish = options.publish
    this.keepAlive = new KeepAlive(options.clock)
    this.#draining = new Closing(
      engine.name,
      'the locks are being drained: holders are to end, and nothing new is granted',
    )
    this.#closing = new Closing(engine.name, 'the locks were closed')
    this.entries = new EntryTracker({
      ...options,
      engine,
      keepAlive: this.keepAlive,
      nextSequence: this.#nextSequence,
      refusal: () => this.#refusal(),
    })
  }

  /** A call of the engine that is not batched, with a deadline of ours. Its answer is not waited for once we close. */
  async call<Value>(verb: EngineCall, call: (engine: Engine) => Promise<Value>): Promise<Value> {
    this.refuseIfClosed()
    const { clock, callTimeoutMs, engine, closing } = this
    return rejectAfter(clock, callTimeoutMs, call(engine), () => noAnswer(engine.name, verb, callTimeoutMs), closing)
  }

  /** Where the recipes of this process ask for records; undefined where the engine has no store. */
  get store(): StoreRequests | undefined {
    const { engine, clock, callTimeoutMs, closing } = this
    if (engine.store === undefined) return undefined
    this.#store ??= new StoreRequests({
      store: engine.store,
      engine: engine.name,
      clock,
      keepAlive: this.keepAlive,
      callTimeoutMs,
      nextSequence: this.#nextSequence,
      splitFrom: engine.traits.splitFrom ?? Number.POSITIVE_INFINITY,
      closing,
      closed: this.#storeClosed.signal,
    })
    return this.#store
  }

  /**
   * For recipes that store how their work ended. When the locks are closed, `end` is called with the reason. The entry
   * keeps its place in line, and last words can be stored, until `end` resolves, or half of the time that closing may
   * take is over. The answer takes it back.
   */
  endFirst(entryId: string, end: LastWords): () => void {
    this.#lastWords.set(entryId, end)
    return () => this.#lastWords.delete(entryId)
  }

  /** Aborts when the locks are closed. */
  get closing(): AbortSignal {
    return this.#closing.signal
  }

  /** Throws once `close()` was called: a closed engine is asked for nothing. */
  refuseIfClosed(): void {
    if (this.#closing.begun) throw this.#closing.error()
  }

  /** Aborts when the locks are drained, or closed. */
  get draining(): AbortSignal {
    return this.#draining.signal
  }

  /**
   * Grant nothing new. Resolves when nothing is held any more, or when the locks are closed; or else after `graceMs`
   * and the moment after it, in which those who are left have been told to stop.
   */
  drain(graceMs: number): Promise<void> {
    const { clock, closing, entries } = this
    return this.#draining.begin(clock, graceMs, async (leftMs) => {
      const drained = entries.drained(() => this.#draining.error())
      await fallbackAfter(clock, leftMs(), drained, undefined, closing)
      if (closing.aborted) return
      // Work that has last words hears of the end when the locks are closed.
      if (entries.tellToStop(this.#lastWords) > 0)
        await fallbackAfter(clock, LAST_MOMENT_MS, drained, undefined, closing)
    })
  }

  /** Takes no longer than one call may take, whatever the engine does. */
  close(): Promise<void> {
    const { clock, callTimeoutMs } = this
    const closed = this.#closing.begin(clock, callTimeoutMs, async (leftMs) => {
      if (this.#lastWords.size > 0) await this.#hearLastWords()
      this.#storeClosed.abort()
      const left = this.entries.abandoned(() => this.#closing.error())
      try {
        await resolveAfter(clock, leftMs() * LEAVING_SHARE, left)
        await this.entries.stop(leftMs)
        await resolveAfter(clock, leftMs(), this.engine[Symbol.asyncDispose]())
      } finally {
        this.keepAlive.stop()
      }
    })
    void this.#draining.begin(clock, 0, async () => {})
    return closed
  }

  async #hearLastWords(): Promise<void> {
    const { clock, callTimeoutMs } = this
    void this.entries.abandoned(() => this.#closing.error(), this.#lastWords)
    const said = [...this.#lastWords.values()].map((end) => end(this.#closing.error()))
    await fallbackAfter(clock, callTimeoutMs * LAST_WORDS_SHARE, Promise.allSettled(said), [])
  }

  /** What an entry is told that comes too late. */
  #refusal(): EngineError | undefined {
    if (this.#closing.begun) return this.#closing.error()
    return this.#draining.begun ? this.#draining.error() : undefined
  }

  readonly #nextSequence = (): number => ++this.#sequence
}
