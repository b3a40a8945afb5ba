/** From a URL to the engine, on a client that we make. */
import { openWire } from '../../clients/redis/connect.ts'
import { parseUrl } from '../../clients/redis/url.ts'
import { systemClock } from '../../core/clock.ts'
import type { RedisEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

/**
 * The engine behind a URL; see clients/redis/url.ts for what one looks like. It connects by itself, and closes its
 * connections when it is closed.
 */
export async function openRedis(url: string, options: CommonOptions = {}): Promise<RedisEngine> {
  const target = parseUrl(url)
  const wire = await openWire(target, options.clock ?? systemClock)
  const inUrl: CommonOptions = {
    ...(target.prefix === undefined ? {} : { prefix: target.prefix }),
    ...(target.replicas === undefined ? {} : { durability: { replicas: target.replicas } }),
  }
  try {
    return engineOn(() => wire, { ...inUrl, ...options })
  } catch (error) {
    // Options that are refused leave nothing behind that goes on connecting.
    await wire.close()
    throw error
  }
}
