/** The world of the conformance cases on one Redis server: clients by URL, processes whose network goes through a proxy of their own, and a look at what is stored. */
import type { Seat, World } from '../../conformance/index.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { builtModule } from '../built.ts'
import { FaultProxy } from '../servers/proxy.ts'
import type { RedisServer } from '../servers/redis.ts'

export async function redisWorld(server: RedisServer, options: { readonly keepsLines?: boolean } = {}): Promise<World> {
  const proxies: FaultProxy[] = []
  const module = builtModule('src/engines/redis/index.ts')
  const { process } = server

  const actor = async (): Promise<Seat> => {
    const proxy = await FaultProxy.start(server)
    proxies.push(proxy)
    return {
      module,
      export: 'openRedis',
      options: server.url.replace(/:\d+$/, `:${proxy.port}`).replace(server.host, '127.0.0.1'),
      cut: () => proxy.blackHole(),
      heal: () => proxy.heal(),
    }
  }

  return {
    engine: () => openRedis(server.url),
    actor,
    leftovers: () => stored(server),
    ...(process === undefined
      ? { lacks: { restart: 'it is not our server' } }
      : {
          restart: async (how) => {
            await (how === 'killed' ? process.kill() : process.stop())
            await process.start()
          },
          restartKeepsLines: options.keepsLines === true,
        }),
    close: async () => {
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    },
  }
}

/** Every key but the counter. */
async function stored(server: RedisServer): Promise<readonly string[]> {
  await using client = await server.connect()
  const keys = (await client.command('KEYS', '*')) as string[]
  return keys.filter((key) => !key.startsWith('hf1:counter'))
}
