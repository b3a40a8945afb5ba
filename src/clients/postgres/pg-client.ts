/**
 * A Client of pg (node-postgres): what we use of it, how statements are spelt for it, how we end one that does not
 * answer, a wire on a single one, and a connection that only listens.
 */
import { createHash } from 'node:crypto'
import type { Clock, Timer } from '../../core/clock.ts'
import type { CallLimits } from '../shared/call-limits.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'
import { neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { RetryPause } from '../shared/retry-pause.ts'
import { SQLSTATE, sqlStateOf } from './errors.ts'
import type { PostgresCallLimits, PostgresWire } from './wire.ts'

/** Answers as the server writes them, whatever a user has told pg to make of them. */
interface RawTypes {
  getTypeParser(): (value: string) => string
}

const RAW: RawTypes = { getTypeParser: () => (value) => value }

export interface PgQuery {
  /** Under a name, a statement is prepared once for each connection. */
  readonly name?: string
  readonly text: string
  readonly values: string[]
  readonly rowMode: 'array'
  readonly types: RawTypes
}

export type PgAnswered = (error: Error | null, result: { rows: unknown[][] }) => void

/** What we use of a `Client` of pg. */
export interface PgClient {
  query(query: PgQuery, answered: PgAnswered): void
  query(text: string): Promise<unknown>
  on(event: 'error', listener: (error: Error) => void): unknown
  on(event: 'notification', listener: (message: { channel: string; payload?: string | undefined }) => void): unknown
  on(event: 'end', listener: () => void): unknown
  removeListener(
    event: 'notification',
    listener: (message: { channel: string; payload?: string | undefined }) => void,
  ): unknown
}

/** A client of ours, which we also connect and end. */
export interface OwnPgClient extends PgClient {
  connect(): Promise<unknown>
  end(): Promise<void>
}

/**
 * Statements under names, as long as that works.
 *
 * A pooler that gives a connection for one transaction only gives another one for the next: there a name is unknown, or
 * taken by another client. The server says so before it does anything, and from then on we do without. (The name is
 * made of the text, so whatever has our name is our statement.)
 */
export class NamedStatements {
  readonly #names = new Map<string, string>()
  #named = true

  query(text: string, values: readonly string[]): PgQuery {
    const query = { text, values: values as string[], rowMode: 'array', types: RAW } as const
    return this.#named ? { name: this.#nameOf(text), ...query } : query
  }

  /** Whether the same should be tried again, without a name. */
  refused(error: Error, query: PgQuery): boolean {
    if (query.name === undefined || !NAME_REFUSED.has(sqlStateOf(error) ?? '')) return false
    this.#named = false
    return true
  }

  #nameOf(text: string): string {
    const known = this.#names.get(text)
    if (known !== undefined) return known
    const name = `holdfast_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`
    this.#names.set(text, name)
    return name
  }
}

const NAME_REFUSED: ReadonlySet<string> = new Set([
  SQLSTATE.undefinedPreparedStatement,
  SQLSTATE.duplicatePreparedStatement,
])

/**
 * Without goodbye: a server that does not answer would not hear it either, and the socket would stay open until it
 * does.
 */
export function cut(client: object): void {
  const { connection } = client as { connection?: { stream?: { destroy?(): void } } }
  connection?.stream?.destroy?.()
}

/**
 * A single Client for everything: pg sends what it is given one after the other, and listens meanwhile. If it breaks,
 * all is over: only its owner can make it anew.
 */
export class PgClientWire implements PostgresWire {
  readonly name = 'pg'
  readonly #client: PgClient
  readonly #limits: CallLimits
  readonly #statements = new NamedStatements()

  constructor(client: PgClient, limits: CallLimits) {
    this.#client = client
    this.#limits = limits
    neverCrash(client)
  }

  ask(text: string, values: readonly string[], limits: PostgresCallLimits): Promise<unknown> {
    return this.#within(
      new Promise((resolve, reject) => this.#send(this.#statements.query(text, values), resolve, reject)),
      limits,
    )
  }

  run(text: string, limits: PostgresCallLimits): Promise<unknown> {
    return this.#within(this.#client.query(text), limits)
  }

  readonly listen = async (channel: string, listener: ChannelListener): Promise<ListenConnection> => {
    const client = this.#client
    const hear = (message: { channel: string; payload?: string | undefined }): void => {
      if (message.channel === channel) listener.message(message.payload ?? '')
    }
    client.on('notification', hear)
    await client.query(`LISTEN "${channel}"`)
    return {
      restart: () => undefined,
      close: async () => {
        client.removeListener('notification', hear)
        await client.query(`UNLISTEN "${channel}"`).catch(() => undefined)
      },
    }
  }

  async close(): Promise<void> {}

  #send(query: PgQuery, resolve: (value: unknown) => void, reject: (error: Error) => void): void {
    this.#client.query(query, (error, result) => {
      if (!error) resolve(result.rows[0]?.[0])
      else if (this.#statements.refused(error, query))
        this.#send(this.#statements.query(query.text, query.values), resolve, reject)
      else reject(error.message.includes('not queryable') ? new NotSent(error) : error)
    })
  }

  #within(answer: Promise<unknown>, { connectMs, answerMs }: PostgresCallLimits): Promise<unknown> {
    return this.#limits.within(answer, connectMs + answerMs, () => new NoAnswer())
  }
}

/** A connection that does not stand after this long is as good as refused. */
const CONNECT_LIMIT_MS = 5000

/** How to have one more client. */
export type MakePgClient = () => OwnPgClient | Promise<OwnPgClient>

/**
 * A connection that only listens. When it breaks it is made anew, again and again, less and less often; `gap` is told
 * when it is lost, and once more when it stands again: a waiter that looks again after the first gap could look too
 * early.
 */
export class PgListenConnection implements ListenConnection {
  readonly #make: MakePgClient
  readonly #clock: Clock
  readonly #channel: string
  readonly #listener: ChannelListener
  readonly #retryPause = new RetryPause({ firstMs: 50, longestMs: 2000 })
  #client: OwnPgClient | undefined
  #timer: Timer | undefined
  #closed = false

  /** Rejects if the first connection cannot be had. */
  static async open(
    make: MakePgClient,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ): Promise<PgListenConnection> {
    const connection = new PgListenConnection(make, clock, channel, listener)
    await connection.#connect()
    return connection
  }

  private constructor(make: MakePgClient, clock: Clock, channel: string, listener: ChannelListener) {
    this.#make = make
    this.#clock = clock
    this.#channel = channel
    this.#listener = listener
  }

  restart(): void {
    if (this.#client !== undefined) cut(this.#client)
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    const client = this.#client
    this.#client = undefined
    if (client === undefined) return
    // It says goodbye, and then does not wait for an answer.
    const ended = client.end().catch(() => undefined)
    const limit = this.#clock.timer(1000, () => cut(client))
    await ended
    limit.cancel()
  }

  async #connect(): Promise<void> {
    const client = await this.#make()
    neverCrash(client)
    const limit = this.#clock.timer(CONNECT_LIMIT_MS, () => cut(client))
    try {
      await client.connect()
      client.on('notification', ({ channel, payload = '' }) => {
        if (channel === this.#channel) this.#listener.message(payload)
      })
      await client.query(`LISTEN "${this.#channel}"`)
    } catch (error) {
      client.end().catch(() => undefined)
      cut(client)
      throw error
    } finally {
      limit.cancel()
    }
    // Listening alone is no reason for a process to live on.
    ;(client as { unref?(): void }).unref?.()
    client.on('end', () => this.#lost(client))
    this.#client = client
    this.#retryPause.reset()
    if (this.#closed) await this.close()
  }

  #lost(client: OwnPgClient): void {
    if (this.#client !== client) return
    this.#client = undefined
    this.#listener.gap()
    this.#tryAgain()
  }

  #tryAgain(): void {
    if (this.#closed) return
    this.#timer = this.#clock.timer(this.#retryPause.next() * (0.75 + Math.random() / 2), () => {
      this.#connect().then(
        () => this.#listener.gap(),
        () => this.#tryAgain(),
      )
    })
  }
}
