/**
 * The advisory engine conforms, as far as session locks can: with a client of ours, and with processes that are killed,
 * stopped and cut off from it.
 */
import { afterAll, describe, it } from 'vitest'
import { type ActorModule, conformance, type World } from '../../conformance/index.ts'
import { openPostgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { builtModule } from '../built.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'

async function advisoryWorld(server: PostgresServer): Promise<World> {
  const proxies: FaultProxy[] = []
  const module = builtModule('src/engines/postgres-advisory/index.ts')
  const database = await server.database()
  const { process } = server

  const actor = async (): Promise<ActorModule> => {
    const proxy = await FaultProxy.start(server)
    proxies.push(proxy)
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    return {
      module,
      export: 'openPostgresAdvisory',
      options: url.href,
      cut: () => proxy.blackHole(),
      heal: () => proxy.heal(),
    }
  }

  return {
    engine: () => openPostgresAdvisory(database),
    actor,
    leftovers: async () => {
      await using connection = await server.connect(database)
      const locks = await connection.query(`SELECT 'lock ' || objid AS what FROM pg_locks WHERE locktype = 'advisory'`)
      return locks.map(({ what }) => String(what))
    },
    ...(process === undefined
      ? { lacks: { restart: 'it is not our server' } }
      : {
          restart: async (how) => {
            await (how === 'killed' ? process.kill() : process.stop())
            await process.start()
          },
        }),
    close: async () => {
      for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      await server.drop(database)
      await server[Symbol.asyncDispose]()
    },
  }
}

await describeServer('PostgreSQL', findPostgres, (source) => {
  conformance(
    { describe, it, afterAll },
    'postgres-advisory',
    async () => await advisoryWorld(await PostgresServer.start(source)),
  )
})
