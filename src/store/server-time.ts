/**
 * What time it is on the server of the store. Schedules go by it, so that the clocks of hosts do not matter: one may be
 * a minute or an hour off, or be set while jobs run.
 *
 * Each answer of the store says what time it was there. From then on this process counts by its monotonic clock. Where
 * the server does not tell, the wall clock of this host is all there is.
 */
import { type Clock, wallClockMs } from '../core/clock.ts'
import type { ServerTimeMs } from '../core/store.ts'

export class ServerTime {
  readonly #clock: Clock
  /** What the server's wall clock is ahead of our monotonic one; undefined until it was told. */
  #aheadMs: number | undefined
  #behindMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Milliseconds since 1970. */
  now(): number {
    return this.#aheadMs === undefined ? wallClockMs() : this.#clock.now() + this.#aheadMs
  }

  /** The server's time is later than `now()` by this at most. 0 until it was told. */
  get behindMs(): number {
    return this.#behindMs
  }

  /**
   * The answer to what was sent at `sentAt`, by our clock, is here. The server's time is now at least what it says, and
   * at most as much later as the call took. What we believe is moved no further than into these bounds, and begins at
   * the lower one: so it is never ahead of the server, and quick calls bring it near.
   */
  heard(serverTimeMs: ServerTimeMs, sentAt: number): void {
    if (serverTimeMs === null) return
    const now = this.#clock.now()
    const [least, most] = [serverTimeMs, serverTimeMs + (now - sentAt)]
    const believed = this.#aheadMs === undefined ? least : now + this.#aheadMs
    const bounded = Math.min(Math.max(believed, least), most)
    // If what we believed is within the bounds of this answer, what the quickest call so far has shown still holds. If
    // it is not, or nothing was believed yet, this answer alone says how far behind we may be.
    this.#behindMs = Math.min(
      most - bounded,
      bounded === believed && this.#aheadMs !== undefined ? this.#behindMs : Number.POSITIVE_INFINITY,
    )
    this.#aheadMs = bounded - now
  }
}
