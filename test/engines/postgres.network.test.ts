/**
 * The way to a PostgreSQL server, cut, slowed and swallowed: nothing is executed twice, waiters are found again, and
 * the process goes on.
 */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { createLocks, EngineError, type Locks, type LocksOptions } from '../../src/index.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('the way to PostgreSQL', findPostgres, (source) => {
  let server: PostgresServer
  let proxy: FaultProxy
  let database: string
  const opened: Locks[] = []

  /** By way of the proxy, unless told otherwise. */
  async function open(
    options: LocksOptions,
    more: { readonly direct?: boolean; readonly listenUrl?: string } = {},
  ): Promise<Locks> {
    const { direct = false, ...rest } = more
    const locks = createLocks(await openPostgres(direct ? database : through(), rest), options)
    opened.push(locks)
    return locks
  }

  function through(): string {
    const url = new URL(database)
    url.host = `127.0.0.1:${proxy.port}`
    return url.href
  }

  async function untilInLine(locks: Locks, key: string, count: number): Promise<void> {
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)
  }

  beforeEach(async () => {
    server = await PostgresServer.start(source)
    proxy = await FaultProxy.start(server)
    database = await server.database()
  })

  afterEach(async () => {
    await proxy.heal()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await proxy[Symbol.asyncDispose]()
    if (server.process === undefined) await server.drop(database)
    await server[Symbol.asyncDispose]()
  })

  test('an enter whose answer was lost is one entry, and is had when it is asked for again', async () => {
    const [locks, onlooker] = [await open({ ttl: '20s' }), await open({ ttl: '20s' }, { direct: true })]
    await locks.mutex('warm').using(async () => undefined)
    proxy.blackHole('replies')
    const asked = locks.mutex('key').acquire()
    await untilInLine(onlooker, 'key', 1)
    proxy.reset()
    await proxy.heal()
    const lease = await asked
    expect((await onlooker.inspect('key')).entries).toHaveLength(1)
    expect(await lease.release()).toBe(true)
  })

  test('a waiter whose listening connection is dead, without knowing it, is served, and then listens anew', async () => {
    const holding = await open({ ttl: '20s' }, { direct: true })
    // Only what it listens on goes through the proxy.
    const waiting = await open({ ttl: '3s' }, { direct: true, listenUrl: through() })
    const lease = await holding.mutex('key').acquire()
    const first = waiting.mutex('key').acquire()
    await untilInLine(holding, 'key', 2)
    proxy.blackHole()
    await lease.release()
    await (await first).release()
    // A letter to itself does not arrive, so it connects anew: then a hand-over wakes again, long before a renewal
    // would.
    const again = await holding.mutex('key').acquire()
    const second = waiting.mutex('key').acquire()
    await untilInLine(holding, 'key', 2)
    const before = proxy.size
    await proxy.heal()
    await vi.waitFor(() => expect(proxy.size).toBeGreaterThanOrEqual(Math.min(before, 1)), LIMIT)
    await again.release()
    expect((await second).held).toBe(true)
  })

  test('connections are cut, again and again, under load: nobody loses an update', async () => {
    const clients = [await open({ ttl: '20s' }), await open({ ttl: '20s' })]
    let [counter, done, stop] = [0, 0, false]
    const work = clients.flatMap((locks) =>
      Array.from({ length: 5 }, async () => {
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
    for (let cut = 0; cut < 5; cut += 1) {
      const before = done
      await vi.waitFor(() => expect(done).toBeGreaterThan(before + 5), LIMIT)
      proxy.reset()
    }
    stop = true
    await settled
    expect(counter).toBe(done)
  })

  test('nobody is there: a try says so at once, and whoever waits is served when somebody is', async () => {
    const locks = await open({ ttl: '20s' })
    await proxy.refuse()
    await expect(locks.mutex('key').tryAcquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
    const asked = locks.mutex('key').acquire()
    await proxy.heal()
    expect((await asked).held).toBe(true)
  })

  test('a slow network slows, and breaks nothing', async () => {
    const locks = await open({ ttl: '3s' })
    const lease = await locks.mutex('key').acquire()
    proxy.delay(200)
    await Promise.all(Array.from({ length: 20 }, () => locks.mutex('other').using(async () => undefined)))
    expect(lease.held).toBe(true)
  })

  test('a black hole, at the end: closing does not wait for it', async () => {
    const locks = createLocks(await openPostgres(through()), { ttl: '2s', callTimeout: '300ms' })
    await locks.mutex('key').acquire()
    proxy.blackHole()
    await expect(locks.mutex('other').tryAcquire()).rejects.toThrow(EngineError)
    await locks.close()
  })
})
