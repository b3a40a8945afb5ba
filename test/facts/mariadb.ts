/** A server of MariaDB, and connections to it, for the tests of facts about it. */
import type { Connection, RowDataPacket } from 'mysql2/promise'
import { afterEach, beforeAll, expect, vi } from 'vitest'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import type { Program } from '../servers/programs.ts'
import { describeServer } from '../servers/suite.ts'

export const LIMIT = { timeout: 30_000, interval: 10 }

/** Two connections that stay, and their server. */
export interface Connections {
  readonly server: MariadbServer
  readonly one: Connection
  readonly other: Connection
}

export interface MariadbTools {
  readonly source: { readonly program: Program }
  /** A further connection, ended after the test. */
  connect(to?: MariadbServer, url?: string): Promise<Connection>
  /** Until that connection is at it. */
  busy(thread: unknown, expected: Record<string, string>): Promise<void>
}

/** What `body` answers is called once, when the server is there. */
export async function describeMariadb(
  name: string,
  body: (tools: MariadbTools) => (connections: Connections) => void,
): Promise<void> {
  await describeServer(name, findOwnMariadb, (source) => {
    let server: MariadbServer
    const opened: Connection[] = []

    const started = body({
      source,
      connect: async (to = server, url) => {
        const connection = await to.connect(url)
        opened.push(connection)
        return connection
      },
      busy: (thread, expected) =>
        vi.waitFor(async () => {
          const threads = (await server.asRoot('show processlist')) as { Id: number }[]
          expect(threads.find(({ Id }) => Id === thread)).toMatchObject(expected)
        }, LIMIT),
    })

    beforeAll(async () => {
      server = await MariadbServer.start(source)
      started({ server, one: await server.connect(), other: await server.connect() })
      return () => server[Symbol.asyncDispose]()
    })

    afterEach(() => {
      for (const connection of opened.splice(0)) connection.destroy()
    })
  })
}

/** The first row of what is asked. */
export async function ask(connection: Connection, sql: string): Promise<Record<string, unknown>> {
  const [rows] = await connection.query<RowDataPacket[]>(sql)
  return rows[0] ?? {}
}
