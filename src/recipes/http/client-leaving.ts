/**
 * Clients that leave a response which goes out as it comes. Its handler goes on, and says how that ends: it has done
 * the request when it returns, and has failed when it throws.
 *
 * But a handler may throw only because it was told that its client has left: by `pipeline()`, by `finished()`, by the
 * callback of a write. Such an error is known by what it is. Its code says nothing, because other streams break with
 * the same one: a file store, or an upstream, whose failure is a failure.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'

/** What becomes of a response that its client has left. */
export interface Ends {
  readonly settle: () => void
  readonly fail: (error: unknown) => void
}

/** What is piped into a response. */
export interface Source {
  readonly errored?: unknown
}

export class ClientLeaving {
  readonly #response: ServerResponse
  readonly #socket: IncomingMessage['socket']
  readonly #ends: Ends
  /** By these, its handler is told that its client has left. */
  readonly #errors = new WeakSet<object>()
  readonly #sources: ReadonlySet<Source>
  readonly #hearClose = (): void => this.#leave()
  #state: 'not yet' | 'may leave' | 'left' | 'over' = 'not yet'
  /** What is called when its client has left and its handler has done its work. */
  #verdict: () => void

  constructor(response: ServerResponse, socket: IncomingMessage['socket'], sources: ReadonlySet<Source>, ends: Ends) {
    this.#response = response
    this.#socket = socket
    this.#sources = sources
    this.#ends = ends
    this.#verdict = () => ends.settle()
  }

  get hasLeft(): boolean {
    return this.#state === 'left'
  }

  /** From now on it goes out as it comes. */
  begin(): void {
    this.#state = 'may leave'
    // Of the responses on a connection, Node tells only that whose turn it is of its close, and tells it once. What
    // adapters of serverless platforms have in the place of a socket tells of nothing.
    if (this.#socket.destroyed) this.#leave()
    else this.#socket.once?.('close', this.#hearClose)
  }

  /** It is settled, also if its client leaves now. */
  end(): void {
    if (this.#state === 'may leave') this.#state = 'over'
    this.#socket.off?.('close', this.#hearClose)
  }

  /** What its handler does: without this, it has done what it does when its client leaves. */
  follow(work: Promise<unknown>): void {
    this.#verdict = () => {}
    const end = (verdict: () => void): void => {
      this.#verdict = verdict
      if (this.hasLeft) verdict()
    }
    const { settle, fail } = this.#ends
    work.then(
      () => end(settle),
      (error: unknown) => end(() => (this.#isOfLeaving(error) ? settle() : fail(error))),
    )
  }

  /** `tell` says that the response has closed. In the midst of that, `pipeline()` destroys what is piped into it. */
  tell<Told>(tell: () => Told): Told {
    this.#leave()
    const unbroken = [...this.#sources].filter(({ errored }) => !errored)
    try {
      return tell()
    } finally {
      for (const { errored } of unbroken) this.#remember(errored)
    }
  }

  /** What is given to a write, whose callback may be told of it. */
  listening(given: readonly unknown[]): readonly unknown[] {
    return given.map((one) => {
      if (typeof one !== 'function') return one
      return (...told: unknown[]): unknown => {
        this.#remember(told[0])
        return Reflect.apply(one, undefined, told)
      }
    })
  }

  /** Once, and before listeners of the response hear of it, which may be told before those of its socket. */
  #leave(): void {
    if (this.#state !== 'may leave') return
    this.#state = 'left'
    const error = Object.assign(new Error('the client of this response has left'), {
      // `await reply` of Fastify takes this one for no error.
      code: 'ERR_STREAM_PREMATURE_CLOSE',
    })
    this.#remember(error)
    // `pipeline()` and `finished()` hand on what is here, and make an error of their own only where nothing is.
    Object.defineProperty(this.#response, 'writableErrored', { value: error, configurable: true })
    // What its handler does is known when it has been called.
    queueMicrotask(() => this.#verdict())
  }

  #remember(error: unknown): void {
    if (typeof error === 'object' && error !== null) this.#errors.add(error)
  }

  #isOfLeaving(error: unknown): boolean {
    if (typeof error !== 'object' || error === null) return false
    if (this.#errors.has(error)) return true
    // What `pipeline()` throws that is begun on a stream which has closed: nothing tells which one it was.
    if ('code' in error && error.code === 'ERR_STREAM_UNABLE_TO_PIPE') return true
    // One of the response, and one of what is written into it: if that has failed, so has the handler.
    if (!(error instanceof AggregateError) || error.errors.length === 0) return false
    return error.errors.every((one: unknown) => this.#isOfLeaving(one))
  }
}
