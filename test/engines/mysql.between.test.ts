/** What other processes do on a MariaDB server between two steps of ours: each call is answered what is true of it. */

import { createPool, type Pool, type QueryOptions } from 'mysql2/promise'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { type MysqlClient, mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'

/** A pool whose answers come late: `meanwhile` is what happens before, after each statement. */
function slowly(pool: Pool, meanwhile: (sql: string) => Promise<unknown>): MysqlClient {
  return {
    getConnection: async () => {
      const connection = await pool.getConnection()
      return {
        query: async (asked) => {
          try {
            return await connection.query(asked as QueryOptions)
          } finally {
            await meanwhile(asked.sql)
          }
        },
        on: (event, listener) => connection.on(event, listener),
        release: () => connection.release(),
        destroy: () => connection.destroy(),
      }
    },
  }
}

await describeServer('between two steps on MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer

  beforeAll(async () => {
    server = await MariadbServer.start(source)
  })

  afterAll(() => server[Symbol.asyncDispose]())

  /**
   * Until so many of ours wait for a row. What the table says is a tenth of a second old, counted from the last look.
   */
  const untilBlocked = (count: number): Promise<void> =>
    vi.waitFor(
      async () => {
        const waits = await server.asRoot('select distinct requesting_trx_id from information_schema.innodb_lock_waits')
        expect(waits).toHaveLength(count)
      },
      { timeout: 30_000, interval: 150 },
    )

  test.each(['a', 'b', 'c', 'd', 'ab', 'ac', 'bd', 'cd', 'abc', 'abcd', ''])(
    'of releases at once, those whose line was removed (%s) are told so, and the others have left, though other clients come to their lines before it is clear',
    async (removed) => {
      const name = `removed_${removed}`
      await using theirs = await openMysql(server.url, { name, listen: false })
      const claims = ['d', 'b', 'c', 'a'].map((key) => newClaim(key))
      const pool = createPool({ uri: server.url })
      let asked: string[] | undefined
      const client = slowly(pool, async (sql) => {
        if (asked?.push(sql) !== 1) return
        // One is taken by another process, and of another nothing is left.
        await theirs.enter(['b', 'removed', 'd'].map((key) => newClaim(key)))
        await server.asRoot(`delete from holdfast.${name}_line where k = 'c' and due_at = 0`)
      })
      const ours = mysql({ client, name, listen: false })
      await ours.enter(claims)
      await server.asRoot(`delete from holdfast.${name}_line where locate(k, '${removed}') > 0`)
      asked = []
      expect(await ours.leave(claims)).toEqual(claims.map(({ key }) => !removed.includes(key)))
      if (removed === '') expect(asked, 'one statement').toHaveLength(1)
      await ours[Symbol.asyncDispose]()
      await pool.end()
    },
  )

  test('releases at once that have to give way in a deadlock are told what is true when they are tried again', async () => {
    const name = 'given_way'
    const pool = createPool({ uri: server.url, connectionLimit: 1 })
    let leaving = false
    const client = slowly(pool, async () => {
      // By the time of the second attempt nothing is left of the first line.
      if (leaving) await server.asRoot(`delete from holdfast.${name}_line where k = 'a'`)
      leaving = false
    })
    const ours = mysql({ client, name, listen: false })
    const claims = ['a', 'b', 'c'].map((key) => newClaim(key))
    await ours.enter(claims)
    // In the words of the server, and once, when the first row was to change: whose turn it is then is known to the
    // connection.
    await pool.query(`create trigger gives_way before update on ${name}_line for each row
      if @told is null then
        set @told = true;
        signal sqlstate '40001' set mysql_errno = 1213, message_text = 'Deadlock found when trying to get lock';
      end if`)
    leaving = true
    expect(await ours.leave(claims)).toEqual([false, true, true])
    await ours[Symbol.asyncDispose]()
    await pool.end()
  })

  test('an entry that is asked for twice at once is entered once, and lives as long as the later one was told', async () => {
    const name = 'twice'
    await using engine = await openMysql(server.url, { name, listen: false })
    await engine.inspect('key')
    const [claim, other] = [newClaim('key'), newClaim('other', { ttlMs: 50_000 })]
    const hand = await server.connect()
    const now = `timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))`
    // The later call finds no row, and is held up before it makes one: by then an earlier one has, whose entry lives
    // for half as long.
    await hand.query('set session transaction isolation level repeatable read')
    await hand.query('begin')
    await hand.query(`select 1 from ${name}_line where k = 'key' for update`)
    const entered = engine.enter([claim, other])
    await untilBlocked(1)
    await hand.query(`insert into ${name}_line (k, token, due_at, id, holder, client, weight, lim, ttl, since)
      values ('key', ${now}, ${now} + 30000000, x'${claim.id}', 'test', x'00', 1, 1, 60000000, ${now})`)
    await hand.query('commit')
    expect(await entered).toMatchObject([{ state: 'held', heldForMs: 60_000 }, { state: 'held' }])
    const { entries } = await engine.inspect('key')
    expect(entries).toHaveLength(1)
    expect(entries[0]?.remainingMs).toBeGreaterThan(31_000)
    hand.destroy()
  })
})
