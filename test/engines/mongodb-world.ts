/**
 * The worlds of the conformance cases on MongoDB: clients by URL, processes of their own whose network goes through a
 * proxy, and a look at what is stored.
 */
import { MongoClient } from 'mongodb'
import type { ActorModule, World } from '../../conformance/index.ts'
import { type MongodbEngine, openMongodb } from '../../src/engines/mongodb/index.ts'
import { builtModule } from '../built.ts'
import type { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { FaultProxy } from '../servers/proxy.ts'

const module = builtModule('src/engines/mongodb/index.ts')
const HOUR_MS = 3_600_000
const UNTOLD = 'a stand-alone server has no change stream to tell by'

/** A client connects when it first asks something. Cases count time, and sockets: so it has. */
async function connected(engine: MongodbEngine): Promise<MongodbEngine> {
  await engine.inspect('warm up')
  return engine
}

/** Where the cases are played. */
export interface MongodbPlace {
  readonly url: string
  readonly host?: string
  /** Of the server that takes writes. */
  readonly port: number
  /** To that very server, by way of this port. */
  urlThrough(port: number): string
  restart?(how: 'cleanly' | 'killed'): Promise<void>
}

export function standInWorld(server: StandIn): World {
  const restart = async (how: 'cleanly' | 'killed'): Promise<void> => {
    if (how === 'killed') await server.kill()
    await server.restart()
  }
  return mongodbWorld({ url: server.url, port: server.port, urlThrough: (port) => server.urlThrough(port), restart })
}

/** The network of a process goes through a proxy of its own. */
export function mongodbWorld(place: MongodbPlace): World {
  const { url, host = '127.0.0.1', restart } = place
  const proxies: FaultProxy[] = []
  // A driver that is told of changes by its server makes one more connection some seconds later, to measure round
  // trips. Cases count sockets.
  const polled = `${url}${url.includes('?') ? '&' : '?'}serverMonitoringMode=poll`

  const actor = async (): Promise<ActorModule> => {
    const proxy = await FaultProxy.start({ host, port: place.port })
    proxies.push(proxy)
    return {
      module,
      export: 'openMongodb',
      options: place.urlThrough(proxy.port),
      cut: () => proxy.blackHole(),
      refuse: () => proxy.refuse(),
      heal: () => proxy.heal(),
    }
  }

  return {
    engine: async () => await connected(await openMongodb(polled)),
    actor,
    leftovers: () => stored(url),
    lacks: {
      ending: 'the driver of MongoDB keeps its process alive until its client is closed',
      ...(url.includes('replicaSet') ? {} : { politeEviction: UNTOLD, watching: UNTOLD }),
      ...(restart === undefined ? { restart: 'it is not our server' } : {}),
    },
    ...(restart === undefined ? {} : { restart, restartKeepsLines: true }),
    close: async () => {
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    },
  }
}

/**
 * Every entry that lives, and every document that the server will not take away by itself. It takes a line away an hour
 * after its last entry has expired, which no test waits for: see pipelines.ts.
 */
export async function stored(url: string): Promise<readonly string[]> {
  const client = new MongoClient(url)
  try {
    const lines = client
      .db()
      .collection<{ _id: string; entries: { id: string; expires_at: Date }[]; remove_at: Date }>('holdfast')
    const found = await lines.find().toArray()
    const now = Date.now()
    return found.flatMap(({ _id, entries, remove_at }) => [
      ...entries.filter(({ expires_at }) => expires_at.getTime() > now).map(({ id }) => `entry ${_id} ${id}`),
      ...(remove_at.getTime() < now + 25 * HOUR_MS ? [] : [`line ${_id}`]),
    ])
  } finally {
    await client.close()
  }
}
