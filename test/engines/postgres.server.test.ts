/**
 * What befalls a PostgreSQL server, and what its clients make of it: the cases that hold for every SQL server, and
 * those about its disk, its replicas, its settings and its indexes.
 */
import pg from 'pg'
import { expect, test, vi } from 'vitest'
import type { Claim, Engine } from '../../src/core/engine.ts'
import { openPostgres, postgres } from '../../src/engines/postgres/index.ts'
import { createLocks } from '../../src/index.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { PostgresDatabase } from './postgres-database.ts'
import { LIMIT, withDatabase } from './sql-database.ts'
import { sqlServerCases } from './sql-server.ts'

await describeServer('a PostgreSQL server', findOwnPostgres, (source) => {
  const tests = withDatabase(() => PostgresDatabase.start(source))
  const tell = (statement: string): Promise<readonly Record<string, unknown>[]> => tests.database().tell(statement)

  const claim = (key: string, id: string): Claim => ({
    key,
    id,
    holder: 'h',
    weight: 1,
    limit: 1,
    ttlMs: 60_000,
    wait: true,
  })

  sqlServerCases(tests)

  test('is killed in the moment of a hand-off, before that is on the disk: no other client gets in, and the line does not stand still', async () => {
    await tests.replace(() => PostgresDatabase.start(source, { settings: { wal_writer_delay: '10s' } }))
    const [one, other, third] = [
      await tests.open({ ttl: '600s' }),
      await tests.open({ ttl: '600s' }),
      await tests.open({ ttl: '600s' }),
    ]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await tests.untilInLine(one, 'key', 2)
    await lease.release()
    const next = await waiting
    await tests.server().kill()
    await tests.server().start()
    expect(await third.mutex('key').tryAcquire()).toBeUndefined()
    // The one that released has a lease of ten minutes there again, unless it releases once more.
    await vi.waitFor(async () => {
      const { entries } = await third.inspect('key')
      expect(entries.map(({ token, state }) => [token, state])).toEqual([[next.token, 'held']])
    }, LIMIT)
    expect(await next.release()).toBe(true)
  })

  test('a row that another transaction has locked holds up its own line, and no other', async () => {
    const locks = await tests.open({ ttl: '2s' })
    const [stuck, free] = await Promise.all([locks.mutex('stuck').acquire(), locks.mutex('free').acquire()])
    await using hand = await tests.database().server.connect(tests.database().url)
    await hand.query('BEGIN')
    await hand.query(`SELECT 1 FROM holdfast_line WHERE key = 'stuck' FOR UPDATE`)
    await vi.waitFor(() => expect(stuck.signal.aborted).toBe(true), LIMIT)
    expect(free.held).toBe(true)
    const [taken, refused] = await Promise.allSettled([
      locks.mutex('new').tryAcquire(),
      locks.mutex('stuck').tryAcquire(),
    ])
    expect(taken).toMatchObject({ status: 'fulfilled' })
    expect(refused).toMatchObject({
      status: 'rejected',
      reason: { outcome: 'not-applied', message: expect.stringContaining('locked a row') },
    })
    await hand.query('COMMIT')
    await vi.waitFor(async () => expect(await locks.mutex('stuck').tryAcquire()).toBeDefined(), LIMIT)
    expect(free.held).toBe(true)
  })

  test('a leave that a locked row holds up does not say that it did nothing where others have left', async () => {
    await using engine = await tests.database().engine()
    const [left, stuck] = [claim('left', 'one'), claim('stuck', 'other')]
    await engine.enter([left, stuck])
    await using hand = await tests.database().server.connect(tests.database().url)
    await hand.query('BEGIN')
    await hand.query(`SELECT 1 FROM holdfast_line WHERE key = 'stuck' FOR UPDATE`)
    await expect(engine.leave([left, stuck])).rejects.toMatchObject({ outcome: 'unknown' })
    expect((await engine.inspect('left')).entries).toEqual([])
    await expect(engine.leave([stuck])).rejects.toMatchObject({ outcome: 'not-applied' })
  })

  test.each(['first', 'last'])(
    'has no connection to spare for listening, which is asked for %s: calls come first, waiters poll, are served, and listen later',
    async (asked) => {
      await tell('CREATE ROLE limited LOGIN CONNECTION LIMIT 1')
      await tell('GRANT USAGE, CREATE ON SCHEMA public TO limited')
      const url = new URL(tests.database().url)
      url.username = 'limited'
      const pool = new pg.Pool({ connectionString: url.href, max: 1 })
      if (asked === 'last') await pool.query('SELECT 1')
      const engine = postgres({ client: pool })
      const locks = tests.keep(createLocks(engine, { ttl: '60s' }))
      const lease = await locks.mutex('key').acquire()
      const finding = expect.stringContaining('no connection to listen on')
      expect(await engine.diagnose()).toContainEqual(expect.objectContaining({ status: 'warn', finding }))
      const other = await tests.open({ ttl: '60s' })
      const waiting = locks.mutex('key').acquire()
      await tests.untilInLine(other, 'key', 2)
      await lease.release()
      await (await waiting).release()
      const held = await other.mutex('key').acquire()
      const again = locks.mutex('key').acquire()
      await tests.untilInLine(other, 'key', 2)
      await tell('ALTER ROLE limited CONNECTION LIMIT 2')
      const listening = `SELECT 1 FROM pg_stat_activity WHERE usename = 'limited' AND query LIKE 'LISTEN%'`
      await vi.waitFor(async () => expect(await tell(listening)).toHaveLength(1), LIMIT)
      await held.release()
      await (await again).release()
      await locks.close()
      await pool.end()
    },
  )

  test('the index is used, however the tables grow: no function reads them from end to end', async () => {
    const statistics = `SELECT relname, seq_scan::int, (n_tup_ins + n_tup_del)::int AS written FROM pg_stat_user_tables WHERE relname ~ 'line|entry' ORDER BY 1`
    type Row = { readonly relname: string; readonly seq_scan: number; readonly written: number }
    /** A backend tells what it has done when it ends, at the latest. */
    const after = async (use: (engine: Engine) => Promise<void>, least: number): Promise<readonly Row[]> => {
      const engine = await openPostgres(tests.database().url)
      await use(engine)
      await engine[Symbol.asyncDispose]()
      return await vi.waitFor(async () => {
        const rows = (await tell(statistics)) as unknown as readonly Row[]
        for (const { written } of rows) expect(written).toBeGreaterThanOrEqual(least)
        return rows
      }, LIMIT)
    }
    // When they are made, some rows come and go.
    const before = await after(
      async (engine) => void (await engine.enter([claim('a', '1'), claim('b', '1'), claim('b', '2')])),
      120,
    )
    for (const table of ['line', 'entry']) await tell(`VACUUM ANALYZE holdfast_${table}`)
    const now = await after(async (engine) => {
      for (let round = 0; round < 20; round += 1) {
        const id = String(round)
        await engine.enter([claim('x', id), claim('y', id)])
        await engine.enter([claim('x', `w${id}`)])
        await engine.renew([claim('x', id), claim('y', id), claim('x', `w${id}`)])
        await engine.leave([claim('x', id)])
        await engine.leave([claim('x', `w${id}`), claim('y', id)])
      }
    }, 123)
    const scans = now.map(({ relname, seq_scan }, index) => [relname, seq_scan - (before[index]?.seq_scan ?? 0)])
    expect(scans).toEqual([
      ['holdfast_entry', 0],
      ['holdfast_line', 0],
    ])
  })

  test('a replica refuses, says so, and is asked again', async () => {
    const primary = await tests.open()
    await primary.mutex('key').acquire()
    await using standby = await PostgresServer.start(source, { standbyOf: tests.database().server.url })
    const url = standby.url.replace(/\/postgres$/, `/${tests.database().name}`)
    const there = tests.keep(createLocks(await openPostgres(url), { ttl: '3s' }))
    await vi.waitFor(async () => {
      const refusal = await there
        .mutex('key')
        .tryAcquire()
        .catch((error: unknown) => error)
      expect(refusal).toMatchObject({
        outcome: 'not-applied',
        transient: true,
        message: expect.stringContaining('connect to the primary'),
      })
    }, LIMIT)
    await vi.waitFor(async () => expect((await there.inspect('key')).entries).toHaveLength(1), LIMIT)
  })

  test('connections whose transactions are serializable by default are refused, with what to do', async () => {
    await tell(`ALTER DATABASE ${tests.database().name} SET default_transaction_isolation = 'serializable'`)
    const locks = await tests.open()
    await expect(locks.mutex('key').acquire()).rejects.toMatchObject({
      outcome: 'not-applied',
      transient: false,
      message: expect.stringContaining("'read committed'"),
    })
  })

  test('a server that does not wait for its disk is made to wait, for what must not be lost', async () => {
    await tell(`ALTER DATABASE ${tests.database().name} SET synchronous_commit = off`)
    const locks = await tests.open({ ttl: '60s' })
    const lease = await locks.mutex('key').acquire()
    await tests.server().kill()
    await tests.server().start()
    const other = await tests.open()
    expect(await other.mutex('key').tryAcquire()).toBeUndefined()
    expect(await lease.release()).toBe(true)
  })

  test('a pool whose connections are all taken: a try is answered in time, nothing is sent late, and all goes on afterwards', async () => {
    const pool = new pg.Pool({ connectionString: tests.database().url, max: 2 })
    const locks = createLocks(postgres({ client: pool }), { ttl: '2s' })
    const first = await locks.mutex('first').acquire()
    await first.release()
    const taken = [await pool.connect(), await pool.connect()]
    await expect(locks.mutex('key').tryAcquire()).rejects.toMatchObject({
      outcome: 'not-applied',
      message: expect.stringContaining('in time'),
    })
    for (const client of taken) client.release()
    await vi.waitFor(() => expect(pool.waitingCount).toBe(0), LIMIT)
    expect(await tell(`SELECT key FROM holdfast_line WHERE id IS NOT NULL`)).toEqual([])
    expect((await locks.mutex('key').acquire()).held).toBe(true)
    await locks.close()
    await pool.end()
  })
})
