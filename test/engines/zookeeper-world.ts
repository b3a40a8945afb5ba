/**
 * The worlds of the conformance cases on ZooKeeper: clients by URL, processes of their own, and a look at what is
 * stored.
 */
import type { World } from '../../conformance/index.ts'
import { hasCode } from '../../src/clients/zookeeper/errors.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { builtModule } from '../built.ts'
import type { ZooKeeperServer } from '../servers/zookeeper.ts'
import { proxiedActors } from './world-parts.ts'

const module = builtModule('src/engines/zookeeper/index.ts')

/** A client connects when it first asks something. Cases count time, and sockets: so it has. */
async function connected(engine: ZooKeeperEngine): Promise<ZooKeeperEngine> {
  await engine.inspect('warm up')
  return engine
}

export interface Place {
  readonly url: string
  readonly servers: readonly ZooKeeperServer[]
  restart?(how: 'cleanly' | 'killed'): Promise<void>
}

/** One server, which can be restarted if it is ours. */
export function zookeeperPlace(server: ZooKeeperServer): Place {
  const { url, process } = server
  if (process === undefined) return { url, servers: [server] }
  const restart = async (how: 'cleanly' | 'killed'): Promise<void> => {
    await (how === 'killed' ? process.kill() : process.stop())
    await process.start()
  }
  return { url, servers: [server], restart }
}

/** One server or several. The network of a process goes through proxies of its own. */
export function zookeeperWorld({ url, servers, restart }: Place): World {
  const actors = proxiedActors(servers, { module, open: 'openZooKeeper', url: (hosts) => `zookeeper://${hosts}` })

  return {
    engine: async () => await connected(await openZooKeeper(url)),
    actor: actors.actor,
    // The nodes of lines themselves are taken away by the server, in its own time: see zookeeper.server.test.ts.
    leftovers: async () => (await stored(servers)).filter((path) => path.split('/').length > 3),
    ...(restart === undefined ? { lacks: { restart: 'it is not our server' } } : { restart, restartKeepsLines: true }),
    close: actors.close,
  }
}

/** Every node of ours. */
export async function stored(servers: readonly ZooKeeperServer[], root = '/holdfast'): Promise<readonly string[]> {
  const session = new ZooKeeperSession({
    servers: { endpoints: servers, chroot: '' },
    clock: systemClock,
    timeoutMs: 10_000,
  })
  const found: string[] = []
  const visit = async (path: string): Promise<void> => {
    try {
      for (const name of await session.getChildren(path)) await visit(`${path}/${name}`)
      found.push(path)
    } catch (error) {
      if (!hasCode(error, 'noNode')) throw error
    }
  }
  try {
    await session.confirm()
    await visit(root)
    return found
  } finally {
    await session.close()
  }
}
