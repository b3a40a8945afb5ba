/**
 * How long calls to a server may take, whatever the driver's own time-outs do: pg waits for ever for a connection of a
 * full pool, and postgres.js for the answer of a frozen server.
 *
 * One timer looks after all calls of an engine. It is left standing when they are answered, for the next ones: setting
 * one up and taking it down for every call would cost more than looking in vain now and then.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { onAbort } from '../../core/on-abort.ts'
import { TimerQueue } from '../../core/timer-queue.ts'
import { NoAnswer } from './driver-errors.ts'

/** A Node timer may fire a fraction early. */
const EARLY_MS = 1

/** The limit of one call. `cancel` it when the call is answered. */
export class CallLimit implements Timer {
  at = 0
  slot = -1
  readonly slackMs: number = EARLY_MS
  readonly #queue: TimerQueue<CallLimit>
  readonly #clock: Clock
  readonly #over: () => void
  #cancelled = false

  constructor(queue: TimerQueue<CallLimit>, clock: Clock, over: () => void) {
    this.#queue = queue
    this.#clock = clock
    this.#over = over
  }

  /** Let the call have `limitMs` from now on, instead of what was left to it. */
  restart(limitMs: number, now: number = this.#clock.now()): void {
    this.#queue.put(this, now + limitMs, now)
  }

  cancel(): void {
    this.#cancelled = true
    this.#queue.remove(this)
  }

  /**
   * The time is over. What has arrived until now is read first: after a stall of this process a timer is served before
   * the answers that lie there, and a server is not silent because this process was.
   */
  expire(): void {
    this.#clock.timer(0, () => {
      // Restarted or cancelled meanwhile: there was an answer.
      if (!this.#cancelled && this.slot < 0) this.#over()
    })
  }
}

export class CallLimits {
  readonly clock: Clock
  readonly #queue: TimerQueue<CallLimit>

  constructor(clock: Clock) {
    this.clock = clock
    this.#queue = new TimerQueue(clock, (limit) => limit.expire())
  }

  /** Call `over` when `limitMs` are over, unless the limit is cancelled before. `now` is what the clock says. */
  start(limitMs: number, over: () => void, now: number = this.clock.now()): CallLimit {
    const limit = new CallLimit(this.#queue, this.clock, over)
    limit.restart(limitMs, now)
    return limit
  }

  /** What `promise` comes to, within `limitMs`; else a rejection with what `late` makes. */
  within<Value>(promise: Promise<Value>, limitMs: number, late: () => Error = () => new NoAnswer()): Promise<Value> {
    return new Promise((resolve, reject) => {
      const limit = this.start(limitMs, () => reject(late()))
      promise.then(resolve, reject).finally(() => limit.cancel())
    })
  }

  /** For a call of several steps: it is over when `signal` aborts, and after `limitMs` in any case. */
  deadline(limitMs: number, signal?: AbortSignal): CallDeadline {
    return new CallDeadline(this, limitMs, signal)
  }
}

export class CallDeadline {
  readonly #forget: () => void
  readonly #limit: CallLimit
  #giveUp: (() => void) | undefined
  over = false

  constructor(limits: CallLimits, limitMs: number, signal?: AbortSignal) {
    const end = (): void => {
      this.over = true
      this.#giveUp?.()
    }
    this.#limit = limits.start(limitMs, end)
    this.#forget = onAbort(signal, end)
    if (signal?.aborted === true) this.over = true
  }

  /** What `promise` comes to; when the time is over, a rejection with what `late` makes. */
  race<Value>(promise: Promise<Value>, late: () => Error): Promise<Value> {
    return new Promise((resolve, reject) => {
      const giveUp = (): void => reject(late())
      if (this.over) giveUp()
      this.#giveUp = giveUp
      promise.then(resolve, reject)
    })
  }

  /** The call has ended. */
  end(): void {
    this.#limit.cancel()
    this.#forget()
    this.#giveUp = undefined
  }
}
