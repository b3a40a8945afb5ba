/**
 * Redlock conforms, as far as the cases apply to it: five servers, and processes that are killed, stopped and cut off
 * from them.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { findOwnRedis } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { Fleet, redlockWorld } from './redlock-world.ts'

await describeServer('Redlock', findOwnRedis, (source) => {
  conformance({ describe, it, afterAll }, 'redlock', () => redlockWorld(Fleet.start(source)))
})
