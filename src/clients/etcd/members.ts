/**
 * The members of a cluster, and the one connection that is in use: to the member that answers first.
 *
 * When that connection fails, or does not answer in time, the next member is tried. While it keeps us waiting, the one
 * after it is tried as well, and in the end all of them at once. So a frozen member, or one that cannot be reached,
 * costs a moment and not a whole time-out.
 */
import type { Clock, Timer } from '../../core/clock.ts'
import type { Endpoint, TlsCertificates } from '../shared/endpoint.ts'
import { EtcdConnection } from './connection.ts'
import { GRPC_STATUS, RpcError } from './errors.ts'

/** How long one member has to answer before the next one is tried as well. */
const STAGGER_MS = 200
/** How long all of them together have to answer. */
const CONNECT_LIMIT_MS = 5_000

export class EtcdMembers {
  readonly #endpoints: readonly Endpoint[]
  readonly #tls: TlsCertificates | undefined
  readonly #clock: Clock
  #next = 0
  #current: EtcdConnection | undefined
  /** All open connections; those that are retired, too, while they have calls to answer. */
  readonly #connections = new Set<EtcdConnection>()
  #connecting: Promise<EtcdConnection> | undefined
  #closed = false

  constructor(endpoints: readonly Endpoint[], tls: TlsCertificates | undefined, clock: Clock) {
    this.#endpoints = endpoints
    this.#tls = tls
    this.#clock = clock
  }

  get size(): number {
    return this.#endpoints.length
  }

  /** The connection that is in use, if there is one; `connect` makes one. */
  get current(): EtcdConnection | undefined {
    return this.#current?.usable === true ? this.#current : undefined
  }

  /** Rejects when every member has refused, or none has answered in time. */
  connect(): Promise<EtcdConnection> {
    if (this.current !== undefined) return Promise.resolve(this.current)
    if (this.#closed) return Promise.reject(closedError())
    this.#connecting ??= this.#race().finally(() => {
      this.#connecting = undefined
    })
    return this.#connecting
  }

  /**
   * This member has not answered, or cannot serve: ask another one from now on. With one member there is no other; if
   * it is dead, its LivenessCheck finds out.
   */
  doubt(connection: EtcdConnection): void {
    if (this.#endpoints.length === 1) return
    connection.retire()
    if (this.#current === connection) this.#current = undefined
  }

  close(): void {
    this.#closed = true
    for (const connection of this.#connections) connection.close()
  }

  #race(): Promise<EtcdConnection> {
    return new Promise((resolve, reject) => {
      const attempts = new Set<EtcdConnection>()
      const timers = new Set<Timer>()
      let [over, left, failure]: [boolean, number, unknown] = [false, this.#endpoints.length, undefined]
      const end = (): void => {
        over = true
        for (const timer of timers) timer.cancel()
      }
      const fail = (): void => {
        end()
        for (const attempt of attempts) attempt.close()
        reject(
          failure ??
            new RpcError(GRPC_STATUS.unavailable, `connect: no member answers within ${CONNECT_LIMIT_MS} ms`, {
              refused: true,
            }),
        )
      }
      const win = (connection: EtcdConnection): void => {
        end()
        for (const attempt of attempts) if (attempt !== connection) attempt.close()
        if (this.#closed) connection.close()
        this.#current = connection
        resolve(connection)
      }
      let started = 0
      const start = (): void => {
        if (over || started === this.#endpoints.length) return
        started += 1
        const connection = new EtcdConnection(this.#endpoints[this.#next] as Endpoint, this.#tls, this.#clock)
        this.#next = (this.#next + 1) % this.#endpoints.length
        attempts.add(connection)
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
  return new RpcError(GRPC_STATUS.unavailable, 'the client is closed', { refused: true, lasting: true })
}
