/**
 * The worlds of the conformance cases on etcd: clients by URL, processes of their own, and a look at what is stored.
 */
import { delegate } from '../../conformance/delegate.ts'
import type { World } from '../../conformance/index.ts'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import type { Engine } from '../../src/core/engine.ts'
import { type EtcdEngine, openEtcd } from '../../src/engines/etcd/index.ts'
import { builtModule } from '../built.ts'
import type { EtcdServer } from '../servers/etcd.ts'
import { proxiedActors } from './world-parts.ts'

const module = builtModule('src/engines/etcd/index.ts')

/** A client connects when it first asks something. Cases count time, and sockets: so it has. */
export async function connected(engine: EtcdEngine): Promise<EtcdEngine> {
  await engine.inspect('warm up')
  return engine
}

export interface Place {
  readonly url: string
  readonly servers: readonly EtcdServer[]
  restart?(how: 'cleanly' | 'killed'): Promise<void>
  /** Have it judged as if each entry had a ttl of its own. */
  readonly asEntries?: boolean
}

/** One server, which can be restarted if it is ours. */
export function etcdPlace(server: EtcdServer): Place {
  const { url, process } = server
  if (process === undefined) return { url, servers: [server] }
  const restart = async (how: 'cleanly' | 'killed'): Promise<void> => {
    await (how === 'killed' ? process.kill() : process.stop())
    await process.start()
  }
  return { url, servers: [server], restart }
}

/** One server or several. The network of a process goes through proxies of its own. */
export function etcdWorld({ url, servers, restart, asEntries = false }: Place): World {
  const actors = proxiedActors(servers, { module, open: 'openEtcd', url: (hosts) => `etcd://${hosts}` })

  const engine = async (): Promise<Engine> => {
    const opened = await connected(await openEtcd(url))
    return asEntries ? delegate(opened, { traits: { ...opened.traits, ttl: 'entry' } }) : opened
  }

  return {
    engine,
    actor: actors.actor,
    leftovers: () => stored(servers),
    ...(restart === undefined ? { lacks: { restart: 'it is not our server' } } : { restart, restartKeepsLines: true }),
    close: actors.close,
  }
}

/** Every key but those of records, which stay until they are removed or expire. */
async function stored(servers: readonly EtcdServer[]): Promise<readonly string[]> {
  const client = new EtcdClient({ endpoints: servers })
  const { kvs } = await client.range({ key: 'holdfast/', end: 'holdfast0', keysOnly: true })
  client.close()
  return kvs.map(({ key }) => key).filter((key) => !key.startsWith('holdfast/record/'))
}
