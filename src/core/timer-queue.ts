/**
 * One timer for everything that has to happen at some time to something we have in a line: renew it, try again, declare
 * it lost.
 *
 * Items that may be handled a little early are, when the timer fires for another one: so a process with a thousand
 * leases of one ttl soon renews them all in the same beat, with one batch.
 */
import type { Clock, Timer } from './clock.ts'
import { Heap, type Heaped } from './heap.ts'
import { withoutContext } from './no-context.ts'

/** `Heaped.at` is when it has to be handled. */
export interface Scheduled extends Heaped {
  /** How much earlier than `at` it may be handled. */
  readonly slackMs: number
}

export class TimerQueue<Item extends Scheduled> {
  readonly #clock: Clock
  readonly #due: (item: Item, now: number) => void
  readonly #heap = new Heap<Item>()
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #asleepMs = 0

  constructor(clock: Clock, due: (item: Item, now: number) => void) {
    this.#clock = clock
    this.#due = due
  }

  /**
   * Handle `item` at `at`, instead of when it was to be handled before. `now` is what the clock says, or said a moment
   * ago.
   */
  put(item: Item, at: number, now: number): void {
    this.#heap.put(item, at)
    this.#arm(now)
  }

  /**
   * Forget `item`. The timer stays where it is, and finds nothing to do: taking it down and setting it up again for
   * each short lease would cost more than a beat in vain.
   */
  remove(item: Item): void {
    this.#heap.remove(item)
  }

  stop(): void {
    for (const item of [...this.#heap.values()]) this.#heap.remove(item)
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
  }

  #arm(now: number): void {
    const at = this.#heap.peek()?.at ?? Number.POSITIVE_INFINITY
    // A timer does not run while the machine sleeps: one that has slept is set again, or everything new would wait for
    // it.
    const asleepMs = this.#clock.asleepMs?.() ?? 0
    if (this.#timerAt <= Math.max(at, now) && asleepMs === this.#asleepMs) return
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAt = Math.max(at, now)
    this.#asleepMs = asleepMs
    if (at === Number.POSITIVE_INFINITY) return
    this.#timer = this.#clock.timer(at - this.#clock.now(), () => withoutContext(() => this.#beat()))
  }

  #beat(): void {
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
    const now = this.#clock.now()
    // A Node timer may fire a fraction early. What has no slack is then not due yet, and the timer is set again.
    const due: Item[] = []
    for (let item = this.#heap.peek(); item !== undefined && item.at - item.slackMs <= now; item = this.#heap.peek()) {
      this.#heap.remove(item)
      due.push(item)
    }
    for (const item of due) this.#due(item, now)
    this.#arm(this.#clock.now())
  }
}
