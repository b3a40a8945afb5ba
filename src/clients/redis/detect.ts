/**
 * Which client is it? Told by its methods, never by the name of its class: bundlers rename classes, and people wrap
 * clients.
 */

import type { Clock } from '../../core/clock.ts'
import { hasMethods } from '../shared/drivers.ts'
import { type GlideLike, GlideWire } from './glide.ts'
import { IoredisWire } from './ioredis.ts'
import type { IoredisClient, IoredisCluster } from './ioredis-listen.ts'
import { type AnyNodeRedis, type NodeRedisListener, NodeRedisWire } from './node-redis.ts'
import type { RedisWire } from './wire.ts'

/** A client that you bring: ioredis, node-redis (`redis`) or valkey-glide, each also for a Cluster. */
export type RedisClient = IoredisClient | IoredisCluster | AnyNodeRedis | GlideLike
/** A second client, to listen with, for those that cannot be duplicated: pools of node-redis, and valkey-glide. */
export type RedisSubscriber = NodeRedisListener | GlideLike

export function wireOf(client: RedisClient, clock: Clock, subscriber?: RedisSubscriber): RedisWire {
  if (hasMethods(client, 'customCommand', 'invokeScript')) {
    if (subscriber !== undefined && !hasMethods(subscriber, 'getPubSubMessage', 'subscribe'))
      throw unfit('subscriber', 'a client of valkey-glide 2.3 or later')
    return new GlideWire(client as GlideLike, subscriber as GlideLike | undefined)
  }
  if (hasMethods(client, 'sendCommand', 'evalSha')) {
    if (subscriber !== undefined && !hasMethods(subscriber, 'subscribe', 'duplicate'))
      throw unfit('subscriber', 'a client of node-redis')
    return new NodeRedisWire(client as AnyNodeRedis, clock, subscriber as NodeRedisListener | undefined)
  }
  if (hasMethods(client, 'call', 'defineCommand')) {
    if (subscriber !== undefined) throw new TypeError('ioredis needs no subscriber: its client is duplicated')
    return new IoredisWire(client as IoredisClient | IoredisCluster, clock, { owned: false })
  }
  throw unfit('client', 'a client of ioredis, node-redis (`redis`) or @valkey/valkey-glide')
}

function unfit(option: string, expected: string): TypeError {
  return new TypeError(`${option} must be ${expected}`)
}
