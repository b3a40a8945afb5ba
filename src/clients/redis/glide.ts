/**
 * @valkey/valkey-glide: one server, or a Cluster.
 *
 * It hides its connections: it says neither whether it has one nor when it lost one, and gives up on a command by its
 * own time-out (250 ms unless configured), which is an unknown outcome. It cannot be duplicated; to be woken, give a
 * second client as `subscriber`.
 */
import type { ChannelListener, ListenConnection } from '../shared/listen.ts'
import type { RedisServer, RedisWire } from './wire.ts'

/** What we use of a `GlideClient`. */
export interface GlideLike {
  customCommand(args: string[], options?: object): Promise<unknown>
  invokeScript(...args: never[]): unknown
  subscribe?(channels: Iterable<string>, timeoutMs: number): Promise<void>
  unsubscribe?(channels: Iterable<string> | null, timeoutMs: number): Promise<void>
  getPubSubMessage?(): Promise<{ readonly channel: unknown; readonly message: unknown }>
}

const SUBSCRIBE_LIMIT_MS = 5000

export class GlideWire implements RedisWire {
  readonly name = 'valkey-glide'
  readonly cluster: boolean
  readonly inOrder = false
  /** By its `readFrom`, which it does not tell. */
  readonly readsReplicas = true
  readonly connection = 0
  readonly keyPrefix = ''
  readonly ready = true
  readonly trouble = undefined
  readonly listen?: (channel: string, listener: ChannelListener) => Promise<ListenConnection>
  onChange: () => void = () => undefined
  readonly #client: GlideLike

  constructor(client: GlideLike, subscriber?: GlideLike) {
    this.#client = client
    this.cluster = isCluster(client)
    if (subscriber !== undefined) this.listen = (channel, listener) => listen(subscriber, channel, listener)
  }

  send(command: string, words: readonly string[]): Promise<unknown> {
    return this.#client.customCommand([command, ...words])
  }

  async servers(): Promise<readonly RedisServer[]> {
    if (!this.cluster) return [this]
    const slots = (await this.#client.customCommand(['CLUSTER', 'SLOTS'])) as readonly (readonly [
      number,
      number,
      readonly [string, number],
    ])[]
    const masters = new Map(
      slots.map(([, , [host, port]]) => [`${host}:${port}`, { type: 'routeByAddress', host, port }]),
    )
    return [...masters.values()].map((route) => ({
      send: (command, words) => this.#client.customCommand([command, ...words], { route }),
    }))
  }

  async close(): Promise<void> {
    // It was brought, and is its owner's to close.
  }
}

/**
 * It subscribes again by itself when it reconnects, without telling; what is lost meanwhile is found by the next
 * renewal.
 */
async function listen(subscriber: GlideLike, channel: string, listener: ChannelListener): Promise<ListenConnection> {
  await subscriber.subscribe?.([channel], SUBSCRIBE_LIMIT_MS)
  let closed = false
  const loop = async (): Promise<void> => {
    while (!closed) {
      const heard = await subscriber.getPubSubMessage?.()
      if (heard === undefined) return
      if (String(heard.channel) === channel) listener.message(String(heard.message))
    }
  }
  // It ends when the user closes the subscriber.
  loop().catch(() => undefined)
  return {
    restart: () => listener.gap(),
    close: async () => {
      closed = true
      await subscriber.unsubscribe?.([channel], SUBSCRIBE_LIMIT_MS).catch(() => undefined)
    },
  }
}

function isCluster(client: GlideLike): boolean {
  return 'pubsubShardChannels' in client
}
