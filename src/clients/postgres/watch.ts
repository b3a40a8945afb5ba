/**
 * How long calls may take, whatever the client's own time-outs do: pg waits for ever for a connection of a full pool,
 * and postgres.js for the answer of a frozen server. One timer looks after all of them, now and then: a timer for each
 * would cost more than it is worth.
 */
import type { Clock } from '../../core/clock.ts'

/** A call that is under way. */
export interface Watched {
  /** When it has had its time; may be changed. */
  overAt: number
  /** Its time is up. */
  over(): void
}

/** How much later than its time a call may be ended. */
const EVERY_MS = 50

export class Watch {
  readonly clock: Clock
  readonly #calls = new Set<Watched>()
  #looking = false

  constructor(clock: Clock) {
    this.clock = clock
  }

  now(): number {
    return this.clock.now()
  }

  begin(call: Watched): void {
    this.#calls.add(call)
    if (!this.#looking) this.#lookSoon()
  }

  end(call: Watched): void {
    this.#calls.delete(call)
  }

  /** What `promise` comes to, within `limitMs`; else a rejection with what `late` makes. */
  within<Value>(promise: Promise<Value>, limitMs: number, late: () => Error): Promise<Value> {
    return new Promise((resolve, reject) => {
      const call: Watched = { overAt: this.now() + limitMs, over: () => reject(late()) }
      this.begin(call)
      promise.then(resolve, reject).finally(() => this.end(call))
    })
  }

  /** It goes on while there are calls; it is not worth taking down for the moment between two of them. */
  #lookSoon(): void {
    this.#looking = true
    this.clock.timer(EVERY_MS, () => this.#look())
  }

  #look(): void {
    this.#looking = this.#calls.size > 0
    if (!this.#looking) return
    const now = this.now()
    for (const call of [...this.#calls]) {
      if (call.overAt > now) continue
      this.#calls.delete(call)
      call.over()
    }
    this.#lookSoon()
  }
}
