/** What the worlds of the conformance cases on servers have in common: processes behind proxies, and restarts. */
import type { ActorModule, World } from '../../conformance/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import type { ServerProcess } from '../servers/servers.ts'

export interface ProxiedActors {
  /** One more process. Its network can be cut, can refuse, and can be healed. */
  actor(): Promise<ActorModule>
  close(): Promise<void>
}

export interface ProxiedEngine {
  readonly module: string
  /** What the module calls its function from a URL to an engine. */
  readonly open: string
  /** The URL of servers that are reached there: `127.0.0.1:7001,127.0.0.1:7002`. */
  url(hosts: string): string
}

/** The network of each process goes through proxies of its own, one for each server. */
export function proxiedActors(
  servers: readonly { readonly host: string; readonly port: number }[],
  { module, open, url }: ProxiedEngine,
): ProxiedActors {
  const proxies: FaultProxy[] = []
  return {
    actor: async () => {
      const own = await Promise.all(servers.map((server) => FaultProxy.start(server)))
      proxies.push(...own)
      return {
        module,
        export: open,
        options: url(own.map(({ port }) => `127.0.0.1:${port}`).join(',')),
        cut: () => {
          for (const proxy of own) proxy.blackHole()
        },
        refuse: async () => {
          for (const proxy of own) await proxy.refuse()
        },
        heal: async () => {
          for (const proxy of own) await proxy.heal()
        },
      }
    },
    close: async () => {
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    },
  }
}

/** A server that is ours is restarted by the cases. One that is not (`HOLDFAST_TEST_REDIS_URL`) is left alone. */
export function restarts(process: ServerProcess | undefined): Pick<World, 'restart' | 'lacks'> {
  if (process === undefined) return { lacks: { restart: 'it is not our server' } }
  return {
    restart: async (how) => {
      await (how === 'killed' ? process.kill() : process.stop())
      await process.start()
    },
  }
}
