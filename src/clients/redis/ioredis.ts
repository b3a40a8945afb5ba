/**
 * ioredis, versions 5 and 6: one server, Sentinel, or a Cluster.
 *
 * Left to itself it queues commands while it is offline, and sends unanswered ones again when it is back, both seconds
 * late. A client that we make is told not to. With one that was brought, we look at its state before we send; what it
 * sends again all the same is harmless, since entering twice with one id is entering once.
 */

import type { Clock } from '../../core/clock.ts'
import { neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { type IoredisClient, IoredisListenConnection } from './ioredis-listen.ts'
import { type RedisWire, type Server, Silence, UnderWay } from './wire.ts'

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

export interface IoredisWireOptions {
  /** We have made the client, and end it. */
  readonly owned: boolean
  /** A shorter way to call a script, for a client of ours. */
  readonly evalsha?: (words: readonly string[]) => Promise<unknown>
}

export class IoredisWire implements RedisWire {
  readonly name = 'ioredis'
  readonly cluster: boolean
  readonly inOrder: boolean
  readonly keyPrefix: string
  connection = 0
  trouble: Error | undefined
  onChange: () => void = () => undefined
  readonly #client: IoredisClient | IoredisCluster
  readonly #clock: Clock
  readonly #owned: boolean
  readonly #evalsha: IoredisWireOptions['evalsha']
  readonly silence?: Silence
  readonly #underWay = new UnderWay()
  readonly #listeners: Readonly<Record<string, (...args: unknown[]) => void>> = {
    ready: () => this.#connected(),
    error: (error) => this.#changed(error as Error),
    close: () => this.#closed(),
    end: () => this.#closed(),
  }

  constructor(client: IoredisClient | IoredisCluster, clock: Clock, options: IoredisWireOptions) {
    this.#client = client
    this.#clock = clock
    this.#owned = options.owned
    this.#evalsha = options.evalsha
    this.cluster = isCluster(client)
    // One that was brought is not ours to cut. In Cluster each connection is watched by itself: see connect.ts.
    if (options.owned && !this.cluster) this.silence = new Silence(clock, () => client.disconnect(true))
    this.inOrder = !this.cluster
    this.keyPrefix = client.options.keyPrefix || (isCluster(client) && client.options.redisOptions?.keyPrefix) || ''
    neverCrash(client)
    for (const [event, listener] of Object.entries(this.#listeners)) client.on(event, listener)
  }

  get ready(): boolean {
    return this.#client.status === 'ready'
  }

  send(command: string, words: readonly string[]): Promise<unknown> {
    if (this.#evalsha !== undefined && command === 'EVALSHA') return this.#evalsha(words)
    // By the name of the command, in lower case, ioredis knows where its keys are.
    const reply = this.#client.call(command === 'EVALSHA' ? 'evalsha' : command.toLowerCase(), words as string[])
    // What our own client has under way it rejects itself when the connection ends.
    return this.#owned ? reply : this.#underWay.track(reply)
  }

  async servers(): Promise<readonly Server[]> {
    const nodes = isCluster(this.#client) ? this.#client.nodes('master') : [this.#client]
    return nodes.map((node) => ({ send: (command, words) => node.call(command.toLowerCase(), words as string[]) }))
  }

  readonly listen = (channel: string, listener: ChannelListener): Promise<ListenConnection> =>
    IoredisListenConnection.open(() => this.#anyServer(), this.#clock, channel, listener)

  async close(): Promise<void> {
    for (const [event, listener] of Object.entries(this.#listeners)) this.#client.off(event, listener)
    this.silence?.stop()
    if (this.#owned) this.#client.disconnect()
  }

  /** In Cluster, messages reach every server, and any of them will do. */
  #anyServer(): IoredisClient | undefined {
    if (!isCluster(this.#client)) return this.#client
    const nodes = this.#client.nodes()
    return nodes[Math.floor(Math.random() * nodes.length)]
  }

  #connected(): void {
    this.connection += 1
    this.#changed(undefined)
  }

  #changed(trouble: Error | undefined): void {
    this.trouble = trouble
    this.onChange()
  }

  #closed(): void {
    this.#underWay.lost(this.trouble)
    this.onChange()
  }
}

function isCluster(client: IoredisClient | IoredisCluster): client is IoredisCluster {
  return 'isCluster' in client && client.isCluster
}
