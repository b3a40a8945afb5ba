/** Processes of conformance cases whose network goes through proxies of their own, one for each server. */
import type { ActorModule } from '../../conformance/index.ts'
import { FaultProxy } from '../servers/proxy.ts'

export interface ProxiedActors {
  /** One more process. Its network can be cut, can refuse, and can be healed. */
  actor(): Promise<ActorModule>
  close(): Promise<void>
}

/** `open`: what the module calls its function from a URL to an engine. */
export function proxiedActors(
  servers: readonly { readonly host: string; readonly port: number }[],
  { module, open, scheme }: { readonly module: string; readonly open: string; readonly scheme: string },
): ProxiedActors {
  const proxies: FaultProxy[] = []
  return {
    actor: async () => {
      const own = await Promise.all(servers.map((server) => FaultProxy.start(server)))
      proxies.push(...own)
      return {
        module,
        export: open,
        options: `${scheme}://${own.map(({ port }) => `127.0.0.1:${port}`).join(',')}`,
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
