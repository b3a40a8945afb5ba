/**
 * A client of our own does not keep the process alive: neither a connection that has nothing to answer, nor a pause
 * before the next attempt to connect. ioredis has no option for that, so its sockets and timers are found where it
 * keeps them. While a call is awaited, the caller keeps the process alive (docs/decisions/003).
 *
 * A connection that is being made does, until it stands or is refused: Node offers no way to let go of it.
 */
import type { Cluster, Redis } from 'ioredis'
import { neverCrash } from '../shared/drivers.ts'

interface Releasable {
  unref?(): unknown
}

/** What we need to know of the inside of a `Redis` of ioredis. */
interface RedisInside {
  readonly stream?: Releasable | null
  readonly reconnectTimeout?: Releasable | null
  /** That of Sentinel has a `failoverDetector`. */
  readonly connector?: object | null
  on(event: string, listener: (...args: unknown[]) => void): unknown
}

/** What watches the sentinels. */
interface FailoverDetector {
  readonly sentinels?: readonly { readonly client: RedisInside }[]
}

/** What we need to know of the inside of a `Cluster` of ioredis. */
interface ClusterInside extends RedisInside {
  /** What listens for the cluster; we listen for ourselves, but it connects all the same. */
  readonly subscriber?: object | null
  nodes(): readonly RedisInside[]
}

/** Let the process end though this client is connected, or tries to be. */
export function letProcessEnd(client: Redis | Cluster): void {
  if (client.isCluster) ofCluster(client as unknown as ClusterInside)
  else ofServer(client as unknown as RedisInside)
}

/** The same for a connection that was made of a client, by `duplicate()`. */
export function letProcessEndListening(connection: object): void {
  ofServer(connection as RedisInside)
}

function ofServer(client: RedisInside): void {
  const letGo = (): void => {
    client.stream?.unref?.()
    client.reconnectTimeout?.unref?.()
  }
  letGo()
  client.on('connect', letGo)
  client.on('reconnecting', letGo)
  if (client.connector && 'failoverDetector' in client.connector)
    onAssign(client.connector, 'failoverDetector', (detector) => {
      for (const { client: sentinel } of (detector as FailoverDetector).sentinels ?? []) {
        // Without a listener, ioredis prints each error of a sentinel that does not answer.
        neverCrash(sentinel)
        ofServer(sentinel)
      }
    })
}

function ofCluster(cluster: ClusterInside): void {
  for (const node of cluster.nodes()) ofServer(node)
  cluster.on('+node', (node) => ofServer(node as RedisInside))
  cluster.on('reconnecting', () => cluster.reconnectTimeout?.unref?.())
  onAssign(cluster, 'slotsTimer', (timer) => (timer as Releasable).unref?.())
  if (cluster.subscriber) onAssign(cluster.subscriber, 'subscriber', (node) => ofServer(node as RedisInside))
}

/** Call `assigned` with what `owner[name]` is, and with what it becomes. */
function onAssign(owner: object, name: string, assigned: (value: object) => void): void {
  let current: unknown = (owner as Record<string, unknown>)[name]
  const tell = (): void => {
    if (typeof current === 'object' && current !== null) assigned(current)
  }
  tell()
  Object.defineProperty(owner, name, {
    configurable: true,
    enumerable: true,
    get: () => current,
    set: (value: unknown) => {
      current = value
      tell()
    },
  })
}
