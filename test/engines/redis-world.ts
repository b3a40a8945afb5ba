/**
 * The worlds of the conformance cases on Redis: clients by URL, processes of their own, and a look at what is stored.
 */
import { vi } from 'vitest'
import type { World } from '../../conformance/index.ts'
import { openRedis, type RedisEngine } from '../../src/engines/redis/index.ts'
import { builtModule } from '../built.ts'
import type { RedisServer } from '../servers/redis.ts'
import { proxiedActors, restarts } from './world-parts.ts'

const module = builtModule('src/engines/redis/index.ts')

/** Enough of them for every server of a small Cluster to have one. */
const SPREAD = Array.from({ length: 16 }, (_, index) => `warm up ${index}`)

/**
 * A client connects to a server when it first asks it something. Cases count time, and sockets: so it has. Many cases
 * begin at once, and a call waits a second for a connection, which is little on a busy machine.
 */
export async function connected(engine: RedisEngine): Promise<RedisEngine> {
  await vi.waitFor(() => Promise.all(SPREAD.map((key) => engine.inspect(key))), { timeout: 30_000, interval: 10 })
  return engine
}

/** One server. The network of a process goes through a proxy of its own. */
export async function redisWorld(server: RedisServer, options: { readonly keepsLines?: boolean } = {}): Promise<World> {
  const url = (hosts: string): string => server.url.replace(`${server.host}:${server.port}`, hosts)
  const actors = proxiedActors([server], { module, open: 'openRedis', url })

  return {
    engine: async () => connected(await openRedis(server.url)),
    actor: actors.actor,
    leftovers: () => stored([server]),
    ...restarts(server.process),
    restartKeepsLines: options.keepsLines === true,
    close: async () => {
      await actors.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

/** Several servers. Clients find them by asking, so there is no place for a proxy between. */
export interface Deployment extends AsyncDisposable {
  readonly url: string
  /** Those that have keys of their own. */
  masters(): Promise<readonly RedisServer[]>
  restart(how: 'cleanly' | 'killed'): Promise<void>
}

export async function deploymentWorld(starting: Promise<Deployment>): Promise<World> {
  const deployment = await starting
  return {
    engine: async () => connected(await openRedis(deployment.url)),
    actor: () => ({ module, export: 'openRedis', options: deployment.url }),
    leftovers: async () => stored(await deployment.masters()),
    restart: (how) => deployment.restart(how),
  }
}

/** Every key but the counters. */
async function stored(servers: readonly RedisServer[]): Promise<readonly string[]> {
  const keys: string[] = []
  for (const server of servers) {
    await using client = await server.connect()
    keys.push(...((await client.command('KEYS', '*')) as string[]))
  }
  return keys.filter((key) => !key.startsWith('hf1:counter'))
}
