/**
 * Leaving lines, for certain.
 *
 * A leave that fails is repeated until the entry has surely expired by itself. And an enter that was never answered may
 * still be on its way: after giving up on one, the leave is repeated every beat until a ttl after the last attempt,
 * whatever it answers, so that a late arrival does not stand in line for work that was given up.
 */

import { Batch, type BatchSpec } from './batch.ts'
import type { Chance, Clock } from './clock.ts'
import type { Publish } from './diagnostics.ts'
import type { Engine } from './engine.ts'
import { type Entry, marginMs } from './entry.ts'
import type { EntryRequests } from './entry-requests.ts'
import type { EngineError } from './errors.ts'
import { failureOf, noAnswer } from './failed-call.ts'
import type { KeepAlive } from './keep-alive.ts'
import { rejectAfter } from './time-limit.ts'
import { type Scheduled, TimerQueue } from './timer-queue.ts'

interface Departure extends Scheduled {
  readonly key: string
  readonly id: string
  /** What leaves. It is neither entered nor renewed any more. */
  readonly entry: Entry
  /** Repeat even an answered leave until then. */
  readonly doubtfulUntil: number
  /** The entry has expired by then, whatever happened to our leave; known when the first leave is sent. */
  overAt: number
  /** It is to stand in the line until then. */
  readonly notBefore: number
  readonly held: boolean
  readonly answer: (wasHeld: boolean) => void
}

/**
 * How long to pause before asking again what failed: short against the ttl, never a hot loop, never in step with
 * others.
 */
export function retryDelayMs(ttlMs: number, chance: Chance): number {
  return Math.min(Math.max(ttlMs / 10, 5), 1000) * (0.5 + chance.fraction())
}

export interface SweeperOptions {
  readonly engine: Engine
  readonly clock: Clock
  readonly chance: Chance
  readonly publish: Publish
  readonly keepAlive: KeepAlive
  /** No leave is waited for longer. */
  readonly callTimeoutMs: number
  readonly nextSequence: () => number
  /** What else is asked for entries: a leave does not overtake it. */
  readonly requests: EntryRequests
}

export class Sweeper {
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #chance: Chance
  readonly #publish: Publish
  readonly #callTimeoutMs: number
  readonly #requests: EntryRequests
  readonly #leaves: Batch<Departure, boolean>
  readonly #repeats: TimerQueue<Departure>
  /** Those that are to be sent later, by id: few, since a leave is usually sent at once and answered. */
  readonly #later = new Map<string, Departure>()
  /** Those that the engine is being asked to let stand without us. */
  readonly #agreeing = new Set<Promise<boolean>>()
  /** Aborts when nothing is asked any more. */
  readonly #stopping = new AbortController()

  constructor(options: SweeperOptions) {
    const { engine, clock, callTimeoutMs } = options
    this.#engine = engine
    this.#clock = clock
    this.#chance = options.chance
    this.#publish = options.publish
    this.#callTimeoutMs = callTimeoutMs
    this.#requests = options.requests
    const spec: BatchSpec<Departure, boolean> = {
      engine: engine.name,
      verb: 'leave',
      batchLimit: engine.traits.batchLimit,
      splitFrom: engine.traits.splitFrom ?? Number.POSITIVE_INFINITY,
      call: (places) => engine.leave(places),
      takesSignal: () => false,
      timeoutMs: () => callTimeoutMs,
      sending: (departure, sent) => {
        departure.overAt ||= Math.max(departure.entry.lastSentAt, sent.at) + departure.entry.ttlMs
        return true
      },
      answered: (departure, wasThere, _sent, now) => this.#answered(departure, wasThere, now),
      failed: (departure, error) => this.#failed(departure, error),
      abandoned: (departure) => departure.answer(false),
    }
    this.#leaves = new Batch(spec, clock, options.keepAlive, options.nextSequence)
    this.#repeats = new TimerQueue(clock, (departure) => {
      this.#later.delete(departure.id)
      this.#leaves.add(departure)
    })
  }

  /**
   * Leave. Resolves with whether it was held until then: it was `held` by our own account, and the engine says that it
   * was there. False once the first attempt has failed; it is repeated in the background. Never rejects: a caller could
   * do no more about it than this does. An entry that is to outlive us (`leaveAfter`) leaves when its time is over.
   */
  leave(entry: Entry, held: boolean): Promise<boolean> {
    // Never overtake an enter that is on its way.
    if (entry.pendingEnter === 0) return this.#leave(entry, held)
    return entry.enterEnded().then(() => this.#leave(entry, held))
  }

  /** Something of an entry that was given up has arrived after all, or may arrive. */
  leaveLate(entry: Entry): void {
    if (entry.outlivesUntil < Number.POSITIVE_INFINITY) void this.#leave(entry, false)
  }

  /**
   * Leave when its ttl is over, counted from the last request that was sent for it, unless it leaves before. On most
   * engines it has expired by then; a session lock, or a lease that is kept alive for other entries, has not.
   */
  leaveOverdue(entry: Entry): Promise<boolean> {
    return this.#leave(entry, false, entry.lastSentAt + entry.ttlMs)
  }

  /** Let it stand for `afterMs` more, without us. Resolves with whether the engine agreed. */
  leaveAfter(entry: Entry, afterMs: number): Promise<boolean> {
    const agreeing = this.#leaveAfter(entry, afterMs).finally(() => this.#agreeing.delete(agreeing))
    this.#agreeing.add(agreeing)
    return agreeing
  }

  async #leaveAfter(entry: Entry, afterMs: number): Promise<boolean> {
    entry.outlivesUntil = Number.POSITIVE_INFINITY
    this.#cancel(entry.id)
    // An enter or a renewal that is on its way would make it stand for a whole ttl.
    if (entry.pendingEnter !== 0) await entry.enterEnded()
    await Promise.race([entry.requestEnded(), this.#requests.renewalsEnded()])
    if (this.#stopped) return false
    const agreed = await this.#renewOnce(entry, afterMs)
    entry.outlivesUntil = this.#clock.now() + afterMs + marginMs(entry.ttlMs)
    // An enter of unknown outcome may still arrive, and stand in the line for no caller.
    if (entry.isDoubtful) this.leaveLate(entry)
    return agreed
  }

  get #stopped(): boolean {
    return this.#stopping.signal.aborted
  }

  async #renewOnce({ key, id, token, operation, wasHeld: held }: Entry, ttlMs: number): Promise<boolean> {
    const { name } = this.#engine
    const ms = this.#callTimeoutMs
    const late = (): EngineError => noAnswer(name, 'renew', ms)
    try {
      const asked = this.#engine.renew([{ key, id, ttlMs: Math.ceil(ttlMs), outlives: true }])
      // No answer is waited for once the locks are closed: that would keep their process alive.
      const [standing] = await rejectAfter(this.#clock, ms, asked, late, this.#stopping.signal)
      if (standing?.state === 'failed') throw standing.error
      // Another token: ours had expired, and the key was free until a late duplicate of our enter came in.
      return standing?.state === 'held' && standing.token === token
    } catch (error) {
      if (!this.#stopped)
        this.#publish.failure({ operation, verb: 'renew', held, error: failureOf(name, 'renew', error) })
      return false
    }
  }

  /** A leave of this entry that was to be sent later is not sent. */
  #cancel(id: string): void {
    const departure = this.#later.get(id)
    if (departure === undefined) return
    this.#repeats.remove(departure)
    this.#later.delete(id)
    departure.answer(false)
  }

  #leave(entry: Entry, held: boolean, notBefore: number = entry.outlivesUntil): Promise<boolean> {
    if (this.#stopped || !entry.mayBeInLine) return Promise.resolve(false)
    if (this.#later.size > 0) this.#cancel(entry.id)
    return new Promise((answer) => {
      const { key, id, doubtfulUntil } = entry
      const departure = {
        key,
        id,
        entry,
        doubtfulUntil,
        notBefore,
        overAt: 0,
        held,
        answer,
        at: 0,
        slot: -1,
        slackMs: 0,
      }
      entry.newestLeave = departure
      if (notBefore === Number.NEGATIVE_INFINITY) this.#leaves.add(departure)
      else this.#sendAt(departure, notBefore, this.#clock.now())
    })
  }

  #sendAt(departure: Departure, at: number, now: number): void {
    this.#later.set(departure.id, departure)
    this.#repeats.put(departure, at, now)
  }

  /** News of an entry that we are leaving: it has arrived after all. */
  heardOf(id: string): void {
    const departure = this.#later.get(id)
    if (departure === undefined) return
    const now = this.#clock.now()
    this.#repeats.put(departure, Math.max(now, departure.notBefore), now)
  }

  /** Resolves when nothing is on its way into a line, and every leave has been tried. */
  async drained(): Promise<void> {
    // Leaves wait for the enter that they must not overtake. It is answered, or times out, before this is drained.
    await this.#requests.entersEnded()
    await Promise.all(this.#agreeing)
    await this.#leaves.drained()
  }

  stop(): void {
    this.#stopping.abort()
    for (const departure of this.#later.values()) departure.answer(false)
    this.#later.clear()
    this.#repeats.stop()
    this.#leaves.stop()
  }

  #answered(departure: Departure, wasThere: boolean, now: number): void {
    departure.answer(wasThere && departure.held)
    const { entry, doubtfulUntil } = departure
    // The first leave of an entry that was granted is its release, and no cleanup. A later leave is a cleanup if it has
    // taken out a late arrival; else it had nothing to do.
    const tells = entry.leaveAnswered ? wasThere : !entry.wasHeld
    if (doubtfulUntil > Number.NEGATIVE_INFINITY && tells)
      this.#publish.cleanup({ operation: entry.operation, wasThere })
    entry.leaveAnswered = true
    if (now < doubtfulUntil) this.#repeat(departure, Math.min(now + entry.ttlMs / 3, doubtfulUntil), now)
  }

  #failed(departure: Departure, error: EngineError): void {
    departure.answer(false)
    const { entry } = departure
    this.#publish.failure({ operation: entry.operation, verb: 'leave', held: entry.wasHeld, error })
    const now = this.#clock.now()
    const next = now + retryDelayMs(entry.ttlMs, this.#chance)
    if (next < departure.overAt) this.#repeat(departure, next, now)
  }

  /** Unless a newer leave of the same entry does it. */
  #repeat(departure: Departure, at: number, now: number): void {
    if (!this.#stopped && departure.entry.newestLeave === departure) this.#sendAt(departure, at, now)
  }
}
