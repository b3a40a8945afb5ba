/**
 * What a lease covers: the leases that are nested in it. They take turns, and they end with it, at the latest: when it
 * is lost, and also when it is released, because from then on others may hold. While its holder is only told to end,
 * like a leader that resigns, it covers them on.
 */
import { LocalQueue } from './local-queue.ts'
import { withoutContext } from './no-context.ts'
import { onAbort } from './on-abort.ts'

export class Cover {
  /** Where leases nested in this one take turns. */
  readonly queue: LocalQueue = new LocalQueue()
  readonly #controller = new AbortController()
  readonly #forget: () => void

  /** `around`: the cover that the covering lease is itself nested in. */
  constructor(around?: Cover) {
    this.#forget = onAbort(around?.signal, () => this.end(around?.signal.reason))
  }

  /** Aborts when nothing is covered any more. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** The covering lease is over. Listeners do not run in the async context of the code that has ended it. */
  end(reason: unknown): void {
    this.#forget()
    withoutContext(() => this.#controller.abort(reason))
  }
}
