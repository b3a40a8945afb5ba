/**
 * Valkey conforms, where a script or the way to it could differ from Redis: scripts, batches, news, expiry, and a
 * server that is restarted. The whole suite is for `npm run matrix server valkey`.
 */
import { afterAll, describe, expect, it, test } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { findOther } from '../servers/other-servers.ts'
import { RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { redisWorld } from './redis-world.ts'

const PROPERTIES = ['batches', 'waiting', 'sharing', 'expiry', 'the store and its lines', 'restart of the server']

await describeServer(
  'Valkey',
  () => findOther('valkey@sid'),
  (program) => {
    const starting = RedisServer.start({ program })

    test('is known to doctor by its own name', async () => {
      await using engine = await openRedis((await starting).url)
      const [version] = await engine.diagnose()
      expect(version).toMatchObject({ name: 'version', status: 'ok', finding: expect.stringMatching(/^Valkey \d+\./) })
    })

    conformance({ describe, it, afterAll }, 'redis', async () => await redisWorld(await starting), {
      only: (_, property) => PROPERTIES.includes(property),
    })
  },
)
