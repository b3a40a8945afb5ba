/**
 * Several members, one connection: to whichever answers first.
 *
 * When it fails, or does not answer in time, the next member is tried, and while that keeps us waiting, the one after
 * it, all at once in the end: a frozen member and a black hole cost a moment, not a time-out.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import { Connection, type Endpoint, type Tls } from './connection.ts'
import { RpcError, STATUS } from './rpc-error.ts'

/** How long one member is waited for before the next one is tried as well. */
const STAGGER_MS = 200
/** How long all of them are waited for. */
const CONNECT_LIMIT_MS = 5_000

export class Endpoints {
  readonly #endpoints: readonly Endpoint[]
  readonly #tls: Tls | undefined
  readonly #clock: Clock
  #next = 0
  #current: Connection | undefined
  /** Also those of which nothing more is asked, while they still have something to answer. */
  readonly #connections = new Set<Connection>()
  #connecting: Promise<Connection> | undefined
  #closed = false

  constructor(endpoints: readonly Endpoint[], tls: Tls | undefined, clock: Clock) {
    this.#endpoints = endpoints
    this.#tls = tls
    this.#clock = clock
  }

  get size(): number {
    return this.#endpoints.length
  }

  /** The connection that is in use, if there is one; else see `connect`. */
  get current(): Connection | undefined {
    return this.#current?.usable === true ? this.#current : undefined
  }

  /** Rejects when every member has refused, or none has answered in time. */
  connect(): Promise<Connection> {
    if (this.current !== undefined) return Promise.resolve(this.current)
    if (this.#closed) return Promise.reject(closedError())
    this.#connecting ??= this.#race().finally(() => {
      this.#connecting = undefined
    })
    return this.#connecting
  }

  /**
   * It has not answered, or cannot: ask another member from now on. With one member there is nobody else; if it is
   * dead, it is found out.
   */
  doubt(connection: Connection): void {
    if (this.#endpoints.length === 1) return
    connection.retire()
    if (this.#current === connection) this.#current = undefined
  }

  close(): void {
    this.#closed = true
    for (const connection of this.#connections) connection.close()
  }

  #race(): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const runners = new Set<Connection>()
      const timers = new Set<Timer>()
      let [over, left, failure]: [boolean, number, unknown] = [false, this.#endpoints.length, undefined]
      const end = (): void => {
        over = true
        for (const timer of timers) timer.cancel()
      }
      const fail = (): void => {
        end()
        for (const runner of runners) runner.close()
        reject(
          failure ??
            new RpcError(STATUS.unavailable, `no member answers within ${CONNECT_LIMIT_MS} ms`, { refused: true }),
        )
      }
      const win = (connection: Connection): void => {
        end()
        for (const runner of runners) if (runner !== connection) runner.close()
        if (this.#closed) connection.close()
        this.#current = connection
        resolve(connection)
      }
      let started = 0
      const start = (): void => {
        if (over || started === this.#endpoints.length) return
        started += 1
        const connection = new Connection(this.#endpoints[this.#next] as Endpoint, this.#tls, this.#clock)
        this.#next = (this.#next + 1) % this.#endpoints.length
        runners.add(connection)
        this.#connections.add(connection)
        void connection.closed.then(() => this.#connections.delete(connection))
        connection.ready.then(
          () => !over && win(connection),
          (error: unknown) => {
            failure = error
            left -= 1
            if (over) return
            if (left === 0 || this.#closed) fail()
            else start()
          },
        )
        timers.add(this.#clock.timer(STAGGER_MS, start))
      }
      timers.add(this.#clock.timer(CONNECT_LIMIT_MS, () => !over && fail()))
      start()
    })
  }
}

function closedError(): RpcError {
  return new RpcError(STATUS.unavailable, 'the client is closed', { refused: true, lasting: true })
}
