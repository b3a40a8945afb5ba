/**
 * What befalls a Redis server, and what its clients make of it: tokens never go back, holders are told, no process
 * crashes, and a blip is not noticed.
 */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { openRedis } from '../../src/engines/redis/index.ts'
import { createLocks, EngineError, LeaseLostError, type Locks } from '../../src/index.ts'
import { findOwnRedis, type RedisOptions, RedisServer } from '../servers/redis.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('a Redis server', findOwnRedis, (source) => {
  let server: RedisServer
  let owned: ServerProcess
  const opened: Locks[] = []

  async function start(options: RedisOptions = {}): Promise<void> {
    server = await RedisServer.start(source, options)
    owned = server.process as ServerProcess
  }

  async function open(ttl: `${number}ms` | `${number}s` = '1500ms', url = server.url): Promise<Locks> {
    const locks = createLocks(await openRedis(url), { ttl })
    opened.push(locks)
    return locks
  }

  /** Do something to the server, past all clients. */
  async function tell(...command: readonly [string, ...string[]]): Promise<unknown> {
    await using client = await server.connect()
    return await client.command(...command)
  }

  beforeEach(() => start())

  afterEach(async () => {
    owned.resume()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await server[Symbol.asyncDispose]()
  })

  test('forgets its scripts, again and again, under load: no caller notices', async () => {
    const locks = await open('30s')
    let done = 0
    const work = Array.from({ length: 30 }, async (_, caller) => {
      for (let turn = 0; turn < 40; turn += 1) await locks.mutex(`key ${caller % 10}`).using(() => (done += 1))
    })
    const settled = Promise.all(work)
    while (done < 1200) await tell('SCRIPT', 'FLUSH')
    await settled
    expect(done).toBe(1200)
  })

  test('has many keys that are no locks: a listing tells that it gets on, page by page', async () => {
    await tell('MSET', ...(Array.from({ length: 5000 }, (_, index) => [`other:${index}`, 'x']).flat() as [string]))
    const locks = await open('30s')
    await locks.mutex('key').acquire()
    let progress = 0
    const found = []
    const lines = locks.engine.list('', () => {
      progress += 1
    })
    for await (const { key } of lines) found.push(key)
    expect(found).toEqual(['key'])
    expect(progress).toBeGreaterThanOrEqual(5)
  })

  test('loses everything (FLUSHALL): the holder is told, the waiter is served, and the token is higher', async () => {
    const [one, other] = [await open(), await open()]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    await tell('FLUSHALL')
    const next = await waiting
    await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), LIMIT)
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError)
    expect(next.token).toBeGreaterThan(lease.token as bigint)
  })

  test.each([
    ['FLUSHALL', async () => void (await tell('FLUSHALL'))],
    [
      'kill -9 and an empty restart',
      async () => {
        await owned.kill()
        await owned.start()
      },
    ],
  ])(
    'loses everything again and again (%s), under load: tokens of a key go on rising, and work goes on',
    async (_, lose) => {
      const locks = await open()
      const tokens = new Map<string, bigint[]>()
      let [done, working] = [0, true]
      const work = Array.from({ length: 20 }, async (_, caller) => {
        const key = `key ${caller % 5}`
        while (working) {
          try {
            await locks.mutex(key).using(({ token }) => {
              tokens.set(key, [...(tokens.get(key) ?? []), token ?? 0n])
            })
            done += 1
          } catch (error) {
            // Told, and worth another try.
            expect(error).toMatchObject({ code: expect.stringMatching(/^(?:LEASE_LOST|ENGINE)$/) })
          }
        }
      })
      const settled = Promise.all(work)
      for (let loss = 0; loss < 5; loss += 1) {
        const before = done
        await lose()
        await vi.waitFor(() => expect(done).toBeGreaterThan(before + 100), LIMIT)
      }
      working = false
      await settled
      for (const seen of tokens.values()) expect(seen).toEqual([...new Set(seen)].sort((a, b) => (a < b ? -1 : 1)))
    },
  )

  test('stands still (SIGSTOP) for less than a ttl: leases go on, and callers that ask meanwhile are served', async () => {
    const locks = await open('6s')
    const lease = await locks.mutex('key').acquire()
    owned.pause()
    const asked = locks.mutex('other').acquire()
    // Until a renewal has been missed, so that there was something to notice.
    await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(3700), LIMIT)
    owned.resume()
    expect((await asked).held).toBe(true)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(4000), LIMIT)
    expect(lease.signal.aborted).toBe(false)
    expect(await lease.release()).toBe(true)
  })

  test('stands still for longer than a ttl: the work is aborted in time, and all goes on afterwards', async () => {
    const locks = await open('3s')
    const lease = await locks.mutex('key').acquire()
    const failed = vi.fn()
    owned.pause()
    const asked = locks.mutex('other').acquire()
    asked.catch(failed)
    await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), LIMIT)
    await vi.waitFor(() => expect(failed).toHaveBeenCalledWith(expect.any(EngineError)), LIMIT)
    owned.resume()
    // The outage has outlasted the ttl: what is asked while connections are made anew may be refused.
    const again = await vi.waitFor(() => locks.mutex('key').acquire({ wait: '20s' }), LIMIT)
    expect(again.token).toBeGreaterThan(lease.token as bigint)
    await vi.waitFor(async () => expect((await locks.mutex('other').acquire({ wait: '20s' })).held).toBe(true), LIMIT)
  })

  test('is killed and comes back empty: holders are told, and tokens go on rising', async () => {
    const locks = await open()
    const lease = await locks.mutex('key').acquire()
    await owned.kill()
    await owned.start()
    await vi.waitFor(() => expect(lease.signal.aborted).toBe(true), LIMIT)
    expect(lease.signal.reason).toMatchObject({ why: 'expired' })
    const next = await locks.mutex('key').acquire()
    expect(next.token).toBeGreaterThan(lease.token as bigint)
  })

  test('is killed and comes back with what it had: leases and waiters are as they were', async () => {
    await server[Symbol.asyncDispose]()
    await start({ durable: true })
    const [one, other] = [await open('5s'), await open('5s')]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    await owned.kill()
    await owned.start()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    expect(lease.held).toBe(true)
    expect(await lease.release()).toBe(true)
    expect((await waiting).token).toBeGreaterThan(lease.token as bigint)
  })

  test('becomes a replica and a master again: what is asked meanwhile waits, and a try says why', async () => {
    const locks = await open('5s')
    const lease = await locks.mutex('key').acquire()
    await tell('REPLICAOF', '127.0.0.1', '1')
    await vi.waitFor(async () => {
      const refusal = await locks
        .mutex('other')
        .tryAcquire()
        .catch((error: unknown) => error)
      expect(refusal).toMatchObject({
        message: expect.stringContaining('READONLY'),
        outcome: 'not-applied',
        transient: true,
      })
    }, LIMIT)
    const asked = locks.mutex('other').acquire()
    await tell('REPLICAOF', 'NO', 'ONE')
    expect((await asked).held).toBe(true)
    expect(lease.held).toBe(true)
  })

  test('is out of memory: a try says so and changes nothing, and a release still works', async () => {
    const locks = await open('30s')
    const lease = await locks.mutex('key').acquire()
    await tell('CONFIG', 'SET', 'maxmemory', '1')
    await expect(locks.mutex('other').tryAcquire()).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
    expect(await lease.release()).toBe(true)
  })

  test('cuts all connections: no holder loses anything, and waiters are still woken', async () => {
    // A third of this ttl is longer than the test may take: a waiter that is not woken is too late.
    const [one, other] = [await open('600s'), await open('600s')]
    const lease = await one.mutex('key').acquire()
    const waiting = other.mutex('key').acquire()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    for (const type of ['pubsub', 'normal']) await tell('CLIENT', 'KILL', 'TYPE', type, 'SKIPME', 'yes')
    await vi.waitFor(
      async () => expect(String(await tell('CLIENT', 'LIST', 'TYPE', 'pubsub'))).toContain('sub=1'),
      LIMIT,
    )
    expect(await lease.release()).toBe(true)
    expect((await waiting).held).toBe(true)
  })
})
