/**
 * A connection to MariaDB that was brought, and what is set or prepared on it: none of that is relied on, and none of
 * it changed.
 */

import { createConnection, createPool, type RowDataPacket } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { mysql } from '../../src/engines/mysql/index.ts'
import { createLocks } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'

await describeServer('a connection to MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer

  beforeAll(async () => {
    server = await MariadbServer.start(source)
  })

  afterAll(() => server[Symbol.asyncDispose]())

  test('a connection is given back as it was', async () => {
    const settings = `select @@autocommit as a, @@tx_isolation as b, @@sql_mode as c, @@innodb_lock_wait_timeout as d, @@time_zone as e, @@in_transaction as f`
    const pool = createPool({ uri: server.url, connectionLimit: 1 })
    await pool.query(`set innodb_lock_wait_timeout = 17, time_zone = '+03:00'`)
    const [before] = await pool.query(settings)
    const locks = createLocks(mysql({ client: pool, name: 'given_back' }), { ttl: '60s' })
    const lease = await locks.mutex('key').acquire()
    const waiting = locks.mutex('key').acquire()
    await Promise.all(Array.from({ length: 20 }, (_, index) => locks.mutex(`${index}`).acquire()))
    await lease.release()
    await (await waiting).release()
    expect((await pool.query(settings))[0]).toEqual(before)
    await locks.close()
    await pool.end()
  })

  test('a server that cannot use a prepared statement any more is sent the text, and it is prepared anew', async () => {
    const connection = await createConnection(server.url)
    const engine = mysql({ client: connection, listen: false, name: 'unprepared' })
    const claim = newClaim('key')
    const prepared = async (): Promise<number> => {
      const [[row]] = await connection.query<RowDataPacket[]>(`show session status like 'Com_stmt_prepare'`)
      return Number(row?.Value)
    }
    await engine.enter([claim])
    // In the words of the server, and once: when that happens by itself is a matter of luck.
    await connection.query(`create trigger once before update on unprepared_line for each row
      if @told is null then
        set @told = true;
        signal sqlstate 'HY000' set mysql_errno = 1615, message_text = 'Prepared statement needs to be re-prepared';
      end if`)
    await connection.query('set @told = true')
    await engine.renew([claim])
    const before = await prepared()
    await engine.renew([claim])
    expect(await prepared()).toBe(before)
    await connection.query('set @told = null')
    expect(await engine.renew([claim])).toMatchObject([{ state: 'held' }])
    expect(await prepared()).toBe(before)
    await engine.renew([claim])
    expect(await prepared()).toBe(before + 1)
    await engine[Symbol.asyncDispose]()
    await connection.end()
  })

  test('a client without a database is told so at once, and not when its patience is over', async () => {
    const { hostname: host, port, username: user, password } = new URL(server.url)
    const pool = createPool({ host, port: Number(port), user, password })
    const locks = createLocks(mysql({ client: pool }), { ttl: '60s' })
    await expect(locks.mutex('key').acquire()).rejects.toMatchObject({ code: 'ENGINE', transient: false })
    await locks.close()
    await pool.end()
  })

  test('a name with a question mark in it is not taken for a place in a statement that is sent as text', async () => {
    await server.asRoot('create database `a?b`')
    await server.asRoot('grant all on `a?b`.* to public')
    await server.asRoot('set global max_prepared_stmt_count = 0')
    const pool = createPool({ uri: server.url.replace(/\/[^/]*$/, '/a%3Fb') })
    const locks = createLocks(mysql({ client: pool, listen: false }), { ttl: '60s' })
    const lease = await locks.mutex('key').acquire()
    expect(await lease.release()).toBe(true)
    await locks.close()
    await pool.end()
    await server.asRoot('set global max_prepared_stmt_count = default')
  })

  test.each([1, 2])(
    'where a transaction begins when one ends, or a connection ends with it (%i), a call that fails does neither',
    async (type) => {
      const connection = await createConnection(server.url)
      await connection.query(`set completion_type = ${type}`)
      const engine = mysql({ client: connection, listen: false, name: 'completed' })
      await engine.inspect('key')
      const hand = await server.connect()
      await hand.query(
        `insert into completed_line (k, token, due_at, weight, lim, ttl, since) values ('key', 1, 0, 1, 1, 1, 1)`,
      )
      await hand.query('begin')
      await hand.query('select 1 from completed_line for update')
      await expect(engine.evict('key', 1n, 'now')).rejects.toMatchObject({ outcome: 'not-applied' })
      expect((await connection.query('select @@in_transaction as open'))[0]).toEqual([{ open: 0 }])
      await hand.query('delete from completed_line')
      await hand.query('commit')
      hand.destroy()
      await engine[Symbol.asyncDispose]()
      await connection.end()
    },
  )

  test('without autocommit, no look leaves a transaction open on the connection', async () => {
    const connection = await createConnection(server.url)
    await connection.query('set autocommit = 0')
    const engine = mysql({ client: connection, listen: false, name: 'looked' })
    const claims = ['a', 'b', 'c'].map((key) => newClaim(key))
    const open = async (): Promise<unknown> => (await connection.query('select @@in_transaction as open'))[0]
    await engine.enter(claims)
    await engine.inspect('a')
    expect(await open()).toEqual([{ open: 0 }])
    // One is of a line that has no row: a plain statement cannot answer for all of them.
    expect(await engine.leave([...claims, { key: 'nobody', id: 'd'.repeat(32) }])).toEqual([true, true, true, false])
    expect(await open()).toEqual([{ open: 0 }])
    await engine[Symbol.asyncDispose]()
    await connection.end()
  })

  test('where an empty text is null, a holder without a name is one all the same, alone and in a crowd', async () => {
    const connection = await createConnection(server.url)
    await connection.query(`set sql_mode = 'EMPTY_STRING_IS_NULL'`)
    const engine = mysql({ client: connection, listen: false, name: 'nameless' })
    const claim = { key: 'key', holder: '', weight: 1, limit: 1, ttlMs: 60_000, wait: true }
    await engine.enter([{ ...claim, id: 'a'.repeat(32) }])
    expect((await engine.inspect('key')).entries).toMatchObject([{ holder: '' }])
    expect(await engine.enter([{ ...claim, id: 'b'.repeat(32) }])).toMatchObject([{ state: 'waiting' }])
    expect((await engine.inspect('key')).entries).toMatchObject([{ holder: '' }, { holder: '' }])
    await engine[Symbol.asyncDispose]()
    await connection.end()
  })
})
