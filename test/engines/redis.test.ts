/**
 * Redis conforms: one server, with a client of ours, and with processes that are killed, stopped and cut off from it.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { redisWorld } from './redis-world.ts'

await describeServer('Redis', findRedis, (source) => {
  conformance({ describe, it, afterAll }, 'redis', async () => await redisWorld(await RedisServer.start(source)))
})
