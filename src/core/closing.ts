/**
 * Closing, and the draining before it: once, in limited time. The engine is asked for nothing new from the first moment
 * on.
 */
import type { Clock } from './clock.ts'
import { type CallOutcome, ClosedError } from './errors.ts'
import { FirstCall } from './first-call.ts'

export class Closing {
  readonly #engine: string
  readonly #message: string
  readonly #controller = new AbortController()
  /** A listener may ask for a lock, or close once more. */
  readonly #closing = new FirstCall<void>()

  /** `message`: of the error for a caller that asks after `begin()`, or whose call is under way then. */
  constructor(engine: string, message: string) {
    this.#engine = engine
    this.#message = message
  }

  /** Whether `begin()` was called. */
  get begun(): boolean {
    return this.#closing.begun
  }

  /** Aborts when `begin()` is called. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** The error for a caller that asks after `begin()`, or whose call is under way then. */
  error(outcome: CallOutcome = 'not-applied'): ClosedError {
    return new ClosedError(this.#engine, this.#message, outcome)
  }

  /**
   * The first call runs `steps`, which may ask how much of `limitMs` is left. Every call answers the same promise. The
   * process stays alive until the steps are done.
   */
  begin(clock: Clock, limitMs: number, steps: (leftMs: () => number) => Promise<void>): Promise<void> {
    return this.#closing.do(() => this.#run(clock, limitMs, steps))
  }

  async #run(clock: Clock, limitMs: number, steps: (leftMs: () => number) => Promise<void>): Promise<void> {
    const alive = clock.stayAlive()
    const over = clock.now() + limitMs
    try {
      this.#controller.abort(this.error('unknown'))
      await steps(() => Math.max(0, over - clock.now()))
    } finally {
      alive.cancel()
    }
  }
}
