/** Clients that users bring: a Pool and a Client of pg, and postgres.js, as they are and as users change them. */
import pg from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, describe, expect, it, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { type PostgresClient, type PostgresEngine, postgres } from '../../src/engines/postgres/index.ts'
import { createLocks } from '../../src/index.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer } from '../servers/suite.ts'
import { postgresWorld } from './postgres-world.ts'
import { giveUpOnFrozen } from './sql-server.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

interface Brought {
  readonly client: PostgresClient
  close(): Promise<unknown>
}

const CLIENTS: Readonly<Record<string, (url: string) => Promise<Brought>>> = {
  'a Pool of pg': async (connectionString) => {
    const pool = new pg.Pool({ connectionString })
    return { client: pool, close: () => pool.end() }
  },
  'a Client of pg': async (connectionString) => {
    const client = new pg.Client({ connectionString })
    await client.connect()
    return { client, close: () => client.end() }
  },
  'postgres.js': async (url) => {
    const sql = postgresJs(url, { onnotice: () => undefined })
    return { client: sql, close: () => sql.end() }
  },
  'postgres.js of one connection, with names in camel case': async (url) => {
    const sql = postgresJs(url, { max: 1, transform: postgresJs.camel, onnotice: () => undefined })
    return { client: sql, close: () => sql.end() }
  },
}

await describeServer('a client of PostgreSQL that was brought', findOwnPostgres, (source) => {
  let server: PostgresServer
  let database: string

  beforeAll(async () => {
    server = await PostgresServer.start(source)
    database = await server.database()
  })

  afterAll(() => server[Symbol.asyncDispose]())

  async function connections(): Promise<number> {
    await using connection = await server.connect()
    return Number(
      await connection.value(`SELECT count(*) FROM pg_stat_activity WHERE datname = $1`, [
        new URL(database).pathname.slice(1),
      ]),
    )
  }

  test.each(Object.keys(CLIENTS))(
    '%s: locks exclude, wait and are woken, and the client is left open',
    async (name) => {
      const bring = CLIENTS[name] as (url: string) => Promise<Brought>
      const [one, other] = await Promise.all([bring(database), bring(database)])
      const [ours, theirs] = [one, other].map(({ client }) => createLocks(postgres({ client }), { ttl: '600s' })) as [
        ReturnType<typeof createLocks>,
        ReturnType<typeof createLocks>,
      ]
      for (let round = 0; round < 3; round += 1) {
        const lease = await ours.mutex('ключ "🔑"\\').acquire()
        expect(await theirs.mutex('ключ "🔑"\\').tryAcquire()).toBeUndefined()
        const waiting = theirs.mutex('ключ "🔑"\\').acquire()
        await vi.waitFor(async () => expect((await ours.inspect('ключ "🔑"\\')).entries).toHaveLength(2), LIMIT)
        await lease.release()
        const next = await waiting
        expect(next.token).toBeGreaterThan(lease.token as bigint)
        await next.release()
      }
      await Promise.all(
        Array.from({ length: 30 }, (_, index) => ours.mutex(`many ${index % 10}`).using(async () => undefined)),
      )
      await Promise.all([ours.close(), theirs.close()])
      const again = createLocks(postgres({ client: one.client }))
      expect(await again.mutex('again').tryAcquire()).toBeDefined()
      await again.close()
      await Promise.all([one.close(), other.close()])
      await vi.waitFor(async () => expect(await connections()).toBe(0), LIMIT)
    },
  )

  test('whatever users do to the types of pg, tokens stay whole', async () => {
    const types = { getTypeParser: () => (value: string) => Number(value) || 'changed' }
    const pool = new pg.Pool({ connectionString: database, types: types as unknown as pg.CustomTypesConfig })
    const locks = createLocks(postgres({ client: pool }))
    const lease = await locks.mutex('key').acquire()
    expect(lease.token).toBe((await locks.inspect('key')).entries[0]?.token)
    expect(await lease.release()).toBe(true)
    await locks.close()
    await pool.end()
  })

  test('something else is refused', () => {
    for (const client of [undefined, null, {}, 'postgres://', () => undefined]) {
      expect(() => postgres({ client: client as unknown as PostgresClient })).toThrow(TypeError)
    }
    expect(() => postgres({ client: new pg.Pool(), listenUrl: 'redis://' })).toThrow(TypeError)
  })

  test('postgres.js on a frozen server: a call is given up in time, and all goes on afterwards', async () => {
    const sql = postgresJs(database, { max: 2, onnotice: () => undefined })
    const engine: PostgresEngine = postgres({ client: sql })
    const locks = createLocks(engine, { ttl: '2s', callTimeout: '300ms' })
    await giveUpOnFrozen(locks, server.process as ServerProcess)
    await locks.close()
    await sql.end()
  })
})

/** What depends on the client: batches, keys, wake-ups, answers, and what is left. */
const ASKED = ['keys', 'batches', 'looking', 'waiting', 'eviction', 'sharing']

await describeServer('PostgreSQL by way of postgres.js', findOwnPostgres, (source) => {
  const makeWorld = async () =>
    await postgresWorld(await PostgresServer.start(source), (database) => {
      const sql = postgresJs(database, { max: 5, onnotice: () => undefined })
      return { engine: () => postgres({ client: sql }), close: () => sql.end() }
    })
  conformance({ describe, it, afterAll }, 'postgres', makeWorld, { only: (_, property) => ASKED.includes(property) })
})
