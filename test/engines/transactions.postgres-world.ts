/**
 * What tests of locks inside of a transaction of PostgreSQL have in common: a database with a table of tickets, a rival
 * and an onlooker with connections of their own, and both clients. They are those of the suite that runs.
 */
import pg from 'pg'
import postgres from 'postgres'
import { beforeAll, beforeEach } from 'vitest'
import { type PostgresConnection, PostgresServer, type PostgresSource } from '../servers/postgres.ts'

export interface Ticket {
  readonly id: number
  readonly left: number
}

export let server: PostgresServer
export let database: string
export let rival: PostgresConnection
export let looker: PostgresConnection
export let sql: postgres.Sql
export let pool: pg.Pool

/** For the tests of one suite. Three tickets with ten left each, before each test. */
export function withTickets(source: PostgresSource): void {
  beforeAll(async () => {
    server = await PostgresServer.start(source)
    database = await server.database()
    ;[rival, looker] = [await server.connect(database), await server.connect(database)]
    pool = new pg.Pool({ connectionString: database, max: 4 })
    // Connections that are being closed may still be told that their database is dropped.
    pool.on('error', () => undefined)
    pool.on('connect', (client) => client.on('error', () => undefined))
    sql = postgres(database, { max: 2, onnotice: () => undefined })
    await rival.query(
      `CREATE TABLE tickets (id int PRIMARY KEY, "left" int NOT NULL, version bigint NOT NULL DEFAULT 1, note text)`,
    )
    return async () => {
      await sql.end()
      await pool.end()
      for (const connection of [rival, looker]) await connection[Symbol.asyncDispose]()
      await server.drop(database)
      await server[Symbol.asyncDispose]()
    }
  })

  beforeEach(async () => {
    await rival.query(`TRUNCATE tickets; INSERT INTO tickets SELECT n, 10 FROM generate_series(1, 3) n`)
  })
}
