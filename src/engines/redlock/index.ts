/**
 * `holdfast/redlock`: one lock on several Redis servers that know nothing of each other, with a fencing token.
 *
 * Read in this order: verdict.ts (when a lock is granted, and with which token), asking.ts and majority.ts (how that is
 * brought about), lua/common.lua and lua/ask.lua (what one server does), server.ts (how it is asked), engine.ts,
 * hints.ts (how a waiter hears).
 */

import { type RedisClient, type RedisSubscriber, wireOf } from '../../clients/redis/detect.ts'
import type { Clock } from '../../core/clock.ts'
import type { RedlockEngine } from './engine.ts'
import { engineOn, type RedlockCommonOptions } from './setup.ts'

export type { RedisClient, RedisSubscriber } from '../../clients/redis/detect.ts'
export type { RedlockEngine } from './engine.ts'
export { openRedlock } from './open.ts'
export type { RedlockCommonOptions } from './setup.ts'

export interface RedlockOptions extends RedlockCommonOptions {
  /**
   * Your clients, one for each server: of ioredis, node-redis (`redis`) or @valkey/valkey-glide. An odd number of them,
   * 3 or more. You connect them and close them.
   */
  readonly clients: readonly RedisClient[]
  /**
   * Second clients to listen with, one for each server, for those that cannot be duplicated. Without them, waiters
   * poll.
   */
  readonly subscribers?: readonly RedisSubscriber[]
}

/** An engine on Redis clients of yours. For one by URL: `openRedlock(url)`, or `connect(url)`. */
export function redlock(options: RedlockOptions): RedlockEngine {
  const { clients, subscribers } = options
  if (!Array.isArray(clients)) throw new TypeError('clients must be a list of Redis clients, one for each server')
  if (new Set(clients).size !== clients.length)
    throw new RangeError('clients must be of different servers; one of them is there twice')
  return engineOn(
    (clock: Clock) => clients.map((client, index) => wireOf(client, clock, subscribers?.[index])),
    clients.length,
    options,
  )
}
