/**
 * Rows of ours that a user has locked, by hand or for a backup: what can go on does, and what cannot is told so,
 * and is had afterwards.
 */

import type { Connection, RowDataPacket } from 'mysql2/promise'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks, type Locks, type LocksOptions } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('rows in MariaDB that another transaction has locked', findOwnMariadb, (source) => {
  let server: MariadbServer
  let hand: Connection
  const opened: Locks[] = []

  async function open(options: LocksOptions): Promise<Locks> {
    const locks = createLocks(await openMysql(server.url), options)
    opened.push(locks)
    return locks
  }

  /**
   * Until so many of ours wait for a row. What the table says is a tenth of a second old, counted from the last look.
   */
  const untilBlocked = (count: number): Promise<void> =>
    vi.waitFor(
      async () => {
        const waits = await server.asRoot('select distinct requesting_trx_id from information_schema.innodb_lock_waits')
        expect(waits).toHaveLength(count)
      },
      { ...LIMIT, interval: 150 },
    )

  beforeEach(async () => {
    server = await MariadbServer.start(source)
    hand = await server.connect(server.rootUrl?.replace('/mysql', '/holdfast'))
  })

  afterEach(async () => {
    hand.destroy()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await server[Symbol.asyncDispose]()
  })

  test('a row that another transaction has locked holds up its own line, and no other', async () => {
    const locks = await open({ ttl: '4s' })
    const [stuck, free, third] = await Promise.all(['stuck', 'free', 'third'].map((key) => locks.mutex(key).acquire()))
    await hand.query('begin')
    await hand.query(`select 1 from holdfast_line where k = 'stuck' for update`)
    await vi.waitFor(() => expect(stuck?.signal.aborted).toBe(true), LIMIT)
    expect(free?.held).toBe(true)
    expect(third?.held).toBe(true)
    const keys = ['new', 'stuck', 'newer', 'newest']
    const [taken, refused] = await Promise.allSettled(keys.map((key) => locks.mutex(key).tryAcquire()))
    expect(taken).toMatchObject({ status: 'fulfilled' })
    expect(refused).toMatchObject({
      status: 'rejected',
      reason: { outcome: 'not-applied', message: expect.stringContaining('locked a row') },
    })
    await hand.query('commit')
    await vi.waitFor(async () => expect(await locks.mutex('stuck').tryAcquire()).toBeDefined(), LIMIT)
    expect(free?.held).toBe(true)
  })

  test('a batch of renewals that had to wait does not cut short what was renewed meanwhile', async () => {
    await using engine = await openMysql(server.url, { listen: false })
    const claims = ['a', 'b', 'c'].map((key) => newClaim(key))
    await engine.enter(claims)
    const dueAt = async (): Promise<bigint> => {
      const [rows] = await hand.query<RowDataPacket[]>(
        `select cast(due_at as char) due_at from holdfast_line where k = 'c'`,
      )
      return BigInt(String(rows[0]?.due_at))
    }
    await hand.query('begin')
    await hand.query(`select 1 from holdfast_line where k = 'a' for update`)
    const early = engine.renew(claims)
    await untilBlocked(1)
    await engine.renew(claims.slice(2))
    const renewed = await dueAt()
    await hand.query('commit')
    expect((await early).map(({ state }) => state)).toEqual(['held', 'held', 'held'])
    expect(await dueAt()).toBe(renewed)
  })

  test('releases of which one has to wait for a locked row are of unknown outcome, and the others are done', async () => {
    await using engine = await openMysql(server.url, { listen: false })
    const claims = ['a', 'b', 'c'].map((key) => newClaim(key))
    await engine.enter(claims)
    await hand.query('begin')
    await hand.query(`select 1 from holdfast_line where k = 'b' for update`)
    await expect(engine.leave(claims)).rejects.toMatchObject({ outcome: 'unknown' })
    await hand.query('commit')
    for (const [key, count] of [
      ['a', 0],
      ['b', 1],
      ['c', 0],
    ] as const)
      expect((await engine.inspect(key)).entries).toHaveLength(count)
  })

  test('a line that is locked can be looked at', async () => {
    const locks = await open({ ttl: '60s' })
    await locks.mutex('key').acquire()
    await hand.query('begin')
    await hand.query(`select 1 from holdfast_line where k = 'key' for update`)
    expect((await locks.inspect('key')).entries).toHaveLength(1)
    for await (const line of locks.list()) expect(line).toEqual({ key: 'key', held: 1, waiting: 0 })
  })

  test('in a deadlock with a transaction that locks them in another order, a batch is asked again', async () => {
    const locks = await open({ ttl: '60s' })
    await hand.query('create table ballast (n int primary key)')
    for (const count of [2, 5]) {
      const keys = Array.from({ length: count }, (_, index) => `${count} ${index}`)
      const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()))
      await hand.query('begin')
      // Of two in a deadlock, the one that has changed less is undone.
      await hand.query('insert into ballast select seq from seq_1_to_1000')
      await hand.query(`select 1 from holdfast_line where k = '${keys.at(-1)}' for update`)
      const released = Promise.all(leases.map((lease) => lease.release()))
      await untilBlocked(1)
      await hand.query(`select 1 from holdfast_line where k = '${keys[0]}' for update`)
      await hand.query('rollback')
      expect(await released).toEqual(keys.map(() => true))
      for (const key of keys) expect((await locks.inspect(key)).entries).toEqual([])
    }
    expect((await hand.query(`show status like 'Innodb_deadlocks'`))[0]).toMatchObject([{ Value: '2' }])
  })

  test('a backup that locks all tables for less than a ttl is not noticed, and those who ask meanwhile are served', async () => {
    const locks = await open({ ttl: '6s' })
    const lease = await locks.mutex('key').acquire()
    await hand.query('flush tables with read lock')
    const asked = locks.mutex('other').acquire()
    // Until a renewal has been missed, so that there was something to notice.
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(3500), LIMIT)
    await hand.query('unlock tables')
    expect((await asked).held).toBe(true)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(4000), LIMIT)
    expect(lease.signal.aborted).toBe(false)
    expect(await lease.release()).toBe(true)
  })
})
