/** Keeping the process alive while callers await something of ours: one anchor, however many callers there are. */
import type { Clock, Timer } from './clock.ts'

export class KeepAlive {
  readonly #clock: Clock
  #wanted = 0
  #anchor: Timer | undefined

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Once for each caller that waits; `end` as often. */
  begin(): void {
    if (this.#wanted === 0) this.#anchor = this.#clock.stayAlive()
    this.#wanted += 1
  }

  /** The same for one that remembers whether it is waited for: asking twice counts once. */
  set(waiter: { keepsAlive: boolean }, waitedFor: boolean): void {
    if (waiter.keepsAlive === waitedFor) return
    waiter.keepsAlive = waitedFor
    if (waitedFor) this.begin()
    else this.end()
  }

  end(): void {
    this.#wanted -= 1
    if (this.#wanted === 0) this.#anchor?.cancel()
  }
}
