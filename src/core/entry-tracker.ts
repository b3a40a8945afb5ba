/**
 * Every entry that this process has in a line, from its first request to its end.
 *
 * It asks, renews what is due, carries out what an answer means, and declares loss in time. The rules about deadlines
 * and the order of answers are in entry.ts, those about leaving for certain in sweeper.ts; docs/how-it-works.md tells
 * them in prose. Waiting and cancelling are built on top, in acquire.ts, and nesting in nested-lease.ts.
 */

import type { Sent } from './batch.ts'
import type { Chance, Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine, News } from './engine.ts'
import type { Answer, Entry } from './entry.ts'
import { EntryRequests, type EntryVerb } from './entry-requests.ts'
import type { EngineError, LossReason } from './errors.ts'
import type { KeepAlive } from './keep-alive.ts'
import { OutageReports, outageError } from './outage.ts'
import { SlotTable } from './slot-table.ts'
import { NewsSubscription } from './subscription.ts'
import { retryDelayMs, Sweeper } from './sweeper.ts'
import { TimerQueue } from './timer-queue.ts'
import { HELD, type Outcome, type Verdict } from './verdict.ts'

export interface EntryTrackerOptions {
  readonly engine: Engine
  readonly clock: Clock
  readonly chance: Chance
  /** No call to the engine is waited for longer. */
  readonly callTimeoutMs: number
  readonly publish: Publish
  readonly keepAlive: KeepAlive
  readonly nextSequence: () => number
  /** Why no new entry is let in; undefined while they are. */
  readonly refusal: () => EngineError | undefined
}

export class EntryTracker {
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #publish: Publish
  readonly #keepAlive: KeepAlive
  readonly #nextSequence: () => number
  readonly #refusal: () => EngineError | undefined
  readonly #table = new SlotTable<Entry>()
  readonly #subscription: NewsSubscription
  readonly #requests: EntryRequests
  readonly #sweeper: Sweeper
  readonly #heartbeat: TimerQueue<Entry>
  readonly #outages: OutageReports
  /** Called when no entry is left. */
  #onEmpty: (() => void) | undefined

  constructor(options: EntryTrackerOptions) {
    const { engine, clock } = options
    this.#clock = clock
    this.#chance = options.chance
    this.#publish = options.publish
    this.#keepAlive = options.keepAlive
    this.#nextSequence = options.nextSequence
    this.#refusal = options.refusal
    this.#outages = new OutageReports(options.publish)
    const subscription = new NewsSubscription(engine, (news) => this.#heard(news))
    this.#subscription = subscription
    this.#requests = new EntryRequests(
      { ...options, subscription },
      {
        answered: (entry, standing, sent, now, verb) => this.#answered(entry, standing, sent, now, verb),
        failed: (entry, error, sent, verb) => this.#failed(entry, error, sent, verb),
        full: (entry, error) => this.#refuse(entry, error),
      },
    )
    this.#sweeper = new Sweeper({ ...options, requests: this.#requests })
    this.#heartbeat = new TimerQueue(clock, (entry, now) => this.#due(entry, now))
  }

  /** `now` is what the clock says. */
  enter(entry: Entry, now: number): Promise<Outcome> {
    const error = this.#refusal()
    if (error !== undefined) return Promise.resolve({ state: 'refused', error })
    this.#table.add(entry.id, entry)
    this.#ask(entry, now)
    return entry.outcome
  }

  /** Give it back, or give up on it. Resolves with whether it was held until then; never rejects. */
  leave(entry: Entry): Promise<boolean> {
    entry.left ??= this.#leave(entry)
    return entry.left
  }

  /** The store has taken it out of its line, in the step of a change. */
  leftByStore(entry: Entry): Promise<boolean> {
    // An enter of unknown outcome may still arrive. What was lost before is left by the rules of a loss.
    if (entry.isDoubtful || entry.phase !== 'held') return this.leave(entry)
    entry.left ??= Promise.resolve(true)
    this.#drop(entry)
    return entry.left
  }

  #leave(entry: Entry): Promise<boolean> {
    const held = entry.phase === 'held'
    this.#drop(entry)
    return this.#sweeper.leave(entry, held)
  }

  /**
   * Let it stand for `afterMs` more, without us: others are let in when it has expired. Resolves with whether the
   * engine agreed.
   */
  async leaveAfter(entry: Entry, afterMs: number): Promise<boolean> {
    // Not by `check`: `release()` has looked at the clock, and has told the release. A loss must not be told after it.
    const held = entry.phase === 'held'
    // Lost by its `maxHold`, or by the end of a drain, it is in the line all the same, until its ttl is over.
    const toldToEnd = entry.lost === 'maxHold' || entry.lost === 'closed'
    const overdue = entry.phase === 'overdue' && toldToEnd && this.#clock.now() < entry.deadline
    this.#drop(entry)
    if (held || overdue) return (await this.#sweeper.leaveAfter(entry, afterMs)) && held
    // What was evicted is to go. So is what a late duplicate of our enter brought in after the server let ours expire.
    return entry.lost === 'evicted' || entry.lost === 'expired' ? this.leave(entry) : false
  }

  /** Declare loss if the deadline has passed. Timers cannot do it while synchronous code runs: a look does. */
  check(entry: Entry, now: number = this.#clock.now()): boolean {
    if (entry.phase === 'held') {
      if (now >= entry.deadline) this.#lose(entry, 'deadline')
      else if (now >= entry.endsAt) this.#lose(entry, 'maxHold')
    }
    return entry.phase === 'held'
  }

  /** It is held until `at` at most. */
  limitHold(entry: Entry, at: number): void {
    entry.endsAt = Math.min(entry.endsAt, at)
    if (entry.phase === 'held') this.#schedule(entry, this.#clock.now())
  }

  /** The keys of what is held, or stands in its line because its holder may still be working. */
  heldKeys(): string[] {
    const held = this.#table.all().filter(({ phase }) => phase === 'held' || phase === 'overdue')
    return held.map(({ key }) => key)
  }

  /** Refuse what is not held. Resolves when nothing is left. */
  drained(error: () => EngineError): Promise<void> {
    for (const entry of this.#table.all()) if (entry.phase !== 'held' && !entry.over) this.#refuse(entry, error())
    return new Promise((resolve) => {
      this.#onEmpty = resolve
      this.#tellEmpty()
    })
  }

  /**
   * Holders are told to stop, but for those that are `spared`. They stand in their lines until they have, or are
   * abandoned. Answers how many were told.
   */
  tellToStop(spared: { has(id: string): boolean }): number {
    const told = this.#table.all().filter((entry) => !spared.has(entry.id) && this.check(entry))
    // A holder that is told of one loss may at once release other leases of this list: those are held no more.
    for (const entry of told) if (entry.phase === 'held') this.#lose(entry, 'closed')
    return told.length
  }

  /**
   * What is held is lost, the rest refused, and all of it leaves, but for what is `spared`. Resolves when the engine
   * has agreed to that.
   */
  abandoned(error: () => EngineError, spared?: { has(id: string): boolean }): Promise<void> {
    for (const entry of this.#table.all()) {
      if (spared?.has(entry.id)) continue
      if (entry.phase === 'held') this.#lose(entry, 'closed')
      else entry.settle({ state: 'refused', error: error() })
      void this.leave(entry)
    }
    return this.#sweeper.drained()
  }

  /** Ask for nothing any more, and hear nothing. */
  async stop(limitMs: () => number): Promise<void> {
    this.#heartbeat.stop()
    this.#sweeper.stop()
    this.#requests.stop()
    await this.#subscription.close(this.#clock, limitMs())
  }

  #tellEmpty(): void {
    if (this.#table.size === 0) this.#onEmpty?.()
  }

  // ---- hearing ----

  #answered(entry: Entry, standing: Answer, sent: Sent, now: number, verb: EntryVerb): void {
    const leaveWaits = entry.endRequest(sent)
    if (!entry.over) {
      this.#carryOut(entry, entry.hear(standing, sent, now), now)
      if (entry.askAgain) this.#ask(entry, now)
    } else if (verb === 'enter' && (standing.state === 'held' || standing.state === 'waiting')) {
      // Given up while this enter was on its way. What has arrived has to go, but not before a later attempt has ended.
      entry.inLine = true
      if (!leaveWaits) this.#leaveLate(entry)
    }
  }

  /** Something of an entry that was given up has arrived, or may arrive. Past its `maxHold` it is not given up yet. */
  #leaveLate(entry: Entry): void {
    if (entry.pendingEnter === 0 && entry.phase !== 'overdue') this.#sweeper.leaveLate(entry)
  }

  #carryOut(entry: Entry, verdict: Verdict, now: number): void {
    switch (verdict.step) {
      case 'schedule':
        this.#schedule(entry, now)
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
    entry.heldSince = this.#nextSequence()
    entry.askAgain = false
    entry.grantedAt = now
    this.#keepAlive.set(entry, false)
    entry.settle(HELD)
    this.#schedule(entry, now)
  }

  #heard(news: News): void {
    const now = this.#clock.now()
    if ('gap' in news) {
      for (const entry of this.#table.all()) {
        if (entry.phase !== 'held') this.#carryOut(entry, entry.hearHint(), now)
        // The engine is there again: what could not be renewed is, before its deadline.
        else if (entry.failingSince !== undefined || entry.pendingRequest !== 0) this.#ask(entry, now)
      }
      return
    }
    const entry = this.#table.get(news.id)
    if (entry === undefined || entry.over) {
      this.#sweeper.heardOf(news.id)
    } else if (news.standing?.state === 'held') {
      this.#carryOut(entry, entry.hearGranted(news.standing, now), now)
    } else {
      this.#carryOut(entry, entry.hearHint(), now)
    }
  }

  // ---- failing ----

  #failed(entry: Entry, error: EngineError, sent: Sent, verb: EntryVerb): void {
    this.#publish.failure({ operation: entry.operation, verb, held: entry.wasHeld, error })
    if (verb === 'enter' && error.outcome === 'unknown') entry.doubtfulUntil = sent.at + entry.ttlMs
    const leaveWaits = entry.endRequest(sent)
    if (entry.over) {
      if (verb === 'enter' && !leaveWaits) this.#leaveLate(entry)
      return
    }
    if (entry.phase !== 'held') this.#keepAlive.set(entry, true)
    const now = this.#clock.now()
    this.#carryOut(entry, entry.hearFailure(error, sent, now), now)
    this.#outages.heard(entry, error, now)
  }

  // ---- time ----

  #ask(entry: Entry, now: number): void {
    if (this.#requests.ask(entry)) this.#schedule(entry, now)
  }

  /** When to look at this entry again. */
  #schedule(entry: Entry, now: number): void {
    if (entry.phase === 'waiting') this.#keepAlive.set(entry, true)
    const at = entry.schedule(now, this.#retryDelayMs)
    if (at < Number.POSITIVE_INFINITY) this.#heartbeat.put(entry, at, now)
    else this.#heartbeat.remove(entry)
  }

  #due(entry: Entry, now: number): void {
    if (entry.over) return
    if (entry.phase === 'held') {
      if (!this.check(entry, now)) return
      if (now >= entry.jeopardyAt && !entry.inJeopardy) {
        entry.inJeopardy = true
        const { operation, token, lastError: error } = entry
        const remainingMs = entry.deadline - now
        this.#publish.jeopardy({ operation, token, remainingMs, ...(error === undefined ? {} : { error }) })
      }
    } else if (now >= entry.unreachableAt && entry.lastError !== undefined) {
      this.#refuse(entry, outageError(entry, entry.lastError, now))
      return
    }
    if (entry.pendingRequest === 0) this.#ask(entry, now)
    else this.#schedule(entry, now)
  }

  readonly #retryDelayMs = (ttlMs: number): number => retryDelayMs(ttlMs, this.#chance)

  // ---- ending ----

  #lose(entry: Entry, why: LossReason): void {
    if (why === 'maxHold' || why === 'evicted' || why === 'closed') this.#overstay(entry)
    else this.#drop(entry)
    entry.lost = why
    // Without a lease the grant was not told yet, and the loss is not told before it.
    entry.onLost?.(why)
  }

  /**
   * It is not renewed any more, and its holder is told to stop. The next one is let in when the holder has stopped and
   * gives it back, or else when its ttl is over.
   */
  #overstay(entry: Entry): void {
    entry.phase = 'overdue'
    this.#heartbeat.remove(entry)
    void this.#sweeper.leaveOverdue(entry).then(() => this.#drop(entry))
  }

  /** The attempt ends with an error. Something of it may be in the line. */
  #refuse(entry: Entry, error: Error): void {
    void this.leave(entry)
    entry.settle({ state: 'refused', error })
  }

  /** The attempt ends, and the engine has nothing of it, unless an attempt of unknown outcome is still on its way. */
  #finish(entry: Entry, outcome: Outcome): void {
    this.#drop(entry)
    if (entry.pendingEnter !== 0 || entry.doubtfulUntil > this.#clock.now()) void this.leave(entry)
    entry.settle(outcome)
  }

  #drop(entry: Entry): void {
    entry.phase = 'gone'
    this.#keepAlive.set(entry, false)
    this.#table.delete(entry.id)
    this.#heartbeat.remove(entry)
    if (this.#onEmpty !== undefined) this.#tellEmpty()
  }
}
