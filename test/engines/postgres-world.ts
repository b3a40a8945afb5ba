/**
 * The world of the conformance cases on one PostgreSQL server: clients by URL, processes whose network goes through a
 * proxy of their own, and a look at what is stored.
 */
import type { ActorModule, World } from '../../conformance/index.ts'
import type { Engine } from '../../src/core/engine.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { builtModule } from '../built.ts'
import type { PostgresServer } from '../servers/postgres.ts'
import { FaultProxy } from '../servers/proxy.ts'

/** `brought`: how clients of this process are made, if not by URL. */
export async function postgresWorld(server: PostgresServer, brought?: (database: string) => Brought): Promise<World> {
  const proxies: FaultProxy[] = []
  const module = builtModule('src/engines/postgres/index.ts')
  const database = await server.database()
  const { engine, close } = (brought ?? byUrl)(database)
  const { process } = server

  const actor = async (): Promise<ActorModule> => {
    const proxy = await FaultProxy.start(server)
    proxies.push(proxy)
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    return {
      module,
      export: 'openPostgres',
      options: url.href,
      cut: () => proxy.blackHole(),
      refuse: () => proxy.refuse(),
      heal: () => proxy.heal(),
    }
  }

  return {
    engine,
    actor,
    leftovers: () => stored(server, database),
    ...(process === undefined
      ? { lacks: { restart: 'it is not our server' } }
      : {
          restart: async (how) => {
            await (how === 'killed' ? process.kill() : process.stop())
            await process.start()
          },
          restartKeepsLines: true,
        }),
    close: async () => {
      await close()
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      if (process === undefined) await server.drop(database)
      await server[Symbol.asyncDispose]()
    },
  }
}

/** How clients of this process are made. */
export interface Brought {
  engine(): Engine | Promise<Engine>
  close(): Promise<void>
}

function byUrl(database: string): Brought {
  return { engine: () => openPostgres(database), close: async () => {} }
}

/** Every row of a line or of an entry. */
async function stored(server: PostgresServer, database: string): Promise<readonly string[]> {
  await using connection = await server.connect(database)
  const rows = await connection.query(
    `SELECT 'line ' || key AS what FROM holdfast_line UNION ALL SELECT 'entry ' || key || ' ' || id FROM holdfast_entry`,
  )
  return rows.map(({ what }) => String(what))
}
