/**
 * What befalls a PostgreSQL server, and what its clients make of it: leases in the table are honoured, tokens never go
 * back, nobody crashes or hangs, and a blip is not noticed.
 */
import pg from 'pg'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Engine } from '../../src/core/engine.ts'
import { openPostgres, postgres } from '../../src/engines/postgres/index.ts'
import { createLocks, EngineError, LeaseLostError, type Locks, type LocksOptions } from '../../src/index.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('a PostgreSQL server', findOwnPostgres, (source) => {
  let server: PostgresServer
  let owned: ServerProcess
  let database: string
  const opened: Locks[] = []

  async function open(options: LocksOptions = {}, url = database): Promise<Locks> {
    const locks = createLocks(await openPostgres(url), { ttl: '3s', ...options })
    opened.push(locks)
    return locks
  }

  /** Do something to the server, past all clients. */
  async function tell(statement: string, values: readonly unknown[] = []): Promise<readonly Record<string, unknown>[]> {
    await using connection = await server.connect(database)
    return await connection.query(statement, values)
  }

  async function untilInLine(locks: Locks, key: string, count: number): Promise<void> {
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)
  }

  beforeEach(async () => {
    server = await PostgresServer.start(source)
    owned = server.process as ServerProcess
    database = await server.database()
  })

  afterEach(async () => {
    owned.resume()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await server[Symbol.asyncDispose]()
  })

  test('is killed under load and comes back: leases are as they were, no two hold at once, tokens never go back', async () => {
    const clients = await Promise.all([1, 2, 3].map(() => open({ ttl: '10s' })))
    const [first] = clients as [Locks]
    const long = await first.mutex('long').acquire()
    const waiting = (clients[1] as Locks).mutex('long').acquire()
    await untilInLine(first, 'long', 2)
    const tokens = new Map<string, bigint>()
    const holding = new Set<string>()
    let [done, stop] = [0, false]
    const work = clients.flatMap((locks) =>
      Array.from({ length: 8 }, async (_, caller) => {
        while (!stop) {
          const key = `key ${caller % 4}`
          try {
            await locks.mutex(key).using({ wait: '20s' }, async (lease) => {
              expect(lease.token).toBeGreaterThan(tokens.get(key) ?? 0n)
              tokens.set(key, lease.token as bigint)
              if (!lease.held) return
              expect(holding.has(key), 'two hold at once').toBe(false)
              holding.add(key)
              await new Promise((resolve) => setTimeout(resolve, 1))
              holding.delete(key)
            })
            done += 1
          } catch (error) {
            // Handed over in the moment of the crash: the line is as it was before, and whoever had it is told.
            if (!(error instanceof LeaseLostError)) throw error
          }
        }
      }),
    )
    const settled = Promise.all(work)
    for (let crash = 0; crash < 3; crash += 1) {
      const before = done
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 50), LIMIT)
      await owned.kill()
      await owned.start()
    }
    stop = true
    await settled
    expect(long.held).toBe(true)
    expect(await long.release()).toBe(true)
    expect((await waiting).token).toBeGreaterThan(long.token as bigint)
  })

  test('is killed in the moment of a hand-over, before that is on the disk: nobody else gets in, and the line does not stand still', async () => {
    await server[Symbol.asyncDispose]()
    server = await PostgresServer.start(source, { settings: { wal_writer_delay: '10s' } })
    owned = server.process as ServerProcess
    database = await server.database()
    const [one, other, third] = [await open({ ttl: '600s' }), await open({ ttl: '600s' }), await open({ ttl: '600s' })]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await untilInLine(one, 'key', 2)
    await lease.release()
    const next = await waiting
    await owned.kill()
    await owned.start()
    expect(await third.mutex('key').tryAcquire()).toBeUndefined()
    // Whoever released has a lease of ten minutes there again, unless it releases once more.
    await vi.waitFor(async () => {
      const { entries } = await third.inspect('key')
      expect(entries.map(({ token, state }) => [token, state])).toEqual([[next.token, 'held']])
    }, LIMIT)
    expect(await next.release()).toBe(true)
  })

  test('loses its backends, again and again, under load: nobody notices, and waiters are still woken', async () => {
    // A third of this ttl is longer than the test may take: whoever is not woken is too late.
    const [one, other] = [await open({ ttl: '600s' }), await open({ ttl: '600s' })]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await untilInLine(one, 'key', 2)
    let [done, stop] = [0, false]
    const work = Array.from({ length: 10 }, async (_, caller) => {
      while (!stop) await one.mutex(`other ${caller}`).using(() => (done += 1))
    })
    const settled = Promise.all(work)
    let ended = 0
    for (let round = 0; round < 6; round += 1) {
      const before = done
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 20), LIMIT)
      const rows = await tell(
        `SELECT count(pg_terminate_backend(pid)) AS ended FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
      )
      ended += Number(rows[0]?.ended)
    }
    stop = true
    await settled
    expect(ended).toBeGreaterThan(0)
    expect(await lease.release()).toBe(true)
    expect((await waiting).held).toBe(true)
  })

  test('stands still for less than a ttl: leases go on, and those who ask meanwhile are served', async () => {
    const locks = await open({ ttl: '3s' })
    const lease = await locks.mutex('key').acquire()
    owned.pause()
    const asked = locks.mutex('other').acquire()
    // Until a renewal has been missed, so that there was something to notice.
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(1700), LIMIT)
    owned.resume()
    expect((await asked).held).toBe(true)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(2000), LIMIT)
    expect(lease.signal.aborted).toBe(false)
    expect(await lease.release()).toBe(true)
  })

  test('stands still for longer than a ttl: the work is aborted in time, nobody hangs, and all goes on afterwards', async () => {
    const locks = await open({ ttl: '600ms' })
    const lease = await locks.mutex('key').acquire()
    const failed = vi.fn()
    owned.pause()
    const asked = locks.mutex('other').acquire()
    asked.catch(failed)
    await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), LIMIT)
    await vi.waitFor(() => expect(failed).toHaveBeenCalledWith(expect.any(EngineError)), LIMIT)
    const leaving = await open({ ttl: '600ms', callTimeout: '500ms' })
    await expect(leaving.mutex('third').tryAcquire()).rejects.toThrow(EngineError)
    await leaving.close()
    owned.resume()
    const again = await locks.mutex('key').acquire({ wait: '20s' })
    expect(again.token).toBeGreaterThan(lease.token as bigint)
    expect((await locks.mutex('other').acquire({ wait: '20s' })).held).toBe(true)
  })

  test('is away and comes back while somebody waits: the wait goes on', async () => {
    const [one, other] = [await open({ ttl: '10s' }), await open({ ttl: '10s' })]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await untilInLine(one, 'key', 2)
    await owned.stop()
    await expect(one.mutex('other').tryAcquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
    await owned.start()
    await vi.waitFor(async () => expect(await lease.release()).toBe(true), LIMIT)
    expect((await waiting).token).toBeGreaterThan(lease.token as bigint)
  })

  test('a row that somebody has locked holds up its own line, and no other', async () => {
    const locks = await open({ ttl: '2s' })
    const [stuck, free] = await Promise.all([locks.mutex('stuck').acquire(), locks.mutex('free').acquire()])
    await using hand = await server.connect(database)
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

  test('the index is used, however the tables grow: no function reads them from end to end', async () => {
    const claim = (key: string, id: string) => ({
      key,
      id,
      holder: 'h',
      weight: 1,
      limit: 1,
      ttlMs: 60_000,
      wait: true,
    })
    const statistics = `SELECT relname, seq_scan::int, (n_tup_ins + n_tup_del)::int AS written FROM pg_stat_user_tables WHERE relname ~ 'line|entry' ORDER BY 1`
    type Row = { readonly relname: string; readonly seq_scan: number; readonly written: number }
    /** A backend tells what it has done when it ends, at the latest. */
    const after = async (use: (engine: Engine) => Promise<void>, least: number): Promise<readonly Row[]> => {
      const engine = await openPostgres(database)
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
    const primary = await open()
    await primary.mutex('key').acquire()
    await using standby = await PostgresServer.start(source, { standbyOf: server.url })
    const there = await open({}, standby.url.replace(/\/postgres$/, new URL(database).pathname))
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
    await tell(
      `ALTER DATABASE ${new URL(database).pathname.slice(1)} SET default_transaction_isolation = 'serializable'`,
    )
    const locks = await open()
    await expect(locks.mutex('key').acquire()).rejects.toMatchObject({
      outcome: 'not-applied',
      transient: false,
      message: expect.stringContaining("'read committed'"),
    })
  })

  test('a server that does not wait for its disk is made to wait, for what must not be lost', async () => {
    await tell(`ALTER DATABASE ${new URL(database).pathname.slice(1)} SET synchronous_commit = off`)
    const locks = await open({ ttl: '60s' })
    const lease = await locks.mutex('key').acquire()
    await owned.kill()
    await owned.start()
    const other = await open()
    expect(await other.mutex('key').tryAcquire()).toBeUndefined()
    expect(await lease.release()).toBe(true)
  })

  test('a pool of one connection is enough, for holders, waiters and renewals', async () => {
    const pool = new pg.Pool({ connectionString: database, max: 1 })
    const locks = createLocks(postgres({ client: pool }), { ttl: '900ms' })
    const lease = await locks.mutex('held').acquire()
    let counter = 0
    await Promise.all(
      Array.from({ length: 50 }, () =>
        locks.mutex('key').using(async () => {
          const before = counter
          await pool.query('SELECT 1')
          counter = before + 1
        }),
      ),
    )
    expect(counter).toBe(50)
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(600), LIMIT)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(600), LIMIT)
    expect(pool.totalCount).toBe(1)
    await locks.close()
    await pool.end()
  })

  test('a pool whose connections are all taken: a try is answered in time, nothing is sent late, and all goes on afterwards', async () => {
    const pool = new pg.Pool({ connectionString: database, max: 2 })
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
