/**
 * The advisory engine conforms, as far as session locks can: with a client of ours, and with processes that are killed,
 * stopped and cut off from it.
 */
import { afterAll, describe, it } from 'vitest'
import { conformance, type World } from '../../conformance/index.ts'
import { openPostgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { builtModule } from '../built.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { proxiedActors, restarts } from './world-parts.ts'

async function advisoryWorld(server: PostgresServer): Promise<World> {
  const module = builtModule('src/engines/postgres-advisory/index.ts')
  const database = await server.database()
  const url = (hosts: string): string => database.replace(new URL(database).host, hosts)
  const actors = proxiedActors([server], { module, open: 'openPostgresAdvisory', url })

  return {
    engine: () => openPostgresAdvisory(database),
    actor: actors.actor,
    leftovers: async () => {
      await using connection = await server.connect(database)
      const locks = await connection.query(`SELECT 'lock ' || objid AS what FROM pg_locks WHERE locktype = 'advisory'`)
      return locks.map(({ what }) => String(what))
    },
    ...restarts(server.process),
    close: async () => {
      await actors.close()
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
