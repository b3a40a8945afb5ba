/**
 * Notices that a server says nothing any more. A server that says nothing while it has something to answer is left
 * within a third of the session time, and within 5 s: long enough before the session ends to go on with another server.
 * To have something to answer, it is pinged whenever nothing else was sent for a while.
 */
import type { Clock, Timer } from '../../core/clock.ts'

export interface SilenceWatchOptions {
  readonly clock: Clock
  /** The session time. */
  readonly timeoutMs: number
  /** When the oldest thing was sent that is not answered yet; infinite if there is none. */
  unansweredSince(): number
  /** Nothing was sent for a while. */
  ping(): void
  /** The server has had its time. */
  silent(): void
}

/** A part of the session time, but no more than so many milliseconds. */
interface Share {
  readonly share: number
  readonly longestMs: number
}

/** After so long without a word of the server, it is left. */
const SILENCE: Share = { share: 1 / 3, longestMs: 5_000 }
/** Something has to be unanswered for so long, then. */
const UNANSWERED: Share = { share: 1 / 5, longestMs: 3_000 }
/** After so long in which nothing else was sent, the server is pinged. */
const PING: Share = { share: 1 / 8, longestMs: 2_000 }
/** A request that is not answered for so long ends the connection, whatever else the server says. */
const OVERDUE: Share = { share: 2 / 3, longestMs: 10_000 }

export class SilenceWatch {
  readonly #options: SilenceWatchOptions
  readonly #clock: Clock
  #lastSentAt: number
  #lastHeardAt: number
  /** The time is over, and the server has one more turn of the event loop: its answer may lie in the socket unread. */
  #reminded = false
  #stopped = false
  #timer: Timer | undefined

  constructor(options: SilenceWatchOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#lastSentAt = this.#clock.now()
    this.#lastHeardAt = this.#lastSentAt
    this.#lookLater()
  }

  sent(at: number): void {
    this.#lastSentAt = at
  }

  heard(at: number): void {
    this.#lastHeardAt = at
    this.#reminded = false
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  /** Look again when something can be due. */
  #lookLater(): void {
    if (this.#stopped) return
    this.#timer = this.#clock.timer(this.#msOf(PING) / 2, () => {
      const now = this.#clock.now()
      if (this.#isSilent(now)) {
        // If this process stood still, the answer lies in the socket unread. It is read before the next timer fires.
        this.#reminded = true
        this.#timer = this.#clock.timer(1, () => this.#lookAgain())
        return
      }
      if (now - this.#lastSentAt >= this.#msOf(PING)) this.#options.ping()
      this.#lookLater()
    })
  }

  #lookAgain(): void {
    if (this.#isSilent(this.#clock.now()) && this.#reminded) this.#options.silent()
    else this.#lookLater()
  }

  #isSilent(now: number): boolean {
    const since = this.#options.unansweredSince()
    if (now - since >= this.#msOf(OVERDUE)) return true
    return now - this.#lastHeardAt >= this.#msOf(SILENCE) && now - since >= this.#msOf(UNANSWERED)
  }

  #msOf({ share, longestMs }: Share): number {
    return Math.min(this.#options.timeoutMs * share, longestMs)
  }
}
