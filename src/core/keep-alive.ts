/**
 * Keeping the process alive while callers await something of ours, the work of a `using` included: one anchor, however
 * many callers there are.
 */
import type { Clock, Timer } from './clock.ts'

export class KeepAlive {
  readonly #clock: Clock
  #wanted = 0
  #anchor: Timer | undefined
  #stopped = false

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Once for each caller that waits; `end` as often. */
  begin(): void {
    if (this.#wanted === 0 && !this.#stopped) this.#anchor = this.#clock.stayAlive()
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

  /** The locks are closed: what is still awaited, like work that does not heed its signal, keeps nothing alive. */
  stop(): void {
    this.#stopped = true
    this.#anchor?.cancel()
  }
}

/** Let `ms` pass for a caller who awaits it: our timers alone keep no process alive. */
export async function pauseAwaited(clock: Clock, ms: number): Promise<void> {
  const alive = clock.stayAlive()
  await new Promise<void>((resolve) => clock.timer(ms, resolve))
  alive.cancel()
}
