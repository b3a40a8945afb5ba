/**
 * When to look again, for waiters who may hear nothing: the holder died, a message was lost, or a stranger holds.
 *
 * Each answer to a waiter says how long it may be left in peace. The first in line is told when the next entry can expire; whoever is behind it, when the
 * first has expired, which then did not look. While everybody renews, these times move on before they come, and nobody polls. A stranger tells nobody that it has
 * gone, so the first in line behind one looks again and again, less and less often; and without a connection to listen on, every waiter does.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { Heap, type Heaped } from '../../core/heap.ts'
import type { Patience } from './replies.ts'

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
  pollMs: number
}

export class Lookout {
  readonly #clock: Clock
  readonly #look: (key: string, id: string) => void
  readonly #waiters = new Map<string, Waiter>()
  readonly #heap = new Heap<Waiter>()
  /** Nobody tells us anything: poll. */
  deaf = true
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY

  constructor(clock: Clock, look: (key: string, id: string) => void) {
    this.#clock = clock
    this.#look = look
  }

  waits({ key, id, ttlMs, lookMs, place }: Patience): void {
    const waiter = this.#waiters.get(id) ?? { key, id, pollMs: POLL_FIRST_MS, at: 0, slot: -1 }
    this.#waiters.set(id, waiter)
    let delayMs = lookMs + AFTER_MS
    if (place === 'behind') delayMs = Math.max(delayMs, Math.min(BEHIND_MS, ttlMs / 6))
    if (place === 'stranger' || this.deaf) {
      delayMs = Math.min(delayMs, waiter.pollMs)
      waiter.pollMs = Math.min(waiter.pollMs * 1.5, POLL_LONGEST_MS)
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
    if (at >= this.#timerAt) return
    this.#timer?.cancel()
    this.#timerAt = at
    this.#timer = this.#clock.timer(at - this.#clock.now(), () => this.#fire())
  }

  #fire(): void {
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
    const now = this.#clock.now()
    for (let waiter = this.#heap.peek(); waiter !== undefined && waiter.at <= now; waiter = this.#heap.peek()) {
      this.#heap.remove(waiter)
      this.#look(waiter.key, waiter.id)
    }
    this.#arm()
  }
}
