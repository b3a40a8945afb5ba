/**
 * A single Client of pg, for everything: pg sends what it is given one after the other, and listens meanwhile. If it
 * breaks, all is over: nobody but its owner can make it anew.
 */
import type { CallLimits } from '../shared/call-limits.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'
import { neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { type PgClient, type Query, Statements } from './pg-client.ts'
import type { Limits, PostgresWire } from './wire.ts'

export class PgClientWire implements PostgresWire {
  readonly name = 'pg'
  readonly #client: PgClient
  readonly #limits: CallLimits
  readonly #statements = new Statements()

  constructor(client: PgClient, limits: CallLimits) {
    this.#client = client
    this.#limits = limits
    neverCrash(client)
  }

  ask(text: string, values: readonly string[], limits: Limits): Promise<unknown> {
    return this.#within(
      new Promise((resolve, reject) => this.#send(this.#statements.query(text, values), resolve, reject)),
      limits,
    )
  }

  run(text: string, limits: Limits): Promise<unknown> {
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

  #send(query: Query, resolve: (value: unknown) => void, reject: (error: Error) => void): void {
    this.#client.query(query, (error, result) => {
      if (!error) resolve(result.rows[0]?.[0])
      else if (this.#statements.refused(error, query))
        this.#send(this.#statements.query(query.text, query.values), resolve, reject)
      else reject(error.message.includes('not queryable') ? new NotSent(error) : error)
    })
  }

  #within(answer: Promise<unknown>, { connectMs, answerMs }: Limits): Promise<unknown> {
    return this.#limits.within(answer, connectMs + answerMs, () => new NoAnswer())
  }
}
