/**
 * postgres.js (`postgres`): its own pool, which sends statements on busy connections too, and which has no deadline for
 * anything.
 *
 * What has not been sent when time is up is taken back. What has been sent and is not answered we can only turn our
 * back on: the connection is the pool's.
 */
import type { CallLimits } from '../shared/call-limits.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import type { PostgresCallLimits, PostgresWire } from './wire.ts'

/** What we use of a query of postgres.js. */
interface PostgresJsQuery extends PromiseLike<unknown> {
  cancel(): unknown
  raw(): PromiseLike<unknown>
}

/** What we use of a `Sql` of postgres.js. */
export interface PostgresJs {
  unsafe(text: string, values?: string[]): PostgresJsQuery
  listen(
    channel: string,
    heard: (payload: string) => void,
    listening?: () => void,
  ): PromiseLike<{ unlisten(): PromiseLike<unknown> }>
  readonly options: object
}

export class PostgresJsWire implements PostgresWire {
  readonly name = 'postgres.js'
  readonly #sql: PostgresJs
  readonly #limits: CallLimits

  constructor(sql: PostgresJs, limits: CallLimits) {
    this.#sql = sql
    this.#limits = limits
  }

  async ask(text: string, values: readonly string[], limits: PostgresCallLimits): Promise<unknown> {
    const rows = await this.#send(this.#sql.unsafe(text, values as string[]), limits)
    const value = (rows as (Buffer | null)[][])[0]?.[0]
    return value?.toString()
  }

  run(text: string, limits: PostgresCallLimits): Promise<unknown> {
    return this.#send(this.#sql.unsafe(text), limits)
  }

  readonly listen = async (channel: string, listener: ChannelListener): Promise<ListenConnection> => {
    const connection = new PostgresJsListenConnection(this.#sql, channel, listener)
    await connection.open()
    return connection
  }

  async close(): Promise<void> {}

  async #send(query: PostgresJsQuery, { connectMs, answerMs }: PostgresCallLimits): Promise<unknown> {
    // As the server writes them, whatever a user has told postgres.js to make of them.
    const rows = Promise.resolve(query.raw())
    rows.catch(() => undefined)
    try {
      const late = (): Error =>
        takenBack(query) ? new NotSent(new Error('no connection was free in time')) : new NoAnswer()
      return await this.#limits.within(rows, connectMs + answerMs, late)
    } catch (error) {
      throw notConnected(error) ? new NotSent(error) : error
    }
  }
}

/**
 * Whether it had not been sent: `state` is the connection it went to. A cancel of one that was sent would be a
 * connection more to a server that does not answer.
 */
function takenBack(query: PostgresJsQuery): boolean {
  if ((query as { state?: unknown }).state) return false
  query.cancel()
  return true
}

const NO_CONNECTION = new Set(['ECONNREFUSED', 'ENOTFOUND', 'CONNECT_TIMEOUT', 'EHOSTUNREACH', 'CONNECTION_ENDED'])

function notConnected(error: unknown): boolean {
  const { code, severity } = (error ?? {}) as { code?: unknown; severity?: unknown }
  return NO_CONNECTION.has(String(code)) || (severity === 'FATAL' && /^(?:28|3D|53|57P03)/.test(String(code)))
}

/**
 * postgres.js listens on a connection of its own, and makes it anew; but if that fails once, it forgets that we
 * listened. Then we begin again.
 */
class PostgresJsListenConnection implements ListenConnection {
  readonly #sql: PostgresJs
  readonly #channel: string
  readonly #listener: ChannelListener
  #listening: { unlisten(): PromiseLike<unknown> } | undefined
  #closed = false

  constructor(sql: PostgresJs, channel: string, listener: ChannelListener) {
    this.#sql = sql
    this.#channel = channel
    this.#listener = listener
  }

  async open(): Promise<void> {
    let first = true
    this.#listening = await this.#sql.listen(
      this.#channel,
      (payload) => {
        if (!this.#closed) this.#listener.message(payload)
      },
      () => {
        if (!first && !this.#closed) this.#listener.gap()
        first = false
      },
    )
    if (this.#closed) await this.#forget()
  }

  restart(): void {
    void this.#forget()
    this.open().then(
      () => this.#listener.gap(),
      () => undefined,
    )
  }

  async close(): Promise<void> {
    this.#closed = true
    await this.#forget()
  }

  async #forget(): Promise<void> {
    const listening = this.#listening
    this.#listening = undefined
    try {
      await listening?.unlisten()
    } catch {
      // It has forgotten by itself.
    }
  }
}
