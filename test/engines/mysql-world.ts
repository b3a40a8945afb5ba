/**
 * The world of the conformance cases on one MariaDB server: clients by URL, processes whose network goes through a
 * proxy of their own, and a look at what is stored.
 */
import type { RowDataPacket } from 'mysql2'
import type { World } from '../../conformance/index.ts'
import type { Engine } from '../../src/core/engine.ts'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { builtModule } from '../built.ts'
import type { MariadbServer } from '../servers/mariadb.ts'
import { proxiedActors, restarts } from './world-parts.ts'

/** How clients of this process are made. */
export interface Brought {
  engine(): Engine | Promise<Engine>
  close(): Promise<void>
}

/** `brought`: how clients of this process are made, if not by URL. */
export async function mysqlWorld(server: MariadbServer, brought: Brought = byUrl(server)): Promise<World> {
  const module = builtModule('src/engines/mysql/index.ts')
  const url = (hosts: string): string => server.url.replace(`${server.host}:${server.port}`, hosts)
  const actors = proxiedActors([server], { module, open: 'openMysql', url })
  // Tables are made when they are first used. With many at once, that may take longer than the ttls of some cases.
  const first = await brought.engine()
  await first.inspect('first')
  await first[Symbol.asyncDispose]()

  return {
    engine: () => brought.engine(),
    actor: actors.actor,
    leftovers: () => stored(server),
    ...restarts(server.process),
    restartKeepsLines: true,
    close: async () => {
      await brought.close()
      await actors.close()
      await server[Symbol.asyncDispose]()
    },
  }
}

function byUrl(server: MariadbServer): Brought {
  return { engine: () => openMysql(server.url), close: async () => {} }
}

/** Every row of a line or of an entry. */
async function stored(server: MariadbServer): Promise<readonly string[]> {
  const connection = await server.connect()
  try {
    const [rows] = await connection.query<RowDataPacket[]>(
      `select concat('line ', hex(k)) as what from holdfast_line union all select concat('entry ', hex(k), ' ', hex(id)) from holdfast_entry`,
    )
    return rows.map(({ what }) => String(what))
  } finally {
    connection.destroy()
  }
}
