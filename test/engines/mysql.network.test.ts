/**
 * The way to a MariaDB server, cut, slowed and swallowed: the cases that hold for every SQL server, and those about
 * its listening connection and about what cannot be mended.
 */
import { connect, type Socket } from 'node:net'
import { createPool, type Pool } from 'mysql2/promise'
import { expect, test, vi } from 'vitest'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnMariadb } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'
import { MysqlDatabase } from './mysql-database.ts'
import { LIMIT, withDatabase } from './sql-database.ts'
import { sqlNetworkCases } from './sql-network.ts'

await describeServer('the way to MariaDB', findOwnMariadb, (source) => {
  const tests = withDatabase(() => MysqlDatabase.start(source))

  sqlNetworkCases(tests)

  /** Each connection asks where to; only the listening one, which comes first, is led through the proxy. */
  const poolThatListensThroughProxy = (): { pool: Pool; sockets: readonly Socket[] } => {
    const { server } = tests.database()
    const sockets: Socket[] = []
    const stream = (): Socket => {
      const socket = connect(sockets.length === 0 ? tests.proxy().port : server.port, '127.0.0.1')
      sockets.push(socket)
      return socket
    }
    return { pool: createPool({ uri: server.url, stream }), sockets }
  }

  test('a listening connection that is dead without having ended is found out by what it missed, and made anew', async () => {
    const near = await tests.open({ ttl: '20s' })
    const { pool, sockets } = poolThatListensThroughProxy()
    const locks = createLocks(mysql({ client: pool }), { ttl: '3s' })
    tests.keep(locks)
    const lease = await near.mutex('key').acquire()
    const first = locks.mutex('key').acquire()
    await tests.untilInLine(near, 'key', 2)
    expect(tests.proxy().size).toBe(1)
    tests.proxy().blackHole()
    await lease.release()
    await (await first).release()
    // What it missed was noticed by its renewal; it cannot be woken, so it is cut.
    await vi.waitFor(() => expect(sockets[0]?.destroyed).toBe(true), LIMIT)
    await vi.waitFor(async () => expect(await tests.database().listening()).toHaveLength(2), LIMIT)
    await locks.close()
    await pool.end()
  })

  test('a waiter whose renewal has failed finds out such a connection as well', async () => {
    const { server } = tests.database()
    const { pool, sockets } = poolThatListensThroughProxy()
    await using near = await openMysql(server.url, { listen: false })
    const engine = mysql({ client: pool })
    const hand = await server.connect(server.rootUrl?.replace('/mysql', '/holdfast'))
    try {
      await engine.subscribe(() => undefined)
      const [holder, waiter] = [newClaim('key'), newClaim('key')]
      await near.enter([holder])
      expect(await engine.enter([waiter])).toMatchObject([{ state: 'waiting' }])
      await vi.waitFor(async () => expect(await tests.database().listening()).toHaveLength(1), LIMIT)
      await hand.query('begin')
      await hand.query(`select 1 from holdfast_line where k = 'key' for update`)
      expect(await engine.renew([waiter])).toMatchObject([{ state: 'failed' }])
      await hand.query('commit')
      tests.proxy().blackHole()
      await near.leave([holder])
      expect(await engine.renew([waiter])).toMatchObject([{ state: 'held' }])
      await vi.waitFor(() => expect(sockets[0]?.destroyed).toBe(true), LIMIT)
    } finally {
      hand.destroy()
      await engine[Symbol.asyncDispose]()
      await pool.end()
    }
  })

  test('a wrong password, and a database that is not there, are told at once, and not tried again', async () => {
    const { url } = tests.database()
    for (const wrong of [url.replace('secret', 'wrong'), url.replace('/holdfast', '/nowhere')]) {
      const locks = tests.keep(createLocks(await openMysql(wrong), { ttl: '20s' }))
      await expect(locks.mutex('key').acquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: false })
    }
  })
})
