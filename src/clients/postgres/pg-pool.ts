/**
 * A Pool of pg (node-postgres).
 *
 * Each call takes a connection and gives it back. One that does not answer in time is thrown away, not given back: what
 * was sent on it may still be executed, and no other call should wait behind that. For listening, the pool is asked how
 * it makes its clients, and one more is made, outside of it: a pool of one connection would have none left.
 */
import type { CallLimit, CallLimits } from '../shared/call-limits.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'
import { neverCrash } from '../shared/drivers.ts'
import { isRefusal } from './errors.ts'
import { cut, NamedStatements, type OwnPgClient, type PgClient, PgListenConnection, type PgQuery } from './pg-client.ts'
import type { PostgresCallLimits, PostgresWire } from './wire.ts'

interface PooledPgClient extends PgClient {
  /** With `true` it is not used again. */
  release(destroy?: boolean): void
}

/** What we use of a `Pool` of pg. */
export interface PgPool {
  readonly totalCount: number
  readonly options: object
  connect(callback: (error: Error | undefined, client: PooledPgClient | undefined) => void): void
  on(event: 'error', listener: (error: Error) => void): unknown
}

export class PgPoolWire implements PostgresWire {
  readonly name = 'pg'
  readonly listen: PostgresWire['listen']
  readonly #pool: PgPool
  readonly #limits: CallLimits
  readonly #close: () => Promise<void>
  readonly #statements = new NamedStatements()

  /** `close`: what to do with the pool at the end. */
  constructor(pool: PgPool, limits: CallLimits, close: () => Promise<void> = async () => {}) {
    this.#pool = pool
    this.#limits = limits
    this.#close = close
    const { Client } = pool as PgPool & { readonly Client?: new (options: object) => OwnPgClient }
    this.listen =
      Client &&
      ((channel, listener) => PgListenConnection.open(() => new Client(pool.options), limits.clock, channel, listener))
    neverCrash(pool)
  }

  ask(text: string, values: readonly string[], limits: PostgresCallLimits): Promise<unknown> {
    return this.#call(this.#statements.query(text, values), limits)
  }

  run(text: string, limits: PostgresCallLimits): Promise<unknown> {
    return this.#call(text, limits)
  }

  async close(): Promise<void> {
    await this.#close()
  }

  #call(query: PgQuery | string, limits: PostgresCallLimits): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const call = new PooledCall(this.#limits, this.#statements, query, limits, resolve, reject)
      // Not as a promise: a connection can break in the very turn in which it is had, and pg then looks for a listener
      // at once.
      this.#pool.connect(call.connected)
    })
  }
}

/** One statement on its way: until there is a connection, and then until it is answered. */
class PooledCall {
  readonly #limit: CallLimit
  readonly #statements: NamedStatements
  readonly #query: PgQuery | string
  readonly #answerMs: number
  readonly #resolve: (value: unknown) => void
  readonly #reject: (error: Error) => void
  #client: PooledPgClient | undefined
  #ended = false

  constructor(
    callLimits: CallLimits,
    statements: NamedStatements,
    query: PgQuery | string,
    limits: PostgresCallLimits,
    resolve: (value: unknown) => void,
    reject: (error: Error) => void,
  ) {
    this.#limit = callLimits.start(limits.connectMs, () => this.#over())
    this.#statements = statements
    this.#query = query
    this.#answerMs = limits.answerMs
    this.#resolve = resolve
    this.#reject = reject
  }

  readonly connected = (error: Error | undefined, client: PooledPgClient | undefined): void => {
    if (client === undefined) {
      this.#end(new NotSent(error))
      return
    }
    neverCrash(client)
    if (this.#ended) {
      // Too late: it goes back unused.
      client.release()
      return
    }
    this.#client = client
    this.#limit.restart(this.#answerMs)
    this.#send(client, this.#query)
  }

  #over(): void {
    if (this.#client !== undefined) cut(this.#client)
    this.#end(this.#client === undefined ? new NotSent(new Error('no connection was free in time')) : new NoAnswer())
  }

  #send(client: PooledPgClient, query: PgQuery | string): void {
    if (typeof query === 'string') {
      client.query(query).then(
        () => this.#end(),
        (error: Error) => this.#end(error),
      )
      return
    }
    client.query(query, (error, result) => {
      if (!error) this.#end(undefined, result.rows[0]?.[0])
      else if (this.#statements.refused(error, query))
        this.#send(client, this.#statements.query(query.text, query.values))
      else this.#end(error)
    })
  }

  #end(error?: Error, value?: unknown): void {
    if (this.#ended) return
    this.#ended = true
    this.#limit.cancel()
    // The server said no, and is there. After anything else, the connection is not to be trusted.
    const healthy = error === undefined || isRefusal(error)
    this.#client?.release(!healthy)
    if (error === undefined) this.#resolve(value)
    else this.#reject(error)
  }
}
