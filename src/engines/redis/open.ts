/** From a URL to the engine, on a client that we make. */
import type { Cluster, Redis } from 'ioredis'
import { makeClient } from '../../clients/redis/connect.ts'
import { IoredisWire, type IoredisWireOptions } from '../../clients/redis/ioredis.ts'
import { loadEvalsha } from '../../clients/redis/prepared.ts'
import { parseUrl } from '../../clients/redis/url.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { systemClock } from '../../core/clock.ts'
import type { RedisEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

/**
 * The engine behind a URL; see url.ts for what one looks like. It connects by itself, and closes its connections when
 * it is closed.
 */
export async function openRedis(url: string, options: CommonOptions = {}): Promise<RedisEngine> {
  const target = parseUrl(url)
  const client = await makeClient(target)
  const wireOptions = await ownOptions(client)
  const inUrl: CommonOptions = {
    ...(target.prefix === undefined ? {} : { prefix: target.prefix }),
    ...(target.replicas === undefined ? {} : { durability: { replicas: target.replicas } }),
  }
  try {
    return engineOn((clock) => new IoredisWire(client, clock, wireOptions), { ...inUrl, ...options })
  } catch (error) {
    // Options that are refused leave nothing behind that goes on connecting.
    client.disconnect()
    throw error
  }
}

/** A connection alone, for whoever needs no locks. */
export async function openWire(url: string): Promise<RedisWire> {
  return new IoredisWire(await makeClient(parseUrl(url)), systemClock, { owned: true })
}

/** In Cluster it is ioredis that looks for the keys, and sends each command where they are. */
async function ownOptions(client: Redis | Cluster): Promise<IoredisWireOptions> {
  if (client.isCluster) return { owned: true }
  const evalsha = await loadEvalsha()
  return { owned: true, evalsha: (words) => evalsha(client as Redis, words) }
}
