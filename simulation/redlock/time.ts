/**
 * Virtual time for the majority: one heap of events, and a clock for each client that runs at a rate of its own.
 * Nothing here is asynchronous.
 */
import type { Clock, Timer } from '../../src/core/clock.ts'
import { Heap, type Heaped } from '../../src/core/heap.ts'

class Happening implements Heaped {
  at = 0
  slot = -1
  readonly fire: () => void

  constructor(fire: () => void) {
    this.fire = fire
  }
}

export class VirtualTime {
  /** The true time (ms). */
  now = 0
  readonly #heap = new Heap<Happening>()

  after(delayMs: number, fire: () => void): Timer {
    const happening = new Happening(fire)
    this.#heap.put(happening, this.now + delayMs)
    return { cancel: () => this.#heap.remove(happening) }
  }

  /** Let everything happen until then. */
  runUntil(at: number): void {
    for (let next = this.#heap.peek(); next !== undefined && next.at <= at; next = this.#heap.peek()) {
      this.#heap.remove(next)
      this.now = next.at
      next.fire()
    }
    this.now = at
  }

  /** A clock that runs a little fast or slow. */
  clock(rate: number): Clock {
    return {
      now: () => this.now * rate,
      timer: (delayMs, fire) => this.after(delayMs / rate, fire),
      stayAlive: () => ({ cancel: () => undefined }),
    }
  }
}
