/**
 * A connection of pg that only listens. When it breaks it is made anew, again and again, less and less often; `gap` is
 * told when it is lost, and once more when it stands again: a waiter that looks again after the first gap could look
 * too early.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import { neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { cut, type OwnPgClient } from './pg-client.ts'

/** A connection that does not stand after this long is as good as refused. */
const CONNECT_LIMIT_MS = 5000
const RETRY_FIRST_MS = 50
const RETRY_LONGEST_MS = 2000

/** How to have one more client. */
export type MakePgClient = () => OwnPgClient | Promise<OwnPgClient>

export class PgListenConnection implements ListenConnection {
  readonly #make: MakePgClient
  readonly #clock: Clock
  readonly #channel: string
  readonly #listener: ChannelListener
  #client: OwnPgClient | undefined
  #retryMs = RETRY_FIRST_MS
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
    this.#retryMs = RETRY_FIRST_MS
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
    this.#timer = this.#clock.timer(this.#retryMs * (0.75 + Math.random() / 2), () => {
      this.#connect().then(
        () => this.#listener.gap(),
        () => this.#tryAgain(),
      )
    })
    this.#retryMs = Math.min(this.#retryMs * 2, RETRY_LONGEST_MS)
  }
}
