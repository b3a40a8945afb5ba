/**
 * When to look again, for waiters of an engine who may hear nothing: the holder died, or a message was lost.
 *
 * Each answer to a waiter says how long it may be left in peace. The first in line is told when the next of those who
 * hold can expire; whoever is behind it, when the first has expired, which then did not look. While everybody renews,
 * these times move on before they come, and nobody polls. Only where nobody tells us anything, because a stranger holds
 * or because there is no connection to listen on, do we look again and again, less and less often, and for all such
 * waiters together.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { Heap, type Heaped } from '../../core/heap.ts'

/** A waiter, and how long it may be left in peace. */
export interface Patience {
  readonly key: string
  readonly id: string
  readonly ttlMs: number
  /** When to look again, from now, should nothing be heard. */
  readonly lookMs: number
  /**
   * `first` in line; `behind` another waiter; first in line behind a `stranger`, who will not tell us that it has gone.
   */
  readonly place: 'first' | 'behind' | 'stranger'
}

/** Looking right at an expiry would sometimes be a moment too early. */
const AFTER_MS = 2
/** Behind somebody of a very short ttl, looking whenever that one could have died would be a storm. */
const BEHIND_MS = 200
const POLL_FIRST_MS = 20
const POLL_LONGEST_MS = 500

/** `Heaped.at` is when to look. */
interface Waiter extends Heaped {
  readonly key: string
  readonly id: string
  /** How much earlier it may be, so that all look together. */
  slackMs: number
  pollMs: number
}

export class Lookout {
  readonly #clock: Clock
  readonly #deaf: () => boolean
  readonly #look: (key: string, id: string) => void
  readonly #waiters = new Map<string, Waiter>()
  readonly #heap = new Heap<Waiter>()
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #asleepMs = 0

  /** `deaf`: nobody tells us anything, so poll. `look`: ask where that entry stands. */
  constructor(clock: Clock, deaf: () => boolean, look: (key: string, id: string) => void) {
    this.#clock = clock
    this.#deaf = deaf
    this.#look = look
  }

  waits({ key, id, ttlMs, lookMs, place }: Patience): void {
    const waiter = this.#waiters.get(id) ?? { key, id, slackMs: 0, pollMs: POLL_FIRST_MS, at: 0, slot: -1 }
    this.#waiters.set(id, waiter)
    let delayMs = lookMs + AFTER_MS
    if (place === 'behind') delayMs = Math.max(delayMs, Math.min(BEHIND_MS, ttlMs / 6))
    waiter.slackMs = 0
    if ((place === 'stranger' || this.#deaf()) && waiter.pollMs < delayMs) {
      delayMs = waiter.pollMs
      waiter.slackMs = delayMs / 4
      waiter.pollMs = Math.min(delayMs * 1.5, POLL_LONGEST_MS)
    }
    this.#heap.put(waiter, this.#clock.now() + delayMs)
    this.#arm()
  }

  /** It waits no longer. */
  forget(id: string): void {
    if (this.#waiters.size === 0) return
    const waiter = this.#waiters.get(id)
    if (waiter === undefined) return
    this.#waiters.delete(id)
    this.#heap.remove(waiter)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
    for (const id of [...this.#waiters.keys()]) this.forget(id)
  }

  #arm(): void {
    const at = this.#heap.peek()?.at ?? Number.POSITIVE_INFINITY
    // A timer does not run while the machine sleeps: one that has slept is set again.
    const asleepMs = this.#clock.asleepMs?.() ?? 0
    if (at >= this.#timerAt && asleepMs === this.#asleepMs) return
    this.#asleepMs = asleepMs
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAt = at
    if (at < Number.POSITIVE_INFINITY) this.#timer = this.#clock.timer(at - this.#clock.now(), () => this.#fire())
  }

  #fire(): void {
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
    const now = this.#clock.now()
    for (
      let waiter = this.#heap.peek();
      waiter !== undefined && waiter.at - waiter.slackMs <= now;
      waiter = this.#heap.peek()
    ) {
      this.#heap.remove(waiter)
      this.#look(waiter.key, waiter.id)
    }
    this.#arm()
  }
}
