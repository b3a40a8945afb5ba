/** Others on the same servers: redlock for Node, and clients that people write by hand, exclude us, and we them. */
import { createRequire } from 'node:module'
import { Redis } from 'ioredis'
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest'
import { openRedlock, redlock } from '../../src/engines/redlock/index.ts'
import { createLocks, type Locks, UnsupportedError } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnRedis } from '../servers/redis.ts'
import type { Resp } from '../servers/resp.ts'
import { describeServer } from '../servers/suite.ts'
import { connected, Fleet } from './redlock-world.ts'

/** What we use of redlock, which has no types of its own. */
interface TheirLocks {
  lock(key: string, ttlMs: number): Promise<{ unlock(): PromiseLike<void> }>
}

const Redlock = createRequire(import.meta.url)('redlock') as new (
  clients: Redis[],
  options: { retryCount: number },
) => TheirLocks

await describeServer('Redlock beside others', findOwnRedis, (source) => {
  let fleet: Fleet
  let locks: Locks
  let clients: Redis[]
  let hands: readonly Resp[]
  let theirs: TheirLocks
  let key: string
  let keys = 0

  beforeAll(async () => {
    fleet = await Fleet.start(source)
    locks = createLocks(await connected(await openRedlock(`${fleet.url}?timeout=300`)), { ttl: '30s' })
    clients = fleet.servers.map(({ port }) => new Redis(port))
    hands = await Promise.all(fleet.servers.map((server) => server.connect()))
    theirs = new Redlock(clients, { retryCount: 0 })
  })

  beforeEach(() => {
    key = `order:${++keys}`
  })

  afterAll(async () => {
    await locks.close()
    for (const client of clients) client.disconnect()
    for (const hand of hands) await hand[Symbol.asyncDispose]()
    await fleet[Symbol.asyncDispose]()
  })

  test('redlock does not get what we hold, and gets it when we have released', async () => {
    const lease = await locks.mutex(key).acquire()
    await expect(theirs.lock(`lock:${key}`, 1000)).rejects.toThrow()
    await lease.release()
    await (await theirs.lock(`lock:${key}`, 10_000)).unlock()
  })

  test('we do not get what redlock holds; a waiter gets it when it is unlocked', async () => {
    const lock = await theirs.lock(`lock:${key}`, 20_000)
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
    const waiting = locks.mutex(key).acquire({ wait: '20s' })
    await lock.unlock()
    const lease = await waiting
    expect(lease.held).toBe(true)
    expect(lease.token).not.toBeNull()
    await lease.release()
  })

  test('a hand-written client with a majority keeps us out, and one with less does not', async () => {
    const set = async (hand: Resp): Promise<unknown> =>
      await hand.command('SET', `lock:${key}`, 'by hand', 'NX', 'PX', '20000')
    await Promise.all(hands.slice(0, 3).map(set))
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
    expect((await locks.inspect(key)).entries.map(({ holder }) => holder)).toEqual(['a program without Holdfast'])
    await hands[0]?.command('DEL', `lock:${key}`)
    const lease = await locks.mutex(key).acquire({ wait: '20s' })
    expect(lease.held).toBe(true)
    expect(await hands[1]?.command('GET', `lock:${key}`)).toBe('by hand')
    await lease.release()
    expect(await hands[1]?.command('GET', `lock:${key}`)).toBe('by hand')
  })

  test('a key that is no lock on a majority is an error that says so', async () => {
    await Promise.all(hands.slice(0, 3).map((hand) => hand.command('LPUSH', `lock:${key}`, 'x')))
    await expect(locks.mutex(key).tryAcquire()).rejects.toThrow(/is a list, not a lock/)
    await Promise.all(hands.slice(0, 3).map((hand) => hand.command('DEL', `lock:${key}`)))
    await Promise.all(hands.slice(0, 3).map((hand) => hand.command('SET', `lock:${key}`, 'for ever')))
    await expect(locks.mutex(key).tryAcquire()).rejects.toThrow(/without expiry/)
  })

  test('clients that were brought are used, and stay open', async () => {
    const mine = createLocks(redlock({ clients, timeout: 300 }))
    const lease = await mine.mutex(key).acquire({ wait: '20s' })
    expect(await locks.mutex(key).tryAcquire()).toBeUndefined()
    await lease.release()
    await mine.close()
    expect(await clients[0]?.ping()).toBe('PONG')
  })

  test('what a majority cannot serve is refused when it is asked for', async () => {
    expect(() => locks.semaphore('gpu', 2)).toThrow(UnsupportedError)
    expect(() => locks.rw('doc').read).toThrow(UnsupportedError)
    expect(() => redlock({ clients: clients.slice(0, 4) })).toThrow(/odd number/)
    expect(() => redlock({ clients: clients.slice(0, 1) })).toThrow(/odd number/)
    expect(() => redlock({ clients: [clients[0], clients[0], clients[1]] as Redis[] })).toThrow(/twice/)
  })

  test('without a prefix, a key that would be one of our own is refused in the name of this engine, and nothing else', async () => {
    await using bare = await connected(await openRedlock(`${fleet.url}?timeout=300`, { prefix: '' }))
    const [failed, held] = await bare.enter([newClaim('hf1:counters'), newClaim(key)])
    expect(failed).toMatchObject({
      state: 'failed',
      error: { engine: 'redlock', message: expect.stringMatching(/^redlock: 'hf1:counters' begins like/) },
    })
    expect(held).toMatchObject({ state: 'held' })
  })

  test('doctor finds servers that can forget their counters, that refuse to answer, or that are frozen', async () => {
    const engine = await openRedlock(fleet.url)
    const named = async (): Promise<Record<string, string>> =>
      Object.fromEntries((await engine.diagnose()).map(({ name, status }) => [name, status]))
    expect(await named()).toMatchObject({
      servers: 'ok',
      durability: 'warn',
      version: 'ok',
      'clock skew': 'ok',
    })
    await Promise.all(hands.map((hand) => hand.command('CONFIG', 'SET', 'appendfsync', 'always')))
    expect(await named()).toMatchObject({ durability: 'ok' })
    await hands[0]?.command('ACL', 'SETUSER', 'default', '-info', '-time')
    onTestFinished(async () => {
      await hands[0]?.command('ACL', 'SETUSER', 'default', '+@all')
    })
    expect(await named()).toMatchObject({ servers: 'ok', questions: 'warn', durability: 'warn', version: 'ok' })
    fleet.servers[1]?.process?.pause()
    onTestFinished(() => fleet.servers[1]?.process?.resume())
    expect(await named()).toMatchObject({ servers: 'warn', questions: 'warn', version: 'ok' })
    await engine[Symbol.asyncDispose]()
  })
})
