/**
 * The keeper: everything this process has in the lines of one engine.
 *
 * It asks, renews what is due, believes or doubts the answers, and declares loss in time. It is the one place where the
 * rules about deadlines, unknown outcomes and the order of answers live (docs/how-it-works.md tells them in prose).
 * Waiting, cancelling and nesting are built on top, in acquire.ts.
 */

import { Batch, type Sent } from './batch.ts'
import type { Chance, Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine, News, Standing } from './engine.ts'
import { type Entry, HELD, marginMs, type Outcome, QUEUED, type Verdict } from './entry.ts'
import { type Asker, type EntryVerb, enterVerb, renewVerb } from './entry-verbs.ts'
import { type CallOutcome, EngineError, type LineFullError, type LossReason } from './errors.ts'
import { KeepAlive } from './keep-alive.ts'
import { NewsSubscription } from './subscription.ts'
import { retryDelayMs, Sweeper } from './sweeper.ts'
import { fallbackAfter, noAnswer, rejectAfter, resolveAfter } from './time-limit.ts'
import { TimerQueue } from './timer-queue.ts'

/** How much of the time that closing may take is for leaving lines. The rest is for closing the engine. */
const LEAVING_SHARE = 3 / 4

export interface KeeperOptions {
  readonly clock: Clock
  readonly chance: Chance
  /** No call to the engine is waited for longer. */
  readonly callTimeoutMs: number
  readonly publish: Publish
}

export class Keeper {
  readonly engine: Engine
  readonly clock: Clock
  readonly chance: Chance
  readonly callTimeoutMs: number
  readonly publish: Publish
  readonly #entries = new Map<string, Entry>()
  readonly #keepAlive: KeepAlive
  readonly #subscription: NewsSubscription
  readonly #enters: Batch<Entry, Standing>
  readonly #renews: Batch<Entry, Standing>
  readonly #sweeper: Sweeper
  readonly #heartbeat: TimerQueue<Entry>
  #sequence = 0
  readonly #closer = new AbortController()
  #closing: Promise<void> | undefined

  constructor(engine: Engine, options: KeeperOptions) {
    this.engine = engine
    this.clock = options.clock
    this.chance = options.chance
    this.callTimeoutMs = options.callTimeoutMs
    this.publish = options.publish
    const { clock, chance, publish, callTimeoutMs } = this
    const keepAlive = new KeepAlive(clock)
    const nextSequence = (): number => ++this.#sequence
    this.#keepAlive = keepAlive
    this.#subscription = new NewsSubscription(engine, (news) => this.#heard(news))
    const verbOptions = { engine, clock, publish, callTimeoutMs, subscription: this.#subscription }
    const asker: Asker = {
      sending: (entry, sent, verb) => this.#sending(entry, sent, verb),
      answered: (entry, standing, sent, now, verb) => this.#answered(entry, standing, sent, now, verb),
      failed: (entry, error, sent, verb) => this.#failed(entry, error, sent, verb),
    }
    this.#enters = new Batch(enterVerb(verbOptions, asker), clock, keepAlive, nextSequence)
    this.#renews = new Batch(renewVerb(verbOptions, asker), clock, keepAlive, nextSequence)
    this.#sweeper = new Sweeper({ engine, clock, chance, publish, keepAlive, callTimeoutMs, nextSequence })
    this.#heartbeat = new TimerQueue(this.clock, (entry, now) => this.#due(entry, now))
  }

  /** Whether nothing of ours is in a line, as far as we know. */
  get idle(): boolean {
    return this.#entries.size === 0 && this.#sweeper.idle
  }

  /** `now` is what the clock says. */
  enter(entry: Entry, now: number): Promise<Outcome> {
    if (this.#closing !== undefined) return Promise.resolve({ state: 'refused', error: this.#closedError() })
    this.#entries.set(entry.id, entry)
    this.#ask(entry, now)
    return entry.outcome
  }

  /** A call of the engine that is not batched, with a deadline of ours. Its answer is not waited for once we close. */
  async call<Value>(verb: string, call: (engine: Engine) => Promise<Value>): Promise<Value> {
    this.refuseIfClosed()
    const { clock, callTimeoutMs, engine, closing } = this
    return rejectAfter(clock, callTimeoutMs, call(engine), () => noAnswer(engine.name, verb, callTimeoutMs), closing)
  }

  /** Give it back, or give up on it. Resolves with whether it was held until then; never rejects. */
  leave(entry: Entry): Promise<boolean> {
    entry.left ??= this.#leave(entry)
    return entry.left
  }

  #leave(entry: Entry): Promise<boolean> {
    const held = entry.phase === 'held'
    this.#drop(entry)
    // Never overtake an enter that is on its way.
    return entry.entering === 0 ? this.#sweep(entry, held) : entry.entered().then(() => this.#sweep(entry, held))
  }

  #sweep(entry: Entry, held: boolean): Promise<boolean> {
    return entry.mayBeInLine ? this.#sweeper.leave(entry, held) : Promise.resolve(false)
  }

  /**
   * Let it stand for `afterMs` more, without us: others are let in when it has expired. Resolves with whether the
   * engine agreed.
   */
  async leaveAfter(entry: Entry, afterMs: number): Promise<boolean> {
    const held = this.check(entry)
    this.#drop(entry)
    // An evicted one is to go, not to stay.
    if (!held) return entry.lost === 'evicted' ? this.leave(entry) : false
    entry.outlivesUntil = Number.POSITIVE_INFINITY
    // An enter or a renewal that is on its way would make it stand for a whole ttl.
    if (entry.entering !== 0) await entry.entered()
    await Promise.race([entry.unasked(), this.#renews.drained()])
    if (this.#closing !== undefined) return false
    const agreed = await fallbackAfter(this.clock, this.callTimeoutMs, this.#renewOnce(entry, afterMs), false)
    entry.outlivesUntil = this.clock.now() + afterMs + marginMs(entry.ttlMs)
    // An enter of unknown outcome may still arrive, and begin a stay that no caller wants.
    if (entry.isDoubtful) this.#sweepLate(entry)
    return agreed
  }

  /** Something of an entry that was given up has arrived after all, or may arrive. */
  #sweepLate(entry: Entry): void {
    if (entry.mayBeInLine && entry.outlivesUntil < Number.POSITIVE_INFINITY) void this.#sweeper.leave(entry, false)
  }

  async #renewOnce({ key, id, token }: Entry, ttlMs: number): Promise<boolean> {
    const [standing] = await this.engine.renew([{ key, id, ttlMs: Math.ceil(ttlMs), outlives: true }])
    // Another token is another stay in the line: ours had ended, and the key was free in between.
    return standing?.state === 'held' && standing.token === token
  }

  /** Declare loss if the deadline has passed. Timers cannot do it while synchronous code runs: a look does. */
  check(entry: Entry, now: number = this.clock.now()): boolean {
    if (entry.phase === 'held' && now >= entry.deadline) this.#lose(entry, 'deadline')
    return entry.phase === 'held'
  }

  /** Aborts when the locks are closed. */
  get closing(): AbortSignal {
    return this.#closer.signal
  }

  /** Throws once `close()` was called: a closed engine is asked for nothing. */
  refuseIfClosed(): void {
    if (this.#closing !== undefined) throw this.#closedError()
  }

  /** Takes no longer than one call may take, whatever the engine does. */
  close(): Promise<void> {
    if (this.#closing === undefined) {
      // It stands before any listener runs: one of them may ask for a lock, or close once more.
      let settle!: (closed: Promise<void>) => void
      this.#closing = new Promise((resolve) => {
        settle = resolve
      })
      settle(this.#close())
    }
    return this.#closing
  }

  async #close(): Promise<void> {
    const { clock, callTimeoutMs } = this
    const alive = clock.stayAlive()
    const over = clock.now() + callTimeoutMs
    const leftMs = (): number => Math.max(0, over - clock.now())
    try {
      this.#closer.abort(this.#closedError('unknown'))
      for (const entry of [...this.#entries.values()]) {
        if (entry.phase === 'held') this.#lose(entry, 'closed')
        else entry.settle({ state: 'refused', error: this.#closedError() })
        void this.leave(entry)
      }
      await resolveAfter(clock, callTimeoutMs * LEAVING_SHARE, this.#drained())
      this.#heartbeat.stop()
      this.#sweeper.stop()
      this.#enters.stop()
      this.#renews.stop()
      await this.#subscription.close(clock, leftMs())
      await resolveAfter(clock, leftMs(), this.engine[Symbol.asyncDispose]())
    } finally {
      alive.cancel()
    }
  }

  /** Resolves when nothing is on its way into a line, and every leave has been tried. */
  async #drained(): Promise<void> {
    // Leaves wait for the enter that they must not overtake. It is answered, or times out, before this is drained.
    await this.#enters.drained()
    await this.#sweeper.drained()
  }

  // ---- sending ----

  #ask(entry: Entry, now: number): void {
    if (entry.phase === 'gone') return
    if (entry.asking !== 0) {
      entry.askAgain = entry.asking !== QUEUED
      return
    }
    entry.asking = QUEUED
    entry.askAgain = false
    if (entry.phase === 'entering') this.#enters.add(entry)
    else this.#renews.add(entry)
    this.#plan(entry, now)
  }

  #sending(entry: Entry, sent: Sent, verb: EntryVerb): boolean {
    if (entry.phase === 'gone') return false
    entry.asking = sent.sequence
    entry.lastSentAt = sent.at
    if (verb === 'enter') entry.entering = sent.sequence
    return true
  }

  // ---- hearing ----

  #answered(entry: Entry, standing: Standing, sent: Sent, now: number, verb: EntryVerb): void {
    if (standing.state === 'failed') {
      if (standing.error instanceof EngineError) this.#failed(entry, standing.error, sent, verb)
      else this.#full(entry, standing.error, sent)
      return
    }
    entry.endAsking(sent)
    const awaited = entry.endEntering(sent)
    if (entry.phase !== 'gone') {
      this.#carryOut(entry, entry.hear(standing, sent, now), now)
      if (entry.askAgain) this.#ask(entry, now)
    } else if (verb === 'enter' && (standing.state === 'held' || standing.state === 'waiting')) {
      // Given up while this enter was on its way. What has arrived has to go, but not before a later attempt has ended.
      entry.inLine = true
      if (!awaited && entry.entering === 0) this.#sweepLate(entry)
    }
  }

  #carryOut(entry: Entry, verdict: Verdict, now: number): void {
    switch (verdict.step) {
      case 'plan':
        this.#plan(entry, now)
        break
      case 'ask':
        this.#ask(entry, now)
        break
      case 'hold':
        this.#hold(entry, verdict.token, now)
        break
      case 'lose':
        this.#lose(entry, verdict.why)
        break
      case 'finish':
        this.#finish(entry, verdict.outcome)
        break
      case 'refuse':
        this.#refuse(entry, verdict.error)
        break
    }
  }

  #hold(entry: Entry, token: bigint | null, now: number): void {
    entry.phase = 'held'
    entry.token = token
    entry.heldSince = ++this.#sequence
    entry.askAgain = false
    entry.grantedAt = now
    this.#awaited(entry, false)
    entry.settle(HELD)
    this.#plan(entry, now)
  }

  #heard(news: News): void {
    const now = this.clock.now()
    if ('gap' in news) {
      for (const entry of this.#entries.values()) {
        if (entry.phase !== 'held') this.#carryOut(entry, entry.hearHint(), now)
        // The engine is there again: what could not be renewed is, before its deadline.
        else if (entry.failingSince !== undefined || entry.asking !== 0) this.#ask(entry, now)
      }
      return
    }
    const entry = this.#entries.get(news.id)
    if (entry === undefined) {
      this.#sweeper.heardOf(news.id)
    } else if (news.standing?.state === 'held') {
      this.#carryOut(entry, entry.hearGranted(news.standing, now), now)
    } else {
      this.#carryOut(entry, entry.hearHint(), now)
    }
  }

  // ---- failing ----

  #failed(entry: Entry, error: EngineError, sent: Sent, verb: EntryVerb): void {
    this.publish.failure({ engine: this.engine.name, verb, key: entry.key, error })
    if (verb === 'enter' && error.outcome === 'unknown') entry.doubtfulUntil = sent.at + entry.ttlMs
    entry.endAsking(sent)
    const awaited = entry.endEntering(sent)
    if (entry.phase === 'gone') {
      if (verb === 'enter' && !awaited && entry.entering === 0) this.#sweepLate(entry)
      return
    }
    // News of a gap came meanwhile: the way is open again, and what failed was sent before.
    const again = entry.askAgain
    entry.askAgain = false
    entry.lastError = error
    const now = this.clock.now()
    // From the send. But after a stall of this process, in which nothing was tried, there may be no outage at all.
    entry.failingSince ??= Math.max(sent.at, now - entry.ttlMs / 2)
    if (entry.phase !== 'held') this.#awaited(entry, true)
    if (entry.phase === 'entering' && (!entry.wait || !error.transient)) this.#refuse(entry, error)
    else if (again && entry.phase === 'held') this.#ask(entry, now)
    else this.#plan(entry, now)
  }

  #full(entry: Entry, error: LineFullError, sent: Sent): void {
    entry.endAsking(sent)
    entry.endEntering(sent)
    if (entry.phase !== 'gone') this.#refuse(entry, error)
  }

  // ---- time ----

  /** When to look at this entry again. */
  #plan(entry: Entry, now: number): void {
    if (entry.phase === 'waiting') this.#awaited(entry, true)
    const at = entry.plan(now, this.#retryDelayMs)
    if (at < Number.POSITIVE_INFINITY) this.#heartbeat.put(entry, at, now)
    else this.#heartbeat.remove(entry)
  }

  #due(entry: Entry, now: number): void {
    if (entry.phase === 'gone') return
    if (entry.phase === 'held') {
      if (!this.check(entry, now)) return
      if (now >= entry.jeopardyAt && !entry.inJeopardy) {
        entry.inJeopardy = true
        const { operation, token, lastError: error } = entry
        this.publish.jeopardy({ operation, token, remainingMs: entry.deadline - now, error })
      }
    } else if (now >= entry.unreachableAt && entry.lastError !== undefined) {
      this.#refuse(entry, entry.lastError)
      return
    }
    if (entry.asking === 0) this.#ask(entry, now)
    else this.#plan(entry, now)
  }

  readonly #retryDelayMs = (ttlMs: number): number => retryDelayMs(ttlMs, this.chance)

  // ---- ending ----

  #lose(entry: Entry, why: LossReason): void {
    this.#drop(entry)
    entry.lost = why
    this.publish.loss({ operation: entry.operation, token: entry.token, why })
    entry.onLost?.(why)
  }

  /** The asking ends with an error. Something of it may be in the line. */
  #refuse(entry: Entry, error: Error): void {
    void this.leave(entry)
    entry.settle({ state: 'refused', error })
  }

  /** The asking ends, and the engine has nothing of it, unless an attempt of unknown outcome is still on its way. */
  #finish(entry: Entry, outcome: Outcome): void {
    this.#drop(entry)
    if (entry.entering !== 0 || entry.doubtfulUntil > this.clock.now()) void this.leave(entry)
    entry.settle(outcome)
  }

  #drop(entry: Entry): void {
    entry.phase = 'gone'
    this.#awaited(entry, false)
    this.#entries.delete(entry.id)
    this.#heartbeat.remove(entry)
  }

  #awaited(entry: Entry, awaited: boolean): void {
    if (entry.awaited === awaited) return
    entry.awaited = awaited
    if (awaited) this.#keepAlive.begin()
    else this.#keepAlive.end()
  }

  #closedError(outcome: CallOutcome = 'not-applied'): EngineError {
    return new EngineError(this.engine.name, 'the locks were closed', { outcome, transient: false })
  }
}
