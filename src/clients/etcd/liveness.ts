/**
 * Whether the server at the other end of a connection lives. While it has something to answer and says nothing, it is
 * pinged. If it does not answer the ping either, it is taken for dead.
 *
 * One timer serves all calls of the connection. It is not cancelled when an answer comes: the next call uses it, too,
 * so that a call costs no timer.
 */
import type { Clock, Timer } from '../../core/clock.ts'

/** With a call open and nothing heard for this long, ping. */
const QUIET_MS = 400
/** How long the server has to answer a ping. */
const PONG_MS = 600
/** As QUIET_MS, where only streams are open. */
const IDLE_MS = 10_000
/** etcd takes more than two pings within 5 s for an attack, unless it has answered something in between. */
const PING_EVERY_MS = 6_000

/** The connection that is checked. */
export interface LivenessPeer {
  /** What the server has still to answer. */
  expects(): 'calls' | 'streams' | 'nothing'
  /** Send a ping, and call `pong` when it is answered. */
  ping(pong: () => void): void
  /** The ping was not answered. */
  dead(): void
}

export class LivenessCheck {
  readonly #clock: Clock
  readonly #peer: LivenessPeer
  /** Since when the server has something to answer, and nothing was heard of it. */
  #quietSince: number
  /** When it last answered something other than a ping. */
  #answeredAt = Number.NEGATIVE_INFINITY
  #pingedAt = Number.NEGATIVE_INFINITY
  #pinging = false
  /** The time for the ping is over, and the server has one more turn of the event loop. */
  #reminded = false
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #stopped = false

  constructor(clock: Clock, peer: LivenessPeer) {
    this.#clock = clock
    this.#peer = peer
    this.#quietSince = clock.now()
  }

  /** The server has something to answer, and had nothing before. */
  begin(): void {
    this.#quietSince = this.#clock.now()
  }

  answered(): void {
    this.#answeredAt = this.#clock.now()
    this.#quietSince = this.#answeredAt
    this.#pinging = false
  }

  /** Set the timer, if it is not set for early enough. */
  watch(): void {
    const now = this.#clock.now()
    const at = this.#lookAt()
    if (this.#stopped || at >= this.#timerAt) return
    this.#timer?.cancel()
    this.#timerAt = at
    this.#timer = this.#clock.timer(Math.max(at - now, 1), () => {
      this.#timer = undefined
      this.#timerAt = Number.POSITIVE_INFINITY
      this.#look()
    })
  }

  stop(): void {
    this.#stopped = true
    this.#timer?.cancel()
  }

  #lookAt(): number {
    if (this.#pinging) return this.#pingedAt + PONG_MS
    const expected = this.#peer.expects()
    if (expected === 'nothing') return Number.POSITIVE_INFINITY
    const at = this.#quietSince + (expected === 'calls' ? QUIET_MS : IDLE_MS)
    return this.#answeredAt > this.#pingedAt ? at : Math.max(at, this.#pingedAt + PING_EVERY_MS)
  }

  #look(): void {
    const now = this.#clock.now()
    if (now >= this.#lookAt()) {
      if (this.#pinging && this.#reminded) {
        this.#peer.dead()
        return
      }
      if (this.#pinging) {
        // If this process stood still, the answer lies in the socket unread. It is read before the next timer fires.
        this.#reminded = true
        this.watch()
        return
      }
      this.#ping(now)
    }
    this.watch()
  }

  #ping(now: number): void {
    this.#pingedAt = now
    this.#pinging = true
    this.#reminded = false
    this.#peer.ping(() => {
      this.#pinging = false
      this.#quietSince = this.#clock.now()
    })
  }
}
