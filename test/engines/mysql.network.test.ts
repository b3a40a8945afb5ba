/**
 * The way to a MariaDB server, cut, slowed and swallowed: nothing is executed twice, waiters are found again, and the
 * process goes on.
 */
import { connect, type Socket } from 'node:net'
import { createPool } from 'mysql2/promise'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { mysql, openMysql } from '../../src/engines/mysql/index.ts'
import { createLocks, EngineError, type Locks, type LocksOptions } from '../../src/index.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('the way to MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer
  let proxy: FaultProxy
  const opened: Locks[] = []

  /** By way of the proxy, unless told otherwise. */
  async function open(options: LocksOptions, url = through()): Promise<Locks> {
    const locks = createLocks(await openMysql(url), options)
    opened.push(locks)
    return locks
  }

  const through = (): string => server.url.replace(`:${server.port}/`, `:${proxy.port}/`)

  async function untilInLine(locks: Locks, key: string, count: number): Promise<void> {
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(count), LIMIT)
  }

  beforeEach(async () => {
    server = await MariadbServer.start(source)
    proxy = await FaultProxy.start(server)
  })

  afterEach(async () => {
    await proxy.heal()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await proxy[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test.each([1, 5])(
    '%i enters whose answer was lost are one entry each, and are had when they are asked for again',
    async (count) => {
      const [locks, onlooker] = [await open({ ttl: '20s' }), await open({ ttl: '20s' }, server.url)]
      const keys = Array.from({ length: count }, (_, index) => `key ${index}`)
      await locks.mutex('warm').using(async () => undefined)
      proxy.blackHole('replies')
      const asked = Promise.all(keys.map((key) => locks.mutex(key).acquire()))
      for (const key of keys) await untilInLine(onlooker, key, 1)
      proxy.reset()
      await proxy.heal()
      const leases = await asked
      for (const key of keys) expect((await onlooker.inspect(key)).entries).toHaveLength(1)
      for (const lease of leases) expect(await lease.release()).toBe(true)
    },
  )

  test('an enter that arrives long after it was given up does not hold the key', async () => {
    const [locks, near] = [await open({ ttl: '20s' }), await open({ ttl: '20s' }, server.url)]
    await locks.mutex('warm').using(async () => undefined)
    proxy.blackHole('requests')
    const cancel = new AbortController()
    const asked = locks.mutex('key').acquire({ signal: cancel.signal })
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    cancel.abort(new Error('enough'))
    await expect(asked).rejects.toThrow('enough')
    await proxy.heal()
    expect((await near.mutex('key').acquire()).held).toBe(true)
  })

  test('a release whose answer was lost frees the key', async () => {
    const [locks, near] = [await open({ ttl: '20s' }), await open({ ttl: '20s' }, server.url)]
    const lease = await locks.mutex('key').acquire()
    proxy.blackHole('replies')
    const released = lease.release()
    await untilInLine(near, 'key', 0)
    proxy.reset()
    await proxy.heal()
    await released
    expect(await near.mutex('key').tryAcquire()).toBeDefined()
  })

  test('a listening connection that is dead without having ended is found out by what it missed, and made anew', async () => {
    const near = await open({ ttl: '20s' }, server.url)
    // Each connection asks where to; only the listening one, which comes first, is led through the proxy.
    const sockets: Socket[] = []
    const stream = (): Socket => {
      const socket = connect(sockets.length === 0 ? proxy.port : server.port, '127.0.0.1')
      sockets.push(socket)
      return socket
    }
    const pool = createPool({ uri: server.url, stream })
    const locks = createLocks(mysql({ client: pool }), { ttl: '3s' })
    opened.push(locks)
    const lease = await near.mutex('key').acquire()
    const first = locks.mutex('key').acquire()
    await untilInLine(near, 'key', 2)
    expect(proxy.size).toBe(1)
    proxy.blackHole()
    await lease.release()
    await (await first).release()
    // What it missed was noticed by its renewal; it cannot be woken, so it is cut.
    await vi.waitFor(() => expect(sockets[0]?.destroyed).toBe(true), LIMIT)
    await vi.waitFor(async () => {
      const sleepers = await server.asRoot(
        `select id from information_schema.processlist where user = 'app' and state in ('User sleep', 'User lock')`,
      )
      expect(sleepers).toHaveLength(2)
    }, LIMIT)
    await locks.close()
    await pool.end()
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

  test('a wrong password, and a database that is not there, are told at once, and not tried again', async () => {
    for (const url of [server.url.replace('secret', 'wrong'), server.url.replace('/holdfast', '/nowhere')]) {
      const locks = await open({ ttl: '20s' }, url)
      await expect(locks.mutex('key').acquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: false })
    }
  })

  test('a slow network slows, and breaks nothing', async () => {
    const locks = await open({ ttl: '3s' })
    const lease = await locks.mutex('key').acquire()
    proxy.delay(200)
    await Promise.all(Array.from({ length: 20 }, () => locks.mutex('other').using(async () => undefined)))
    expect(lease.held).toBe(true)
  })

  test('a black hole, at the end: closing does not wait for it', async () => {
    const locks = createLocks(await openMysql(through()), { ttl: '2s', callTimeout: '300ms' })
    await locks.mutex('key').acquire()
    proxy.blackHole()
    await expect(locks.mutex('other').tryAcquire()).rejects.toThrow(EngineError)
    await locks.close()
  })
})
