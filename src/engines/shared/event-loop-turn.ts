/**
 * When an engine that works without waiting has to let the event loop turn.
 *
 * A program that takes and gives back free locks one after the other never waits for anything outside, so promises
 * alone carry it on, and timers and sockets get no turn: the heartbeats of its other leases neither. So an engine whose
 * calls are done at once asks here before each of them, and after some milliseconds does the next one in a later
 * turn. A usual caller is done long before, and pays for one immediate.
 */

/** Well below any ttl, and long enough that the turns in between cost next to nothing. */
const LONGEST_MS = 5

export class EventLoopTurn {
  #since: number | undefined

  /** Whether work has gone on in this turn for so long that the next piece should wait for the next turn. */
  isOver(now: number): boolean {
    if (this.#since !== undefined) return now - this.#since > LONGEST_MS
    this.#since = now
    setImmediate(() => {
      this.#since = undefined
    })
    return false
  }

  /** Go on here after timers and sockets had their turn. */
  next(work: () => void): void {
    setImmediate(work)
  }
}
