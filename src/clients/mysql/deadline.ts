/**
 * How long one call may take, whatever the client's own time-outs do: a pool whose connections are all taken waits for
 * ever, and so may a client for the answer of a frozen server. It is over when the core says so, and after a while in
 * any case.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import { onAbort } from '../../core/on-abort.ts'

export class Deadline {
  readonly #forget: () => void
  readonly #timer: Timer
  #fire: (() => void) | undefined
  over = false

  constructor(clock: Clock, limitMs: number, signal?: AbortSignal) {
    const end = (): void => {
      this.over = true
      this.#fire?.()
    }
    this.#timer = clock.timer(limitMs, end)
    this.#forget = onAbort(signal, end)
    if (signal?.aborted === true) this.over = true
  }

  /**
   * What `promise` comes to; or, when time is up, a rejection. `late` is then called, and whatever it returns is the
   * error.
   */
  race<Value>(promise: Promise<Value>, late: () => Error): Promise<Value> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => reject(late())
      if (this.over) giveUp()
      this.#fire = giveUp
      promise.then(resolve, reject)
    })
  }

  /** The call has ended. */
  end(): void {
    this.#timer.cancel()
    this.#forget()
    this.#fire = undefined
  }
}
