/**
 * `holdfast/guards/redis`: marks beside what is protected, and one script around the commands that read or write it:
 * the same number of round trips as without a guard.
 *
 *     const guarded = guard({ client })
 *     const [balance] = await guarded.read(lease, [['GET', 'account:7']])     to read what will be written back
 *     await guarded.write(lease, [['SET', 'account:7', '150']])                to write
 *
 * Redis runs a script alone, so nothing comes between the check and the commands. A command that fails ends the script,
 * and what came before it stays, as in every script of Redis.
 *
 * The marks are a hash at `hf1:marks:{resource}`, without expiry unless `forget` says so. In Cluster they are in the
 * slot of the resource's name, and so must be what is protected: a resource `account:7` goes with the keys `account:7`
 * and `{account:7}:log`.
 */

import { type RedisClient, wireOf } from '../clients/redis/detect.ts'
import { systemClock } from '../core/clock.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import { type ForgetAfter, parseForget } from './marks.ts'
import { guardOn, type RedisGuard } from './redis/wire-guard.ts'

export type { RedisClient } from '../clients/redis/detect.ts'
export type { LeaseLike } from './lease-like.ts'
export type { ForgetAfter, Mark, Marks } from './marks.ts'
export type { Command, RedisGuard } from './redis/wire-guard.ts'

/** Options of a guard on Redis. */
export interface RedisGuardOptions {
  /** ioredis, node-redis (`redis`) or valkey-glide; also for a Cluster. Yours to close. */
  readonly client: RedisClient
  /**
   * How long to keep the mark of a resource that no token uses: for ever unless given. An older holder is let in again
   * after that. The server forgets by itself; it must not evict anything (`maxmemory-policy noeviction`).
   */
  readonly forget?: ForgetAfter
}

const OPTIONS: OptionNames<RedisGuardOptions> = { client: true, forget: true }

/** A guard on Redis: one script refuses stale tokens and runs your commands. */
export function guard(options: RedisGuardOptions): RedisGuard {
  checkOptions('guard()', options, OPTIONS)
  return guardOn(wireOf(options.client, systemClock), parseForget(options.forget))
}
