/**
 * What befalls a MariaDB server, and what its clients make of it: leases in the table are honoured, tokens never go
 * back, no process crashes or hangs, and a blip is not noticed.
 */
import { createPool } from 'mysql2/promise'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks, EngineError, LeaseLostError, type Locks, type LocksOptions } from '../../src/index.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('a MariaDB server', findOwnMariadb, (source) => {
  let server: MariadbServer
  let owned: ServerProcess
  const opened: Locks[] = []

  async function open(options: LocksOptions = {}): Promise<Locks> {
    const locks = createLocks(await openMysql(server.url), { ttl: '3s', ...options })
    opened.push(locks)
    return locks
  }

  async function untilInLine(locks: Locks, key: string, count: number): Promise<void> {
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)
  }

  beforeEach(async () => {
    server = await MariadbServer.start(source)
    owned = server.process as ServerProcess
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

  test('loses its connections, again and again, under load: nobody notices, and waiters are still woken', async () => {
    // A third of this ttl is longer than the test may take: a waiter that is not woken is too late.
    const [one, other] = [await open({ ttl: '600s' }), await open({ ttl: '600s' })]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await untilInLine(one, 'key', 2)
    let [done, stop] = [0, false]
    const work = Array.from({ length: 10 }, async (_, caller) => {
      while (!stop) await one.mutex(`other ${caller}`).using(() => (done += 1))
    })
    const settled = Promise.all(work)
    for (let round = 0; round < 6; round += 1) {
      const before = done
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 20), LIMIT)
      const threads = (await server.asRoot(`select id from information_schema.processlist where user = 'app'`)) as {
        id: number
      }[]
      expect(threads.length).toBeGreaterThan(0)
      for (const { id } of threads) await server.asRoot(`kill ${id}`).catch(() => undefined)
    }
    stop = true
    await settled
    expect(await lease.release()).toBe(true)
    expect((await waiting).held).toBe(true)
  })

  test('has its statements killed, again and again, under load: nobody loses an update, and nothing stays locked', async () => {
    const clients = [await open({ ttl: '20s' }), await open({ ttl: '20s' })]
    let [counter, done, stop] = [0, 0, false]
    const work = clients.flatMap((locks) =>
      Array.from({ length: 6 }, async () => {
        while (!stop) {
          await locks.mutex('counter').using(async () => {
            const before = counter
            await new Promise((resolve) => setImmediate(resolve))
            counter = before + 1
          })
          done += 1
        }
      }),
    )
    const settled = Promise.all(work)
    while (done < 200) {
      const threads = (await server.asRoot(
        `select id from information_schema.processlist where user = 'app' and command = 'Query'`,
      )) as {
        id: number
      }[]
      for (const { id } of threads) await server.asRoot(`kill query ${id}`).catch(() => undefined)
    }
    stop = true
    await settled
    expect(counter).toBe(done)
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

  test('refuses writes for a while, as a replica does: what is asked meanwhile waits, and a try says why', async () => {
    const locks = await open({ ttl: '10s' })
    const lease = await locks.mutex('key').acquire()
    await server.asRoot('set global read_only = 1')
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
    await server.asRoot('set global read_only = 0')
    expect((await asked).held).toBe(true)
    expect(lease.held).toBe(true)
  })

  test('has no connection to spare for listening, or only that one: calls come first, waiters poll, and are served', async () => {
    await server.asRoot(`alter user app@'%' with max_user_connections 1`)
    const pool = createPool({ uri: server.url, connectionLimit: 1 })
    const locks = createLocks(mysql({ client: pool }), { ttl: '20s' })
    const lease = await locks.mutex('key').acquire()
    const waiting = locks.mutex('key').acquire()
    await untilInLine(locks, 'key', 2)
    await lease.release()
    await (await waiting).release()
    await locks.close()
    await pool.end()
  })

  test('a pool of one connection is enough, for holders, waiters and renewals', async () => {
    const pool = createPool({ uri: server.url, connectionLimit: 1 })
    const locks = createLocks(mysql({ client: pool }), { ttl: '900ms' })
    const lease = await locks.mutex('held').acquire()
    let counter = 0
    await Promise.all(
      Array.from({ length: 50 }, () =>
        locks.mutex('key').using(async () => {
          const before = counter
          await pool.query('select 1')
          counter = before + 1
        }),
      ),
    )
    expect(counter).toBe(50)
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(600), LIMIT)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(600), LIMIT)
    await locks.close()
    await pool.end()
  })

  test('a pool whose connections are all taken: a try is answered in time, nothing is sent late, and all goes on afterwards', async () => {
    const pool = createPool({ uri: server.url, connectionLimit: 2 })
    const locks = createLocks(mysql({ client: pool }), { ttl: '2s', callTimeout: '300ms' })
    const first = await locks.mutex('first').acquire()
    await first.release()
    const taken = [await pool.getConnection(), await pool.getConnection()]
    await expect(locks.mutex('key').tryAcquire()).rejects.toThrow(EngineError)
    for (const connection of taken) connection.release()
    await pool.query('select 1')
    expect(await server.asRoot('select hex(k) from holdfast.holdfast_line where due_at > 0')).toEqual([])
    expect((await locks.mutex('key').acquire()).held).toBe(true)
    await locks.close()
    await pool.end()
  })

  test('a hundred who wait have one connection more between them, and are renewed together', async () => {
    const holding = await open({ ttl: '300s' })
    const pool = createPool({ uri: server.url, connectionLimit: 2 })
    const engine = mysql({ client: pool })
    const renew = vi.spyOn(engine, 'renew')
    const waiting = createLocks(engine, { ttl: '3s' })
    const keys = Array.from({ length: 100 }, (_, index) => `idle ${index}`)
    await Promise.all(keys.map((key) => holding.mutex(key).acquire()))
    const cancel = new AbortController()
    const waiters = Promise.allSettled(keys.map((key) => waiting.mutex(key).acquire({ signal: cancel.signal })))
    for (const key of keys) await untilInLine(holding, key, 2)
    await vi.waitFor(() => expect(renew.mock.calls.length).toBeGreaterThan(2), LIMIT)
    renew.mockClear()
    await vi.waitFor(() => expect(renew.mock.calls.length).toBeGreaterThan(3), LIMIT)
    for (const [places] of renew.mock.calls) expect(places.length, 'renewed together').toBeGreaterThan(50)
    const sleepers = await server.asRoot(
      `select id from information_schema.processlist where user = 'app' and state in ('User sleep', 'User lock')`,
    )
    expect(sleepers).toHaveLength(2)
    cancel.abort(new Error('enough'))
    await waiters
    await waiting.close()
    await pool.end()
  })
})
