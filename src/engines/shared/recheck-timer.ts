/**
 * When to ask again where a waiter stands, should it hear nothing: the holder died, or a message was lost.
 *
 * Each answer to a waiter says how long it may be left in peace. The first in line is told when the next of the holders
 * can expire; the waiters behind it, when the first has expired, which then did not recheck. While all of them renew,
 * these times move on before they come, and there is no polling. Only where no news can come, because a stranger holds
 * or because there is no connection to listen on, are such waiters rechecked again and again, less and less often, and
 * all together.
 */
import type { Clock } from '../../core/clock.ts'
import { type Scheduled, TimerQueue } from '../../core/timer-queue.ts'

/** A waiter, and when to recheck it. */
export interface Recheck {
  readonly key: string
  readonly id: string
  readonly ttlMs: number
  /** When to ask again, from now, should nothing be heard. */
  readonly recheckMs: number
  /** `first` in line; `behind` another waiter; behind a `stranger`, who may not wake it (standing-codes.ts). */
  readonly place: 'first' | 'behind' | 'stranger'
}

/** Asking right at an expiry would sometimes be a moment too early. */
const AFTER_MS = 2
/** Behind an entry of a very short ttl, asking whenever that one could have died would be a storm. */
const BEHIND_MS = 200
const POLL_FIRST_MS = 20
const POLL_LONGEST_MS = 500

/** `at` is when to recheck; `slackMs`, how much earlier it may be, so that all polls go together. */
interface WaiterTimer extends Scheduled {
  readonly key: string
  readonly id: string
  slackMs: number
  pollMs: number
}

export class RecheckTimer {
  readonly #clock: Clock
  readonly #deaf: () => boolean
  readonly #recheck: (key: string, id: string) => void
  readonly #waiters = new Map<string, WaiterTimer>()
  readonly #queue: TimerQueue<WaiterTimer>
  /** By call that is under way: which waiters were forgotten since it was sent. */
  readonly #forgotten = new Set<Set<string>>()

  /** `deaf`: no news can come, so poll. `recheck`: ask where that entry stands. */
  constructor(clock: Clock, deaf: () => boolean, recheck: (key: string, id: string) => void) {
    this.#clock = clock
    this.#deaf = deaf
    this.#recheck = recheck
    this.#queue = new TimerQueue(clock, ({ key, id }) => recheck(key, id))
  }

  /** This entry waits. */
  schedule({ key, id, ttlMs, recheckMs, place }: Recheck): void {
    const waiter = this.#waiters.get(id) ?? { key, id, slackMs: 0, pollMs: POLL_FIRST_MS, at: 0, slot: -1 }
    this.#waiters.set(id, waiter)
    let delayMs = recheckMs + AFTER_MS
    if (place === 'behind') delayMs = Math.max(delayMs, Math.min(BEHIND_MS, ttlMs / 6))
    waiter.slackMs = 0
    if ((place === 'stranger' || this.#deaf()) && waiter.pollMs < delayMs) {
      delayMs = waiter.pollMs
      waiter.slackMs = delayMs / 4
      waiter.pollMs = Math.min(delayMs * 1.5, POLL_LONGEST_MS)
    }
    const now = this.#clock.now()
    this.#queue.put(waiter, now + delayMs, now)
  }

  /** This entry waits no longer. Answers whether it was known to wait. */
  forget(id: string): boolean {
    if (this.#forgotten.size > 0) for (const ids of this.#forgotten) ids.add(id)
    return this.#waiters.size > 0 && this.#remove(id)
  }

  /**
   * A call whose answer schedules waiters. What is forgotten while it is under way (a waiter has left, or has heard
   * that it holds) stays forgotten: the answer is older than that.
   */
  async during<Answer>(call: Promise<Answer>): Promise<Answer> {
    const forgotten = new Set<string>()
    this.#forgotten.add(forgotten)
    try {
      return await call
    } finally {
      this.#forgotten.delete(forgotten)
      for (const id of forgotten) this.#remove(id)
    }
  }

  /**
   * For engines that tell this process of its own waiters in the answer to the call that lets them hold. These `places`
   * were not in their lines when they were to leave. It may be that an earlier leave has taken them out, and that its
   * answer was lost, and the news in it: so the waiters of these lines ask.
   */
  notThere(places: readonly { readonly key: string }[]): void {
    if (places.length === 0 || this.#waiters.size === 0) return
    const keys = new Set(places.map(({ key }) => key))
    for (const { key, id } of [...this.#waiters.values()]) if (keys.has(key)) this.#recheck(key, id)
  }

  /** Whether this entry is known to wait. */
  has(id: string): boolean {
    return this.#waiters.has(id)
  }

  /** How many waiters are to be rechecked. */
  get size(): number {
    return this.#waiters.size
  }

  stop(): void {
    this.#waiters.clear()
    this.#queue.stop()
  }

  #remove(id: string): boolean {
    const waiter = this.#waiters.get(id)
    if (waiter === undefined) return false
    this.#queue.remove(waiter)
    return this.#waiters.delete(id)
  }
}
