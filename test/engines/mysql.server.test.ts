/**
 * What befalls a MariaDB server, and what its clients make of it: the cases that hold for every SQL server, and those
 * about statements that are killed, a server that refuses writes, and connections that are scarce.
 */
import { createPool } from 'mysql2/promise'
import { expect, test, vi } from 'vitest'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks, EngineError, type Locks } from '../../src/index.ts'
import { findOwnMariadb } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'
import { MysqlDatabase } from './mysql-database.ts'
import { countTogether, LIMIT, withDatabase } from './sql-database.ts'
import { sqlServerCases } from './sql-server.ts'

await describeServer('a MariaDB server', findOwnMariadb, (source) => {
  const tests = withDatabase(() => MysqlDatabase.start(source))
  const asRoot = (statement: string): Promise<readonly unknown[]> => tests.database().server.asRoot(statement)

  sqlServerCases(tests)

  test('has its statements killed, again and again, under load: no update is lost, and nothing stays locked', async () => {
    const counting = countTogether([await tests.open({ ttl: '20s' }), await tests.open({ ttl: '20s' })], 6)
    while (counting.done() < 200) {
      const threads = await tests.database().threads(`user = 'app' and command = 'Query'`)
      for (const id of threads) await asRoot(`kill query ${id}`).catch(() => undefined)
    }
    await counting.stop()
  })

  test('refuses writes for a while, as a replica does: what is asked meanwhile waits, and a try says why', async () => {
    const locks = await tests.open({ ttl: '10s' })
    const lease = await locks.mutex('key').acquire()
    await asRoot('set global read_only = 1')
    const refusal = await locks
      .mutex('other')
      .tryAcquire()
      .catch((error: unknown) => error)
    expect(refusal).toMatchObject({
      outcome: 'not-applied',
      transient: true,
      message: expect.stringContaining('connect to the primary'),
    })
    const asked = locks.mutex('other').acquire()
    await asRoot('set global read_only = 0')
    expect((await asked).held).toBe(true)
    expect(lease.held).toBe(true)
  })

  test('where an empty text is null, waiters are woken as everywhere', async () => {
    await asRoot(`set global sql_mode = 'EMPTY_STRING_IS_NULL'`)
    await expectHandOff(await tests.open({ ttl: '60s' }), await tests.open({ ttl: '60s' }))
  })

  test('has several users, who may not wake each other: waiters look', async () => {
    await asRoot(`create user other@'%' identified by 'secret'`)
    await asRoot(`grant all on holdfast.* to other@'%'`)
    const one = await tests.open({ ttl: '60s' })
    const other = tests.keep(
      createLocks(await openMysql(tests.database().url.replace('//app:', '//other:')), { ttl: '60s' }),
    )
    await expectHandOff(one, other)
    await expectHandOff(other, one)
  })

  /** Long before the waiter's next renewal. */
  async function expectHandOff(one: Locks, other: Locks): Promise<void> {
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire({ wait: '15s' })
    await tests.untilInLine(one, 'key', 2)
    await lease.release()
    await (await waiting).release()
  }

  test('has no connection to spare for listening, or only that one: calls come first, waiters poll, and are served', async () => {
    await asRoot(`alter user app@'%' with max_user_connections 1`)
    const pool = createPool({ uri: tests.database().url, connectionLimit: 1 })
    const locks = createLocks(mysql({ client: pool }), { ttl: '20s' })
    const lease = await locks.mutex('key').acquire()
    const waiting = locks.mutex('key').acquire()
    await tests.untilInLine(locks, 'key', 2)
    await lease.release()
    await (await waiting).release()
    await locks.close()
    await pool.end()
  })

  test('a pool whose connections are all taken: a try is answered in time, nothing is sent late, and all goes on afterwards', async () => {
    const pool = createPool({ uri: tests.database().url, connectionLimit: 2 })
    const locks = createLocks(mysql({ client: pool }), { ttl: '2s', callTimeout: '300ms' })
    const first = await locks.mutex('first').acquire()
    await first.release()
    const taken = [await pool.getConnection(), await pool.getConnection()]
    await expect(locks.mutex('key').tryAcquire()).rejects.toThrow(EngineError)
    for (const connection of taken) connection.release()
    await pool.query('select 1')
    expect(await asRoot('select hex(k) from holdfast.holdfast_line where due_at > 0')).toEqual([])
    expect((await locks.mutex('key').acquire()).held).toBe(true)
    await locks.close()
    await pool.end()
  })

  test('a hundred who wait have one connection more between them, and are renewed together', async () => {
    const holding = await tests.open({ ttl: '300s' })
    const pool = createPool({ uri: tests.database().url, connectionLimit: 2 })
    const engine = mysql({ client: pool })
    const renew = vi.spyOn(engine, 'renew')
    const waiting = createLocks(engine, { ttl: '3s' })
    const keys = Array.from({ length: 100 }, (_, index) => `idle ${index}`)
    await Promise.all(keys.map((key) => holding.mutex(key).acquire()))
    const cancel = new AbortController()
    const waiters = Promise.allSettled(keys.map((key) => waiting.mutex(key).acquire({ signal: cancel.signal })))
    for (const key of keys) await tests.untilInLine(holding, key, 2)
    await vi.waitFor(() => expect(renew.mock.calls.length).toBeGreaterThan(2), LIMIT)
    renew.mockClear()
    await vi.waitFor(() => expect(renew.mock.calls.length).toBeGreaterThan(3), LIMIT)
    for (const [places] of renew.mock.calls) expect(places.length, 'renewed together').toBeGreaterThan(50)
    expect(await tests.database().listening()).toHaveLength(2)
    cancel.abort(new Error('enough'))
    await waiters
    await waiting.close()
    await pool.end()
  })
})
