/**
 * node-redis (`redis` on npm), version 4 and later: a client, a pool, Sentinel, or a Cluster.
 *
 * Left to itself it queues commands while it is offline and sends them seconds late; so we look at its state before we
 * send. A command that was sent and not answered when the connection ends is rejected by the client itself. On a frozen
 * server it would hang for ever: the core's own deadline ends that.
 */

import type { Clock, Timer } from '../../core/clock.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { neverCrash } from '../shared/drivers.ts'
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import type { RedisServer, RedisWire } from './wire.ts'

/** What every client of node-redis has. */
export interface NodeRedisCommon {
  readonly isOpen: boolean
  evalSha(...args: never[]): unknown
  on(event: string, listener: (...args: unknown[]) => void): unknown
  off(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What can listen, and be made a second time for it. */
export interface NodeRedisListener extends NodeRedisCommon {
  duplicate(): NodeRedisListener
  connect(): Promise<unknown>
  /** From now on it does not keep the process alive, also when it connects again. */
  unref?(): void
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>
  /** Version 5 and later; before that, `disconnect`. */
  destroy?(): void
  disconnect?(): unknown
}

/** What we use of a client, as `createClient` makes it. */
export interface NodeRedisClient extends NodeRedisListener {
  /** As it was created. */
  readonly options?: { readonly socket?: object | undefined } | undefined
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
  readonly finding?: NamedFinding
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
    if (this.inOrder && isPatientForEver(client as NodeRedisClient)) this.finding = PATIENT_FOR_EVER
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

  async servers(): Promise<readonly RedisServer[]> {
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

/** Only its owner can give it a limit: we could end its connection only by closing it for good. */
const PATIENT_FOR_EVER: NamedFinding = {
  name: 'client',
  status: 'warn',
  finding: 'node-redis waits for ever on a connection on which nothing is answered',
  todo: 'create it with pingInterval and socket: { socketTimeout, reconnectStrategy } (docs/engines/redis.md)',
}

function isPatientForEver({ options }: NodeRedisClient): boolean {
  if (options === undefined) return false
  const { socketTimeout } = (options.socket ?? {}) as { socketTimeout?: number }
  return socketTimeout === undefined || socketTimeout === 0
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

// ---- listening ----

/** A connection on which no subscription stands after this long is as good as refused. */
const OPEN_LIMIT_MS = 5000
/** How long a later connection that stands may take until the subscription does. */
const HANDSHAKE_LIMIT_MS = 2000
const RETRY_MS = 1000

/**
 * A connection that only listens: a duplicate of the client, or of one node of a Cluster.
 *
 * node-redis makes it anew when it breaks, and subscribes again before it says that it is ready: that is when we tell
 * of the gap.
 */
class NodeRedisListenConnection implements ListenConnection {
  readonly #make: () => Promise<NodeRedisListener>
  readonly #clock: Clock
  readonly #channel: string
  readonly #listener: ChannelListener
  #connection: NodeRedisListener | undefined
  #timer: Timer | undefined
  /** Runs from a connection that node-redis has made anew to its subscription. */
  #handshake: Timer | undefined
  #closed = false

  static async open(
    make: () => Promise<NodeRedisListener>,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ): Promise<NodeRedisListenConnection> {
    const listening = new NodeRedisListenConnection(make, clock, channel, listener)
    try {
      await listening.#connectInTime({ giveUpOnError: true })
    } catch (error) {
      await listening.close()
      throw error
    }
    return listening
  }

  private constructor(
    make: () => Promise<NodeRedisListener>,
    clock: Clock,
    channel: string,
    listener: ChannelListener,
  ) {
    this.#make = make
    this.#clock = clock
    this.#channel = channel
    this.#listener = listener
  }

  restart(): void {
    this.#drop()
    this.#connectInTime({ giveUpOnError: false }).then(
      () => this.#listener.gap(),
      () => this.#later(),
    )
  }

  async close(): Promise<void> {
    this.#closed = true
    this.#timer?.cancel()
    this.#drop()
  }

  /** The client goes on trying after an error, and waits for ever for the answers to its first commands. */
  #connectInTime({ giveUpOnError }: { readonly giveUpOnError: boolean }): Promise<void> {
    return new Promise((resolve, reject) => {
      const limit = this.#clock.timer(OPEN_LIMIT_MS, () =>
        reject(new Error(`no connection to listen on within ${OPEN_LIMIT_MS} ms`)),
      )
      this.#connect(giveUpOnError ? reject : () => undefined)
        .then(resolve, reject)
        .finally(() => limit.cancel())
    })
  }

  async #connect(failed: (error: Error) => void): Promise<void> {
    const connection = await this.#make()
    if (this.#closed) return
    this.#connection = connection
    let subscribed = false
    // Without a listener, an error would end the process.
    connection.on('error', (error) => failed(error as Error))
    connection.on('connect', () => {
      if (!subscribed || connection !== this.#connection) return
      this.#handshake?.cancel()
      this.#handshake = this.#clock.timer(HANDSHAKE_LIMIT_MS, () => this.restart())
    })
    connection.on('ready', () => {
      if (!subscribed || connection !== this.#connection) return
      this.#handshake?.cancel()
      this.#listener.gap()
    })
    connection.unref?.()
    await connection.connect()
    await connection.subscribe(this.#channel, (message) => this.#listener.message(message))
    subscribed = true
  }

  #later(): void {
    if (this.#closed) return
    this.#timer = this.#clock.timer(RETRY_MS, () => this.restart())
  }

  #drop(): void {
    this.#handshake?.cancel()
    const connection = this.#connection
    this.#connection = undefined
    if (connection === undefined || !connection.isOpen) return
    if (connection.destroy !== undefined) connection.destroy()
    else void connection.disconnect?.()
  }
}
