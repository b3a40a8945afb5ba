/**
 * What a lease covers: the leases that are nested in it. They take turns, and they end with it, at the latest: when it
 * is lost, and also when it is released, because from then on others may hold.
 */
import { LocalQueue } from './local-queue.ts'
import { withoutContext } from './no-context.ts'
import { onAbort } from './on-abort.ts'

export class Cover {
  /** Where leases nested in this one take turns. */
  readonly queue: LocalQueue = new LocalQueue()
  readonly #controller = new AbortController()
  readonly #forget: () => void

  /** `lost` aborts when the covering lease is lost. */
  constructor(lost: AbortSignal) {
    this.#forget = onAbort(lost, () => this.end(lost.reason))
    if (lost.aborted) this.end(lost.reason)
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
