/**
 * What befalls a SQL server, and what its clients make of it: leases in the table are honoured, tokens never go back,
 * no client crashes or hangs, and a blip is not noticed. These cases hold for PostgreSQL and for MySQL alike.
 */
import { randomBytes } from 'node:crypto'
import { expect, test, vi } from 'vitest'
import type { News } from '../../src/core/engine.ts'
import { createLocks, EngineError, LeaseLostError, type Locks } from '../../src/index.ts'
import { type DatabaseTests, LIMIT, type SqlDatabase } from './sql-database.ts'

/** One that no test outlasts. */
const CLAIM = { holder: 'h', weight: 1, limit: 1, ttlMs: 600_000, wait: true }

/** On a frozen server calls are given up in time, and all goes on afterwards. `locks` has a callTimeout of 300 ms. */
export async function giveUpOnFrozen(locks: Locks, server: { pause(): void; resume(): void }): Promise<void> {
  const lease = await locks.mutex('key').acquire()
  server.pause()
  for (let attempt = 0; attempt < 5; attempt += 1)
    await expect(locks.mutex(`${attempt}`).tryAcquire()).rejects.toThrow(EngineError)
  await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), LIMIT)
  server.resume()
  await vi.waitFor(async () => expect(await locks.mutex('key').tryAcquire()).toBeDefined(), LIMIT)
}

export function sqlServerCases<Database extends SqlDatabase>(tests: DatabaseTests<Database>): void {
  const { open, untilInLine } = tests

  /** Tables are made by the first call: it may take longer than a short ttl. */
  async function setUp(): Promise<void> {
    await (await open({ ttl: '30s' })).mutex('set up').using(() => undefined)
  }

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
            // A hand-off in the moment of the crash: the line is as it was before, and the holder is told of its loss.
            if (!(error instanceof LeaseLostError)) throw error
          }
        }
      }),
    )
    const settled = Promise.all(work)
    for (let crash = 0; crash < 3; crash += 1) {
      const before = done
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 50), LIMIT)
      await tests.server().kill()
      await tests.server().start()
    }
    stop = true
    await settled
    expect(long.held).toBe(true)
    expect(await long.release()).toBe(true)
    expect((await waiting).token).toBeGreaterThan(long.token as bigint)
  })

  test('loses its connections, again and again, under load: no caller notices, and waiters are still woken', async () => {
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
    let ended = 0
    for (let round = 0; round < 6; round += 1) {
      const before = done
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 20), LIMIT)
      ended += await tests.database().endConnections()
    }
    stop = true
    await settled
    expect(ended).toBeGreaterThan(0)
    expect(await lease.release()).toBe(true)
    expect((await waiting).held).toBe(true)
  })

  test('stands still for less than a ttl: leases go on, and those who ask meanwhile are served', async () => {
    const locks = await open({ ttl: '6s' })
    const lease = await locks.mutex('key').acquire()
    tests.server().pause()
    const asked = locks.mutex('other').acquire()
    // Until a renewal has been missed, so that there was something to notice.
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(3700), LIMIT)
    tests.server().resume()
    expect((await asked).held).toBe(true)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(4000), LIMIT)
    expect(lease.signal.aborted).toBe(false)
    expect(await lease.release()).toBe(true)
  })

  test('stands still for longer than a ttl: the work is aborted in time, no caller hangs, and all goes on afterwards', async () => {
    await setUp()
    const locks = await open({ ttl: '3s' })
    const lease = await locks.mutex('key').acquire()
    const failed = vi.fn()
    tests.server().pause()
    const asked = locks.mutex('other').acquire()
    asked.catch(failed)
    await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), LIMIT)
    await vi.waitFor(() => expect(failed).toHaveBeenCalledWith(expect.any(EngineError)), LIMIT)
    const leaving = await open({ ttl: '3s', callTimeout: '500ms' })
    await expect(leaving.mutex('third').tryAcquire()).rejects.toThrow(EngineError)
    await leaving.close()
    tests.server().resume()
    // The outage has outlasted the ttl: what is asked while connections are made anew may be refused.
    const again = await vi.waitFor(() => locks.mutex('key').acquire({ wait: '20s' }), LIMIT)
    expect(again.token).toBeGreaterThan(lease.token as bigint)
    await vi.waitFor(async () => expect((await locks.mutex('other').acquire({ wait: '20s' })).held).toBe(true), LIMIT)
  })

  test('is away and comes back while a caller waits: the wait goes on', async () => {
    const [one, other] = [await open({ ttl: '10s' }), await open({ ttl: '10s' })]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await untilInLine(one, 'key', 2)
    await tests.server().stop()
    await expect(one.mutex('other').tryAcquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
    await tests.server().start()
    await vi.waitFor(async () => expect(await lease.release()).toBe(true), LIMIT)
    expect((await waiting).token).toBeGreaterThan(lease.token as bigint)
  })

  test('a key that is released for later is had when that time is over, and not when the ttl would have been', async () => {
    for (const limit of [1, 2]) {
      const [one, other] = [await open({ ttl: '60s' }), await open({ ttl: '60s' })]
      const [key, holders] = [`later ${limit}`, Array.from({ length: limit }, () => one)]
      const leases = await Promise.all(holders.map((locks) => locks.semaphore(key, limit).acquire()))
      // In whichever order they come.
      const waiting = [one, other].map((locks) => locks.semaphore(key, limit).using({ wait: '15s' }, () => 'held'))
      await untilInLine(one, key, limit + 2)
      for (const lease of leases) expect(await lease.release({ after: '500ms' })).toBe(true)
      expect(await Promise.all(waiting)).toEqual(['held', 'held'])
    }
  })

  test('a holder that is evicted is told at once, and its line goes on when it has left', async () => {
    const engines = [await tests.database().engine(), await tests.database().engine()] as const
    const [one, other] = engines
    const heard: News[] = []
    for (const engine of engines) await engine.subscribe?.((news) => heard.push(news))
    // Alone, and with a waiter behind it.
    for (const waits of [false, true]) {
      const holder = { key: `evicted ${waits}`, id: randomBytes(16).toString('hex'), ...CLAIM }
      const waiter = { ...holder, id: randomBytes(16).toString('hex') }
      const [held] = await one.enter([holder])
      if (waits) expect(await other.enter([waiter])).toMatchObject([{ state: 'waiting' }])
      expect(await other.evict(holder.key, (held as { token: bigint }).token, 'expire')).toBe(true)
      const told = { key: holder.key, id: holder.id, standing: { state: 'gone', why: 'evicted' } }
      await vi.waitFor(() => expect(heard).toContainEqual(told), LIMIT)
      expect(await one.renew([holder])).toEqual([{ state: 'gone', why: 'evicted' }])
      expect(await other.enter([{ ...waiter, id: randomBytes(16).toString('hex'), wait: false }])).toMatchObject([
        { state: 'busy' },
      ])
      expect(await one.leave([holder])).toEqual([true])
      if (waits) {
        const granted = { key: waiter.key, id: waiter.id, standing: expect.objectContaining({ state: 'held' }) }
        await vi.waitFor(() => expect(heard).toContainEqual(granted), LIMIT)
      } else expect(await other.enter([waiter])).toMatchObject([{ state: 'held' }])
    }
    for (const engine of engines) await engine[Symbol.asyncDispose]()
  })

  test('a pool of one connection is enough, for holders, waiters and renewals', async () => {
    const pool = tests.database().pool(1)
    await setUp()
    const locks = createLocks(pool.engine, { ttl: '6s' })
    const lease = await locks.mutex('held').acquire()
    let counter = 0
    await Promise.all(
      Array.from({ length: 50 }, () =>
        locks.mutex('key').using(async () => {
          const before = counter
          await pool.query()
          counter = before + 1
        }),
      ),
    )
    expect(counter).toBe(50)
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(4200), LIMIT)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(4400), LIMIT)
    await locks.close()
    await pool.end()
  })
}
