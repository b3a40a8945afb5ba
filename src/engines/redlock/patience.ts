/** How long to wait for those who do not answer. */
import type { Clock, Timer } from '../../core/clock.ts'

/** A timer may fire a fraction early. */
const EARLY_MS = 1

class Wait implements Timer {
  readonly at: number
  over: (() => void) | undefined

  constructor(at: number, over: () => void) {
    this.at = at
    this.over = over
  }

  cancel(): void {
    this.over = undefined
  }

  end(): void {
    const { over } = this
    this.over = undefined
    over?.()
  }
}

/**
 * One timer for all who wait, since all of them wait equally long. It is left standing when they are answered, for the
 * next ones: setting one up and taking it down for every call would cost more than looking in vain now and then.
 */
export class Patience {
  readonly #clock: Clock
  readonly #timeoutMs: number
  /** In the order in which their time is over. */
  #waits: Wait[] = []
  #armed = false

  constructor(clock: Clock, timeoutMs: number) {
    this.#clock = clock
    this.#timeoutMs = timeoutMs
  }

  /**
   * Call `over` when the time is over and what has arrived until then has been read. After a stall of our own a timer
   * is the first to be served, and the answers that lie there the second: nobody is silent because we were. `now` is
   * what the clock says.
   */
  wait(over: () => void, now: number = this.#clock.now()): Timer {
    const wait = new Wait(now + this.#timeoutMs, over)
    this.#waits.push(wait)
    if (!this.#armed) this.#arm(this.#timeoutMs)
    return wait
  }

  #arm(delayMs: number): void {
    this.#armed = true
    this.#clock.timer(delayMs, () => this.#look())
  }

  #look(): void {
    const now = this.#clock.now()
    const due: Wait[] = []
    const later: Wait[] = []
    for (const wait of this.#waits) if (wait.over !== undefined) (wait.at <= now + EARLY_MS ? due : later).push(wait)
    this.#waits = later
    if (due.length > 0) {
      this.#clock.timer(0, () => {
        for (const wait of due) wait.end()
      })
    }
    const [next] = later
    this.#armed = next !== undefined
    if (next !== undefined) this.#arm(next.at - now)
  }
}

/**
 * Resolves when `wanted` of these are fulfilled and the others have had a moment more, or when all are settled; with
 * how many are fulfilled. Never rejects.
 */
export function enough(
  promises: readonly Promise<unknown>[],
  wanted: number,
  clock: Clock,
  momentMs: number,
): Promise<number> {
  return new Promise((resolve) => {
    let [fulfilled, settled] = [0, 0]
    let moment: Timer | undefined
    const look = (): void => {
      settled += 1
      if (fulfilled >= wanted) moment ??= clock.timer(momentMs, () => resolve(fulfilled))
      if (settled < promises.length) return
      moment?.cancel()
      resolve(fulfilled)
    }
    for (const promise of promises) {
      promise.then(() => {
        fulfilled += 1
        look()
      }, look)
    }
  })
}
