/**
 * Clients that users bring: a Pool and a Connection of mysql2, with promises and without, as they are and as users
 * change them.
 */
import * as callbacks from 'mysql2'
import { createConnection, createPool, type Pool, type PoolOptions, type QueryOptions } from 'mysql2/promise'
import { afterAll, beforeAll, describe, expect, it, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { type MysqlClient, mysql } from '../../src/engines/mysql/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { startsMysql } from '../servers/mysql.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer } from '../servers/suite.ts'
import { mysqlWorld } from './mysql-world.ts'
import { giveUpOnFrozen } from './sql-server.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

interface Brought {
  readonly client: MysqlClient
  close(): Promise<unknown>
}

async function poolWith(options: PoolOptions): Promise<Brought> {
  const pool = createPool(options)
  return { client: pool, close: () => pool.end() }
}

/** Every new connection of it does this first. */
function poolAfter(uri: string, ...statements: readonly string[]): Brought {
  const pool = callbacks.createPool({ uri })
  pool.on('connection', (connection) => {
    for (const statement of statements) connection.query(statement)
  })
  return { client: pool, close: () => pool.promise().end() }
}

const CLIENTS: Readonly<Record<string, (uri: string) => Promise<Brought>>> = {
  'a Pool with promises': (uri) => poolWith({ uri }),
  'a Pool with callbacks': async (uri) => {
    const pool = callbacks.createPool(uri)
    return { client: pool, close: () => pool.promise().end() }
  },
  'a Connection with promises': async (uri) => {
    const connection = await createConnection(uri)
    return { client: connection, close: () => connection.end() }
  },
  'a Connection with callbacks': async (uri) => {
    const connection = callbacks.createConnection(uri)
    return { client: connection, close: () => connection.promise().end() }
  },
  'a Pool that reads everything in another way': (uri) =>
    poolWith({
      uri,
      rowsAsArray: true,
      supportBigNumbers: true,
      bigNumberStrings: true,
      dateStrings: true,
      decimalNumbers: true,
      namedPlaceholders: true,
      nestTables: '.',
      typeCast: () => 'changed',
      charset: 'latin1',
      flags: ['-FOUND_ROWS'],
    } as PoolOptions),
  'a Pool that resets each connection that is given back': (uri) =>
    poolWith({ uri, resetOnRelease: true } as PoolOptions),
  'a Pool without autocommit, REPEATABLE READ, impatient': async (uri) =>
    poolAfter(
      uri,
      'set autocommit = 0',
      'set session transaction isolation level repeatable read',
      'set innodb_lock_wait_timeout = 7',
    ),
  'a Pool that is SERIALIZABLE, read-only, and of another mode and zone': async (uri) =>
    poolAfter(
      uri,
      'set session transaction isolation level serializable, read only',
      // What MySQL reads as a comment, only MariaDB has.
      `set sql_mode = concat('ANSI,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH' /*M! , ',ORACLE,SIMULTANEOUS_ASSIGNMENT' */)`,
      `set time_zone = '-11:00'`,
      'set completion_type = 1',
    ),
}

await describeServer('a client of MariaDB that was brought', findOwnMariadb, (source) => {
  let server: MariadbServer

  beforeAll(async () => {
    server = await MariadbServer.start(source)
  })

  afterAll(() => server[Symbol.asyncDispose]())

  const threads = async (): Promise<number> =>
    (await server.asRoot(`select id from information_schema.processlist where user = 'app'`)).length

  test.each(Object.keys(CLIENTS))(
    '%s: locks exclude, wait and are woken, and the client is left open',
    async (name) => {
      const bring = CLIENTS[name] as (uri: string) => Promise<Brought>
      const [one, other] = await Promise.all([bring(server.url), bring(server.url)])
      const [ours, theirs] = [one, other].map(({ client }) => createLocks(mysql({ client }), { ttl: '600s' })) as [
        Locks,
        Locks,
      ]
      const key = `ключ "🔑"\\ ' % ${name}`
      for (let round = 0; round < 3; round += 1) {
        const lease = await ours.mutex(key).acquire()
        expect(await theirs.mutex(key).tryAcquire()).toBeUndefined()
        const waiting = theirs.mutex(key).acquire()
        await vi.waitFor(async () => expect((await ours.inspect(key)).entries).toHaveLength(2), LIMIT)
        await lease.release()
        const next = await waiting
        expect(next.token).toBeGreaterThan(lease.token as bigint)
        expect((await ours.inspect(key)).entries[0]?.token).toBe(next.token)
        await next.release()
      }
      await Promise.all(
        Array.from({ length: 40 }, (_, index) => ours.mutex(`many ${index % 10} ${name}`).using(async () => undefined)),
      )
      await Promise.all([ours.close(), theirs.close()])
      const again = createLocks(mysql({ client: one.client }))
      expect(await again.mutex('again').tryAcquire()).toBeDefined()
      await again.close()
      await Promise.all([one.close(), other.close()])
      await vi.waitFor(async () => expect(await threads()).toBe(0), LIMIT)
    },
  )

  test.each([
    'a Pool with promises',
    'a Pool with callbacks',
    'a Connection with promises',
    'a Connection with callbacks',
  ])(
    '%s: whatever database a connection was sent to since, its lines are those of the database that the client was made for',
    async (name) => {
      const [home, elsewhere] = ['its `home`', 'elsewhere']
      for (const database of [home, elsewhere].map((one) => one.replaceAll('`', '``'))) {
        await server.asRoot(`drop database if exists \`${database}\``)
        await server.asRoot(`create database \`${database}\``)
        await server.asRoot(`grant all on \`${database}\`.* to app@'%'`)
      }
      const { client, close } = await (CLIENTS[name] as (uri: string) => Promise<Brought>)(
        server.url.replace('/holdfast', `/${encodeURIComponent(home)}`),
      )
      const engine = mysql({ client, listen: false })
      const claim = { key: 'key', id: 'a'.repeat(32), holder: 'test', weight: 1, limit: 1, ttlMs: 60_000, wait: false }
      await engine.enter([claim])
      const asked = ('promise' in client ? client.promise() : client) as Pool
      await asked.query(`use ${elsewhere}`)
      expect(await engine.enter([{ ...claim, id: 'b'.repeat(32) }])).toMatchObject([{ state: 'busy' }])
      expect(await engine.leave([claim])).toEqual([true])
      await engine[Symbol.asyncDispose]()
      await close()
      expect(
        await server.asRoot(`select table_name from information_schema.tables where table_schema = '${elsewhere}'`),
      ).toEqual([])
    },
  )

  test('something else is refused', () => {
    for (const client of [undefined, null, {}, 'mysql://', () => undefined]) {
      expect(() => mysql({ client: client as unknown as MysqlClient })).toThrow(TypeError)
    }
  })

  test('without autocommit, a statement that waited in vain for a locked row leaves nothing locked on the connection', async (context) => {
    if (startsMysql(source)) context.skip('MySQL cannot limit how long one statement waits: our own limit comes first')
    const pool = poolAfter(server.url, 'set autocommit = 0')
    const engine = mysql({ client: pool.client, listen: false, name: 'in_vain' })
    const claim = { id: 'a'.repeat(32), holder: 'test', weight: 1, limit: 1, ttlMs: 60_000, wait: true }
    await engine.enter([{ ...claim, key: 'other' }])
    const hand = await server.connect()
    await hand.query('begin')
    await hand.query(
      `insert into in_vain_line (k, token, due_at, weight, lim, ttl, since) values ('key', 1, 0, 1, 1, 1, 1)`,
    )
    await expect(engine.enter([{ ...claim, key: 'key' }])).rejects.toMatchObject({ outcome: 'not-applied' })
    await hand.query('rollback')
    await hand.query('set innodb_lock_wait_timeout = 1')
    await hand.query('update in_vain_meta set floor = floor + 1')
    hand.destroy()
    await engine[Symbol.asyncDispose]()
    await pool.close()
  })

  test('a single connection on a frozen server: calls are given up in time, nothing is sent behind them, and all goes on afterwards', async () => {
    const connection = await createConnection(server.url)
    const locks = createLocks(mysql({ client: connection }), { ttl: '2s', callTimeout: '300ms' })
    await giveUpOnFrozen(locks, server.process as ServerProcess)
    await locks.close()
    await connection.end()
  })
})

/** What depends on the client: batches, keys, wake-ups, answers, and what is left. */
const ASKED = ['keys', 'batches', 'looking', 'waiting', 'eviction', 'sharing']

/** A pool on a server that does not understand what only MariaDB does. */
function withoutSetStatement(pool: Pool): MysqlClient {
  return {
    getConnection: async () => {
      const connection = await pool.getConnection()
      return {
        query: (asked) =>
          connection.query({
            ...asked,
            sql: asked.sql.replace(/^SET STATEMENT/, 'SET NOTHING OF THAT KIND'),
          } as QueryOptions),
        on: (event, listener) => connection.on(event, listener),
        release: () => connection.release(),
        destroy: () => connection.destroy(),
      }
    },
  }
}

await describeServer('MariaDB without a listening connection, asked as MySQL is', findOwnMariadb, (source) => {
  const makeWorld = async () => {
    const server = await MariadbServer.start(source)
    const pool = createPool({ uri: server.url })
    const client = withoutSetStatement(pool)
    return await mysqlWorld(server, { engine: () => mysql({ client, listen: false }), close: () => pool.end() })
  }
  conformance({ describe, it, afterAll }, 'mysql', makeWorld, {
    only: (name, property) => ASKED.includes(property) && !/and not (at a poll|after a ttl)|not left to/.test(name),
  })
})
