/** For tests of session locks: a database of their own, and a connection that looks into it beside the engine. */
import { beforeAll } from 'vitest'
import { type PostgresConnection, PostgresServer, type PostgresSource } from '../servers/postgres.ts'

export interface LookedAt {
  readonly server: PostgresServer
  readonly database: string
  readonly looker: PostgresConnection
}

/** There before the first test of the suite, and ended after the last one. */
export function withLooker(source: PostgresSource, began: (there: LookedAt) => void): void {
  beforeAll(async () => {
    const server = await PostgresServer.start(source)
    const database = await server.database()
    const looker = await server.connect(database)
    began({ server, database, looker })
    return async () => {
      await looker[Symbol.asyncDispose]()
      await server.drop(database)
      await server[Symbol.asyncDispose]()
    }
  })
}
