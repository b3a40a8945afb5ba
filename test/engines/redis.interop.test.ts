/**
 * Other people's locks on the same key: redlock for Node and redis-py's Lock exclude us, and we them, in both
 * directions, and waiting works both ways.
 */
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, expect, type TestContext, test, vi } from 'vitest'
import { openRedis } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import type { Missing } from '../servers/programs.ts'
import { Python } from '../servers/python.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer, present } from '../servers/suite.ts'

/** What we use of redlock, which has no types of its own. */
interface TheirLocks {
  lock(key: string, ttlMs: number): Promise<{ unlock(): PromiseLike<void> }>
}

const Redlock = createRequire(import.meta.url)('redlock') as new (
  clients: Redis[],
  options: { retryCount: number },
) => TheirLocks
const LIMIT = { timeout: 30_000, interval: 5 }

await describeServer('others on the same key', findOwnRedis, (source) => {
  let server: RedisServer
  let locks: Locks
  let client: Redis
  let redlock: TheirLocks
  let python: Python | Missing
  let key: string
  let keys = 0

  beforeAll(async () => {
    server = await RedisServer.start(source)
    locks = createLocks(await openRedis(server.url), { ttl: '30s' })
    client = new Redis(server.port)
    redlock = new Redlock([client], { retryCount: 0 })
    python = await Python.find()
  })

  beforeEach(() => {
    key = `order:${++keys}`
  })

  afterAll(async () => {
    await locks.close()
    client.disconnect()
    await server[Symbol.asyncDispose]()
  })

  /** A program in Python with `lock` on our key. */
  async function inPython(context: TestContext, program: string): Promise<string> {
    const head = `import redis\nr = redis.Redis(port=${server.port})\nlock = r.lock('lock:${key}', timeout=20, blocking=False)\n`
    return await present(python, context).run(head + program)
  }

  test('redlock does not get what we hold, and gets it when we have released', async () => {
    const lease = await locks.mutex(key).acquire()
    await expect(redlock.lock(`lock:${key}`, 1000)).rejects.toThrow()
    await lease.release()
    const theirs = await redlock.lock(`lock:${key}`, 1000)
    await theirs.unlock()
  })

  test('we do not get what redlock holds, wait for it, and have it when it is released', async () => {
    const theirs = await redlock.lock(`lock:${key}`, 20_000)
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
    const waiting = locks.mutex(key).acquire()
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(2), LIMIT)
    await theirs.unlock()
    const lease = await waiting
    await expect(redlock.lock(`lock:${key}`, 1000)).rejects.toThrow()
    await lease.release()
  })

  test('what redlock lets expire is ours soon after', async () => {
    await redlock.lock(`lock:${key}`, 200)
    const lease = await locks.mutex(key).acquire()
    expect(lease.held).toBe(true)
    await lease.release()
  })

  test('redis-py does not get what we hold, and gets it when we have released', async (context) => {
    const lease = await locks.mutex(key).acquire()
    const tryIt = 'print(lock.acquire())'
    expect(await inPython(context, tryIt)).toBe('False')
    await lease.release()
    expect(await inPython(context, tryIt)).toBe('True')
  })

  test('we do not get what redis-py holds, and have it when it is released', async (context) => {
    // Python holds, and releases when it is told to, by a key of its own.
    const held = inPython(
      context,
      `assert lock.acquire()\nr.set('told:${key}', 'holding')\nr.blpop('go:${key}', timeout=30)\nlock.release()\nprint('released')`,
    )
    await vi.waitFor(async () => expect(await client.get(`told:${key}`)).toBe('holding'), LIMIT)
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
    const waiting = locks.mutex(key).acquire()
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(2), LIMIT)
    await client.rpush(`go:${key}`, 'now')
    const lease = await waiting
    expect(await held).toBe('released')
    expect(lease.held).toBe(true)
    await lease.release()
  })

  test('a redis-py that waits with blocking=True gets it after us', async (context) => {
    const lease = await locks.mutex(key).acquire()
    const waiting = inPython(
      context,
      `r.set('told:${key}', 'waiting')\nprint(lock.acquire(blocking=True, blocking_timeout=30))`,
    )
    await vi.waitFor(async () => expect(await client.get(`told:${key}`)).toBe('waiting'), LIMIT)
    await lease.release()
    expect(await waiting).toBe('True')
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
  })
})
