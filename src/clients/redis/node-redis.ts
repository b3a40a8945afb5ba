/**
 * node-redis (`redis` on npm), version 4 and later: a client, a pool, Sentinel, or a Cluster.
 *
 * Left to itself it queues commands while it is offline and sends them seconds late; so we look at its state before we
 * send. A command that was sent and not answered when the connection ends is rejected by the client itself. On a frozen
 * server it would hang for ever: the core's own deadline ends that.
 */

import type { Clock } from '../../core/clock.ts'
import { neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import { type NodeRedisCommon, NodeRedisListenConnection, type NodeRedisListener } from './node-redis-listen.ts'
import type { RedisWire, Server } from './wire.ts'

/** What we use of a client, as `createClient` makes it. */
export interface NodeRedisClient extends NodeRedisListener {
  readonly isReady: boolean
  sendCommand(args: string[]): Promise<unknown>
}

/** As `createClientPool` makes it. It cannot listen: give a `subscriber` too. */
export interface NodeRedisPool extends NodeRedisCommon {
  sendCommand(args: string[]): Promise<unknown>
  execute(...args: never[]): unknown
}

/** As `createSentinel` makes it. */
export interface NodeRedisSentinel extends NodeRedisListener {
  readonly isReady: boolean
  sendCommand(readonly: boolean | undefined, args: string[]): Promise<unknown>
  setTracer(tracer?: never): unknown
}

/** As `createCluster` makes it. */
export interface NodeRedisCluster extends NodeRedisListener {
  readonly masters: readonly unknown[]
  sendCommand(key: string | undefined, readonly: boolean | undefined, args: string[]): Promise<unknown>
  nodeClient(node: unknown): unknown
}

export type AnyNodeRedis = NodeRedisClient | NodeRedisPool | NodeRedisSentinel | NodeRedisCluster

export class NodeRedisWire implements RedisWire {
  readonly name = 'node-redis'
  readonly cluster: boolean
  readonly inOrder: boolean
  readonly keyPrefix = ''
  connection = 0
  readonly listen?: (channel: string, listener: ChannelListener) => Promise<ListenConnection>
  trouble: Error | undefined
  onChange: () => void = () => undefined
  readonly #client: AnyNodeRedis
  readonly #ready = (): void => {
    this.connection += 1
    this.#changed(undefined)
  }
  readonly #error = (error: unknown): void => this.#changed(error as Error)

  constructor(client: AnyNodeRedis, clock: Clock, subscriber?: NodeRedisListener) {
    this.#client = client
    this.cluster = isCluster(client)
    this.inOrder = !this.cluster && !isPool(client) && !isSentinel(client)
    neverCrash(client)
    client.on('ready', this.#ready)
    client.on('error', this.#error)
    const duplicated = subscriber ?? (isPool(client) ? undefined : client)
    if (duplicated !== undefined)
      this.listen = (channel, listener) =>
        NodeRedisListenConnection.open(() => connectable(duplicated), clock, channel, listener)
  }

  get ready(): boolean {
    const { isOpen } = this.#client
    return 'isReady' in this.#client ? this.#client.isReady : isOpen
  }

  send(command: string, words: readonly string[], key?: string): Promise<unknown> {
    const args = [command, ...words]
    if (isCluster(this.#client)) return this.#client.sendCommand(key, false, args)
    return isSentinel(this.#client) ? this.#client.sendCommand(false, args) : this.#client.sendCommand(args)
  }

  async servers(): Promise<readonly Server[]> {
    if (!isCluster(this.#client)) return [this]
    const cluster = this.#client
    const nodes = await Promise.all(cluster.masters.map((node) => cluster.nodeClient(node)))
    return nodes.map((node) => ({
      send: (command, words) => (node as NodeRedisClient).sendCommand([command, ...words]),
    }))
  }

  async close(): Promise<void> {
    this.#client.off('ready', this.#ready)
    this.#client.off('error', this.#error)
  }

  #changed(trouble: Error | undefined): void {
    this.trouble = trouble
    this.onChange()
  }
}

/**
 * In Cluster, messages reach every server, and a plain connection to one of them tells when it was lost: the cluster's
 * own does not.
 */
async function connectable(client: NodeRedisListener): Promise<NodeRedisListener> {
  if (!isCluster(client)) return client.duplicate()
  const { masters } = client
  const node = await client.nodeClient(masters[Math.floor(Math.random() * masters.length)])
  return (node as NodeRedisClient).duplicate()
}

function isCluster(client: NodeRedisCommon): client is NodeRedisCluster {
  return 'nodeClient' in client
}

function isPool(client: NodeRedisCommon): client is NodeRedisPool {
  return 'execute' in client
}

function isSentinel(client: NodeRedisCommon): client is NodeRedisSentinel {
  return 'setTracer' in client
}
