/**
 * `holdfast/redis`: locks on the Redis or Valkey you already run: one server, Sentinel or Cluster.
 *
 * Read in this order: lua/line.lua (what is stored), lua/enter.lua, renew.lua and leave.lua (what is decided), calls.ts
 * (how it is asked), engine.ts, rechecks.ts and letterbox.ts (how a waiter hears), wires/ (your client).
 */

import { type RedisClient, type RedisSubscriber, wireOf } from '../../clients/redis/detect.ts'
import type { RedisEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

export type { RedisClient, RedisSubscriber } from '../../clients/redis/detect.ts'
export type { Durability } from './durability.ts'
export type { RedisEngine } from './engine.ts'
export { openRedis } from './open.ts'
export type { CommonOptions } from './setup.ts'

export interface RedisOptions extends CommonOptions {
  /** Your client: of ioredis, node-redis (`redis`) or @valkey/valkey-glide. You connect it and close it. */
  readonly client: RedisClient
  /**
   * A second client to listen with, for clients that cannot be duplicated (pools of node-redis, valkey-glide). Without
   * it, waiters poll.
   */
  readonly subscriber?: RedisSubscriber
}

/** An engine on a Redis client of yours. For one by URL: `openRedis(url)`, or `connect(url)`. */
export function redis(options: RedisOptions): RedisEngine {
  return engineOn((clock) => wireOf(options.client, clock, options.subscriber), options)
}
