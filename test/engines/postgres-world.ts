/**
 * The world of the conformance cases on one PostgreSQL server: clients by URL, processes whose network goes through a
 * proxy of their own, and a look at what is stored.
 */
import type { World } from '../../conformance/index.ts'
import type { Engine } from '../../src/core/engine.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { builtModule } from '../built.ts'
import type { PostgresServer } from '../servers/postgres.ts'
import { proxiedActors, restarts } from './world-parts.ts'

/** `brought`: how clients of this process are made, if not by URL. */
export async function postgresWorld(server: PostgresServer, brought?: (database: string) => Brought): Promise<World> {
  const module = builtModule('src/engines/postgres/index.ts')
  const database = await server.database()
  const url = (hosts: string): string => database.replace(new URL(database).host, hosts)
  const actors = proxiedActors([server], { module, open: 'openPostgres', url })
  const { engine, close } = (brought ?? byUrl)(database)

  return {
    engine,
    actor: actors.actor,
    leftovers: () => stored(server, database),
    ...restarts(server.process),
    restartKeepsLines: true,
    close: async () => {
      await close()
      await actors.close()
      if (server.process === undefined) await server.drop(database)
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
