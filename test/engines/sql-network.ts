/**
 * The way to a SQL server, cut, slowed and swallowed: nothing is executed twice, waiters are found again, and the
 * process goes on. These cases hold for PostgreSQL and for MySQL alike.
 */
import { expect, test, vi } from 'vitest'
import { createLocks, EngineError, type Locks } from '../../src/index.ts'
import { countTogether, type DatabaseTests, LIMIT, type SqlDatabase } from './sql-database.ts'

export function sqlNetworkCases<Database extends SqlDatabase>(tests: DatabaseTests<Database>): void {
  const { open, openFar, untilInLine } = tests

  /** Before answers are swallowed: a release that had to connect first would not get through. */
  const connectAll = async (locks: Locks): Promise<void> => {
    await Promise.all([1, 2, 3, 4].map(() => locks.inspect('key')))
  }

  /**
   * The same, and each connection has released before: to MariaDB, the first statement of a kind is sent in two
   * requests, and the second waits for the answer to the first.
   */
  const releaseEverywhere = async (locks: Locks): Promise<void> => {
    for (let round = 0; round < 5; round += 1) await locks.mutex('warm').using(() => undefined)
  }

  test.each([1, 5])(
    '%i enters whose answer was lost are one entry each, and are had when they are asked for again',
    async (count) => {
      const [locks, onlooker] = [await openFar({ ttl: '20s' }), await open({ ttl: '20s' })]
      const keys = Array.from({ length: count }, (_, index) => `key ${index}`)
      await locks.mutex('warm').using(async () => undefined)
      tests.proxy().blackHole('replies')
      const asked = Promise.all(keys.map((key) => locks.mutex(key).acquire()))
      for (const key of keys) await untilInLine(onlooker, key, 1)
      tests.proxy().reset()
      await tests.proxy().heal()
      const leases = await asked
      for (const key of keys) expect((await onlooker.inspect(key)).entries).toHaveLength(1)
      for (const lease of leases) expect(await lease.release()).toBe(true)
    },
  )

  test('an enter that arrives long after it was given up does not hold the key', async () => {
    const [locks, near] = [await openFar({ ttl: '20s' }), await open({ ttl: '20s' })]
    await locks.mutex('warm').using(async () => undefined)
    tests.proxy().blackHole('requests')
    const cancel = new AbortController()
    const asked = locks.mutex('key').acquire({ signal: cancel.signal })
    await vi.waitFor(() => expect(tests.proxy().heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    cancel.abort(new Error('enough'))
    await expect(asked).rejects.toThrow('enough')
    await tests.proxy().heal()
    expect((await near.mutex('key').acquire()).held).toBe(true)
  })

  test('a release whose answer was lost frees the key', async () => {
    // Longer than this case may take: the key is free by the release, and not because it has expired.
    const [locks, near] = [await openFar({ ttl: '10m' }), await open({ ttl: '10m' })]
    const lease = await locks.mutex('key').acquire()
    await releaseEverywhere(locks)
    tests.proxy().blackHole('replies')
    const released = lease.release()
    await untilInLine(near, 'key', 0)
    tests.proxy().reset()
    await tests.proxy().heal()
    await released
    expect(await near.mutex('key').tryAcquire()).toBeDefined()
  })

  test('a waiter of the same process holds, though the answer to the release that let it was lost', async () => {
    // The waiter is renewed every 200 s: later than this case may take.
    const options = { ttl: '10m', callTimeout: '2s' } as const
    const [locks, onlooker] = [await openFar(options), await open(options)]
    const first = await onlooker.mutex('key').acquire()
    const second = locks.mutex('key').acquire()
    await untilInLine(onlooker, 'key', 2)
    // By news: from now on this process knows that it hears, and does not poll.
    await first.release()
    const lease = await second
    const next = locks.mutex('key').acquire()
    await untilInLine(onlooker, 'key', 2)
    await connectAll(locks)
    tests.proxy().blackHole('replies')
    const released = lease.release()
    await untilInLine(onlooker, 'key', 1)
    tests.proxy().forget()
    await tests.proxy().heal()
    expect(await released).toBe(false)
    expect((await next).held).toBe(true)
  })

  test('connections are cut, again and again, under load: no update is lost', async () => {
    const counting = countTogether([await openFar({ ttl: '20s' }), await openFar({ ttl: '20s' })], 5)
    for (let cut = 0; cut < 5; cut += 1) {
      await counting.until(counting.done() + 5)
      tests.proxy().reset()
    }
    await counting.stop()
  })

  test('no server is there: a try says so at once, and a waiter is served when one is', async () => {
    const locks = await openFar({ ttl: '20s' })
    await tests.proxy().refuse()
    await expect(locks.mutex('key').tryAcquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
    const asked = locks.mutex('key').acquire()
    await tests.proxy().heal()
    expect((await asked).held).toBe(true)
  })

  test('a slow network slows, and breaks nothing', async () => {
    const locks = await openFar({ ttl: '6s' })
    const lease = await locks.mutex('key').acquire()
    tests.proxy().delay(200)
    await Promise.all(Array.from({ length: 20 }, () => locks.mutex('other').using(async () => undefined)))
    expect(lease.held).toBe(true)
  })

  test('a black hole, at the end: closing does not wait for it', async () => {
    const engine = await tests.database().engine(tests.proxy().port)
    const locks = createLocks(engine, { ttl: '2s', callTimeout: '300ms' })
    await locks.mutex('key').acquire()
    tests.proxy().blackHole()
    await expect(locks.mutex('other').tryAcquire()).rejects.toThrow(EngineError)
    await locks.close()
  })
}
