/**
 * Truths about PostgreSQL and PgBouncer that we lean on, asked of the real servers. When one of these fails after an
 * upgrade, an engine is wrong before its own tests say so.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { beforeAll, expect, test, vi } from 'vitest'
import { findPgBouncer, PgBouncer } from '../servers/pgbouncer.ts'
import { findOwnPostgres, findPostgres, type PostgresConnection, PostgresServer } from '../servers/postgres.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer, present } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('PostgreSQL', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  let one: PostgresConnection
  let other: PostgresConnection

  beforeAll(async () => {
    server = await PostgresServer.start(source)
    database = await server.database()
    ;[one, other] = [await server.connect(database), await server.connect(database)]
    return async () => {
      for (const connection of [one, other]) await connection[Symbol.asyncDispose]()
      await server.drop(database)
      await server[Symbol.asyncDispose]()
    }
  })

  /** Until some other connection waits for a lock. */
  async function untilBlocked(): Promise<void> {
    const blocked = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
    await using looker = await server.connect(database)
    await vi.waitFor(async () => expect(await looker.value(blocked)).toBe(1), LIMIT)
  }

  test('clock_timestamp() goes on within a statement and now() stands still within a transaction', async () => {
    const sql = `SELECT clock_timestamp() AS a, now() AS c, pg_sleep(0.01), clock_timestamp() AS b, now() AS d`
    const [row] = await one.query(sql)
    expect(Number(row?.b) - Number(row?.a)).toBeGreaterThanOrEqual(10)
    expect(row?.c).toEqual(row?.d)
  })

  test('a statement that waited for a row sees it as it is now, and all other rows as they were when it began', async () => {
    await one.query(
      `CREATE TABLE line (key text PRIMARY KEY, n int); CREATE TABLE entry (key text, who text); INSERT INTO line VALUES ('a', 0)`,
    )
    await one.query('BEGIN; SELECT 1 FROM line FOR UPDATE')
    const asked = other.query(
      `SELECT n, (SELECT count(*)::int FROM entry) AS entries FROM line WHERE key = 'a' FOR UPDATE`,
    )
    await untilBlocked()
    await one.query(`UPDATE line SET n = 1; INSERT INTO entry VALUES ('a', 'a waiter'); COMMIT`)
    expect(await asked).toEqual([{ n: 1, entries: 0 }])
  })

  test('each statement of a function has a snapshot of its own', async () => {
    await one.query(`
      CREATE FUNCTION look() RETURNS int LANGUAGE plpgsql AS $$
      BEGIN
        PERFORM 1 FROM line WHERE key = 'a' FOR UPDATE;
        RETURN (SELECT count(*) FROM entry);
      END $$;
      TRUNCATE entry`)
    await one.query('BEGIN; SELECT 1 FROM line FOR UPDATE')
    const asked = other.value('SELECT look()')
    await untilBlocked()
    await one.query(`INSERT INTO entry VALUES ('a', 'a waiter'); COMMIT`)
    expect(await asked).toBe(1)
  })

  test('one INSERT ... ON CONFLICT cannot touch a row twice', async () => {
    const twice = `INSERT INTO line VALUES ('twice', 1), ('twice', 2) ON CONFLICT (key) DO UPDATE SET n = excluded.n`
    await expect(one.query(twice)).rejects.toMatchObject({ code: '21000' })
  })

  test('a WITH that writes is carried out to its end, though its rows are not read, and the statement finds no row', async () => {
    const adding = `INSERT INTO entry VALUES ('with', 'one')`
    await one.query(`WITH added AS (${adding}) UPDATE line SET n = 1 WHERE key = 'nowhere'`)
    await one.query(`WITH added AS (${adding}) SELECT 1 LIMIT 0`)
    expect(await one.value(`SELECT count(*)::int FROM entry WHERE key = 'with'`)).toBe(2)
  })

  test('an ON CONFLICT that waited has the newest version of its row, and a sub-select in it that of its begin', async () => {
    await one.query(`INSERT INTO line VALUES ('version', 1)`)
    await one.query(`BEGIN; UPDATE line SET n = 2 WHERE key = 'version'`)
    const asked = other.query(`INSERT INTO line AS newest VALUES ('version', 0) ON CONFLICT (key) DO UPDATE
      SET n = newest.n * 10 + (SELECT n FROM line WHERE key = 'version')
        + CASE WHEN newest.xmin = (SELECT xmin FROM line WHERE key = 'version') THEN 100 ELSE 0 END RETURNING n`)
    await untilBlocked()
    await one.query('COMMIT')
    expect(await asked).toEqual([{ n: 21 }])
  })

  test('a sequence does not go back when a transaction does', async () => {
    await one.query('CREATE SEQUENCE tokens')
    await one.query('BEGIN')
    const before = Number(await one.value(`SELECT nextval('tokens')`))
    await one.query('ROLLBACK')
    expect(Number(await one.value(`SELECT nextval('tokens')`))).toBeGreaterThan(before)
  })

  test('lock_timeout ends a wait for a row with 55P03 and changes nothing', async () => {
    await one.query('BEGIN; SELECT 1 FROM line FOR UPDATE')
    const impatient = `BEGIN; SET LOCAL lock_timeout = '50ms'; UPDATE line SET n = 7`
    await expect(other.query(impatient)).rejects.toMatchObject({ code: '55P03' })
    await other.query('ROLLBACK')
    await one.query('COMMIT')
  })

  test('text under the "C" collation is compared byte by byte, and cannot hold NUL', async () => {
    const keys = ['a', 'A', 'a ', 'á', 'a\u0301', 'a/b', '{}x', 'a%', 'a_']
    const distinct = await one.value(`SELECT count(DISTINCT k COLLATE "C")::int FROM unnest($1::text[]) k`, [keys])
    expect(distinct).toBe(keys.length)
    await expect(one.query('SELECT $1::text', ['a\0b'])).rejects.toMatchObject({ code: '22021' })
  })

  test('a notification comes when its transaction commits, once however often it was sent', async () => {
    await other.query('LISTEN news')
    const heard: unknown[] = []
    const listen = ({ payload }: { payload?: string | undefined }): unknown => heard.push(payload)
    other.client.on('notification', listen)
    await one.query(`BEGIN; NOTIFY news, 'same'; NOTIFY news, 'same'`)
    await other.query('SELECT 1')
    expect(heard).toEqual([])
    await one.query(`COMMIT`)
    await one.query(`NOTIFY news, 'last'`)
    await vi.waitFor(() => expect(heard).toContain('last'), LIMIT)
    expect(heard).toEqual(['same', 'last'])
    other.client.off('notification', listen)
  })

  test('CREATE ... IF NOT EXISTS from several connections at once does not fail under an advisory lock', async () => {
    const connections = await Promise.all(Array.from({ length: 10 }, () => server.connect(database)))
    const make = 'CREATE TABLE IF NOT EXISTS made (x int); CREATE SEQUENCE IF NOT EXISTS counted'
    const locked = `BEGIN; SELECT pg_advisory_xact_lock(1); ${make}; COMMIT`
    for (let round = 0; round < 10; round += 1) {
      await one.query('DROP TABLE IF EXISTS made; DROP SEQUENCE IF EXISTS counted')
      await Promise.all(connections.map((connection) => connection.query(locked)))
    }
    await Promise.all(connections.map((connection) => connection[Symbol.asyncDispose]()))
  })
})

await describeServer('a PostgreSQL of our own', findOwnPostgres, (source) => {
  let server: PostgresServer
  let owned: ServerProcess

  beforeAll(async () => {
    server = await PostgresServer.start(source)
    owned = server.process as ServerProcess
    return () => server[Symbol.asyncDispose]()
  })

  test('killed and started again, it has what was committed, and its sequences go on', async () => {
    await using before = await server.connect()
    await before.query('CREATE TABLE kept (x int); CREATE SEQUENCE tokens')
    const token = Number(await before.value(`SELECT nextval('tokens')`))
    await before.query('INSERT INTO kept VALUES (1)')
    const ended = new Promise((resolve) => before.client.once('end', resolve))
    await owned.kill()
    await ended
    await owned.start()
    await using after = await server.connect()
    expect(await after.value('SELECT count(*)::int FROM kept')).toBe(1)
    expect(Number(await after.value(`SELECT nextval('tokens')`))).toBeGreaterThan(token)
  })

  test('paused, neither old nor new connections are answered until it is resumed', async () => {
    await using connection = await server.connect()
    owned.pause()
    const answered = vi.fn()
    const asked = Promise.all([connection.value('SELECT 1').then(answered), server.connect().then(answered)])
    await sleep(100)
    expect(answered).not.toHaveBeenCalled()
    owned.resume()
    await asked
  })

  test('PgBouncer in transaction mode: a prepared statement meets that of another client, and a LISTEN hears nothing', async (context) => {
    const program = present(await findPgBouncer(), context)
    // Both share the one connection that the pooler has.
    await using bouncer = await PgBouncer.start(program, server, { poolSize: 1 })
    const url = bouncer.through(server.url)
    await using one = await server.connect(url)
    await using other = await server.connect(url)
    const ask = { name: 'named', text: 'SELECT 1' }
    await one.client.query(ask)
    await expect(other.client.query(ask)).rejects.toMatchObject({ code: '42P05' })
    const heard = vi.fn()
    one.client.on('notification', heard)
    await one.query('LISTEN news')
    await other.query(`NOTIFY news, 'lost'`)
    await one.query('SELECT 1')
    expect(heard).not.toHaveBeenCalled()
  })
})
