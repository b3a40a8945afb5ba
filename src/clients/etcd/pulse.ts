/**
 * Whether the other side lives. While something is expected of it and nothing is heard, it is asked for a sign of life,
 * and given up if there is none.
 *
 * One timer looks after all that is expected. It is left standing when an answer comes, for the next one, so that a
 * call costs no timer.
 */
import type { Clock, Timer } from '../../core/clock.ts'

/** With a call open and nothing heard for this long, ask for a sign of life. */
const QUIET_MS = 400
/** It has this long to give one. */
const PONG_MS = 600
/** The same where only a stream is open. */
const IDLE_MS = 10_000
/** etcd takes more than two pings within 5 s, without an answer of its own in between, for an attack. */
const PING_EVERY_MS = 6_000

export interface Patient {
  /** What it has still to answer. */
  expects(): 'calls' | 'streams' | 'nothing'
  /** Ask for a sign of life. */
  ping(pong: () => void): void
  /** There was none. */
  dead(): void
}

export class Pulse {
  readonly #clock: Clock
  readonly #patient: Patient
  /** Since when nothing was heard that had to be. */
  #quietSince: number
  /** When it last answered something, other than a ping. */
  #answeredAt = Number.NEGATIVE_INFINITY
  #pingedAt = Number.NEGATIVE_INFINITY
  #pinging = false
  /** It has had its time, and is given one turn of ours more. */
  #reminded = false
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #stopped = false

  constructor(clock: Clock, patient: Patient) {
    this.#clock = clock
    this.#patient = patient
    this.#quietSince = clock.now()
  }

  /** Something is expected, and nothing was before. */
  begin(): void {
    this.#quietSince = this.#clock.now()
  }

  answered(): void {
    this.#answeredAt = this.#clock.now()
    this.#quietSince = this.#answeredAt
    this.#pinging = false
  }

  /** Look when the time has come. */
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
    const expected = this.#patient.expects()
    if (expected === 'nothing') return Number.POSITIVE_INFINITY
    const at = this.#quietSince + (expected === 'calls' ? QUIET_MS : IDLE_MS)
    return this.#answeredAt > this.#pingedAt ? at : Math.max(at, this.#pingedAt + PING_EVERY_MS)
  }

  #look(): void {
    const now = this.#clock.now()
    if (now >= this.#lookAt()) {
      if (this.#pinging && this.#reminded) {
        this.#patient.dead()
        return
      }
      if (this.#pinging) {
        // If it was us who stood still, its answer lies in the socket, and is read before the next timer.
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
    this.#patient.ping(() => {
      this.#pinging = false
      this.#quietSince = this.#clock.now()
    })
  }
}
