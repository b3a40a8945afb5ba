/**
 * A connection of ioredis that only listens: a duplicate of the client, or of one node of a Cluster. In Cluster,
 * messages reach every node, and any of them will do.
 *
 * ioredis makes it anew when it breaks. We subscribe ourselves, each time it is ready, and tell of the gap only when
 * the subscription stands: a waiter that is rechecked because of the gap must not be rechecked too early. A node that
 * stays away, or that was taken out of its Cluster, is given up for another.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { letProcessEndListening } from './let-process-end.ts'

/** What we use of a `Redis` of ioredis. */
export interface IoredisClient {
  readonly status: string
  readonly options: { readonly keyPrefix?: string | undefined }
  call(command: string, args: string[]): Promise<unknown>
  duplicate(override?: object): IoredisClient
  subscribe(channel: string): Promise<unknown>
  on(event: string, listener: (...args: unknown[]) => void): unknown
  off(event: string, listener: (...args: unknown[]) => void): unknown
  disconnect(reconnect?: boolean): void
}

/** What we use of a `Cluster` of ioredis. */
export interface IoredisCluster {
  readonly status: string
  readonly isCluster: boolean
  readonly options: {
    readonly keyPrefix?: string | undefined
    readonly redisOptions?: { readonly keyPrefix?: string | undefined } | undefined
  }
  call(command: string, args: string[]): Promise<unknown>
  nodes(role?: 'master'): IoredisClient[]
  on(event: string, listener: (...args: unknown[]) => void): unknown
  off(event: string, listener: (...args: unknown[]) => void): unknown
  disconnect(reconnect?: boolean): void
}

export function isCluster(client: IoredisClient | IoredisCluster): client is IoredisCluster {
  return 'isCluster' in client && client.isCluster
}

/** A first connection that does not stand after this long is as good as refused. */
const OPEN_LIMIT_MS = 5000
/** How long a later connection that stands may take until the subscription does. */
const HANDSHAKE_LIMIT_MS = 2000
/** How long an end that the server does not confirm is waited for. */
const DISCONNECT_LIMIT_MS = 500
const RETRY_FIRST_MS = 50
const RETRY_LONGEST_MS = 1000
/** After so many vain attempts at one server, look which servers there are. */
const RETRIES = 4

const OPTIONS = {
  lazyConnect: false,
  keyPrefix: '',
  enableOfflineQueue: false,
  autoResubscribe: false,
  autoResendUnfulfilledCommands: false,
  maxRetriesPerRequest: null,
  disconnectTimeout: DISCONNECT_LIMIT_MS,
  retryStrategy: (times: number) =>
    times > RETRIES ? null : Math.min(RETRY_FIRST_MS * 2 ** (times - 1), RETRY_LONGEST_MS),
}

export class IoredisListenConnection implements ListenConnection {
  readonly #client: IoredisClient | IoredisCluster
  readonly #clock: Clock
  readonly #channel: string
  readonly #listener: ChannelListener
  /** Set until the first subscription stands, or has failed. */
  #opening: { readonly resolve: () => void; readonly reject: (error: Error) => void } | undefined
  #connection: IoredisClient | undefined
  /** Of whom the connection is a duplicate. */
  #node: IoredisClient | undefined
  /** The Cluster does not have that node any more. */
  readonly #nodeGone = (node: unknown): void => {
    if (node === this.#node && this.#opening === undefined) this.restart()
  }
  #trouble = new Error('no server is known')
  #timer: Timer | undefined
  /** Runs from a connection to its subscription. */
  #handshake: Timer | undefined
  #closed = false

  static async open(
    client: IoredisClient | IoredisCluster,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ): Promise<IoredisListenConnection> {
    const listening = new IoredisListenConnection(client, clock, channel, listener)
    try {
      await new Promise<void>((resolve, reject) => {
        listening.#opening = { resolve, reject }
        listening.#timer = clock.timer(OPEN_LIMIT_MS, () =>
          reject(new Error(`no connection to listen on within ${OPEN_LIMIT_MS} ms`)),
        )
        listening.#connect()
      })
    } catch (error) {
      await listening.close()
      throw error
    }
    return listening
  }

  private constructor(
    client: IoredisClient | IoredisCluster,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ) {
    this.#client = client
    this.#clock = clock
    this.#channel = channel
    this.#listener = listener
    if (isCluster(client)) client.on('-node', this.#nodeGone)
  }

  /** Another node is listened to then: one that was taken out of its Cluster answers as before, and hears nothing. */
  restart(): void {
    if (this.#closed) return
    this.#drop()
    this.#connect()
  }

  async close(): Promise<void> {
    this.#closed = true
    if (isCluster(this.#client)) this.#client.off('-node', this.#nodeGone)
    this.#drop()
  }

  #drop(): void {
    this.#timer?.cancel()
    this.#handshake?.cancel()
    const connection = this.#connection
    this.#connection = undefined
    connection?.disconnect()
  }

  /** Another one than until now, where there is one. */
  #anyNode(): IoredisClient | undefined {
    if (!isCluster(this.#client)) return this.#client
    const nodes = this.#client.nodes()
    const others = nodes.length > 1 ? nodes.filter((node) => node !== this.#node) : nodes
    return others[Math.floor(Math.random() * others.length)]
  }

  #connect(): void {
    this.#node = this.#anyNode()
    const connection = this.#node?.duplicate(OPTIONS)
    this.#connection = connection
    if (connection === undefined) {
      this.#broken()
      return
    }
    letProcessEndListening(connection)
    connection.on('error', (error) => {
      this.#trouble = error as Error
    })
    connection.on('message', (channel, message) => {
      if (channel === this.#channel && connection === this.#connection) this.#listener.message(String(message))
    })
    // ioredis itself waits for ever for the answers to its first commands.
    connection.on('connect', () => {
      if (connection !== this.#connection) return
      this.#handshake?.cancel()
      this.#handshake = this.#clock.timer(HANDSHAKE_LIMIT_MS, () => connection.disconnect(true))
    })
    connection.on('ready', () => void this.#subscribe(connection))
    connection.on('close', () => {
      if (connection !== this.#connection) return
      this.#handshake?.cancel()
      this.#opening?.reject(this.#trouble)
    })
    connection.on('end', () => {
      if (connection === this.#connection) this.#broken()
    })
  }

  async #subscribe(connection: IoredisClient): Promise<void> {
    try {
      await connection.subscribe(this.#channel)
    } catch (error) {
      this.#trouble = error as Error
      if (connection === this.#connection) connection.disconnect(true)
      return
    }
    if (connection !== this.#connection) return
    this.#handshake?.cancel()
    const opening = this.#opening
    this.#opening = undefined
    if (opening === undefined) return this.#listener.gap()
    this.#timer?.cancel()
    opening.resolve()
  }

  /** Given up. Try again, with the nodes that there are then. */
  #broken(): void {
    this.#opening?.reject(this.#trouble)
    if (this.#closed || this.#opening !== undefined) return
    this.#timer = this.#clock.timer(RETRY_LONGEST_MS, () => this.#connect())
  }
}
