/** Grants that replicas confirm: what counts as a majority, and what happens when they do not answer. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { openRedis } from '../../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 10 }

await describeServer('Redis with replicas', findOwnRedis, (source) => {
  let master: RedisServer
  let replicas: RedisServer[]
  const opened: Locks[] = []

  async function start(count: number, args: readonly string[] = []): Promise<void> {
    master = await RedisServer.start(source, { args })
    replicas = await Promise.all(
      Array.from({ length: count }, () =>
        RedisServer.start(source, { args: ['--replicaof', '127.0.0.1', `${master.port}`] }),
      ),
    )
    await vi.waitFor(async () => expect(await info('connected_slaves')).toBe(String(count)), LIMIT)
    await vi.waitFor(async () => expect(await tell('WAIT', String(count), '1000')).toBe(count), LIMIT)
  }

  async function tell(...command: readonly [string, ...string[]]): Promise<unknown> {
    await using client = await master.connect()
    return await client.command(...command)
  }

  async function info(field: string): Promise<string | undefined> {
    return new RegExp(`^${field}:(\\S+)`, 'm').exec(String(await tell('INFO')))?.[1]
  }

  async function open(replicas: number | undefined, ttl: '2s' | '30s' = '30s'): Promise<Locks> {
    const durability = replicas === undefined ? {} : { durability: { replicas, timeout: '200ms' as const } }
    const locks = createLocks(await openRedis(master.url, durability), { ttl })
    opened.push(locks)
    return locks
  }

  /** How many replicas know that the key is held with that token. */
  async function confirmed(serverKey: string, token: bigint | null): Promise<number> {
    let count = 0
    for (const replica of replicas) {
      await using client = await replica.connect()
      if (String(await client.command('GET', serverKey)).includes(`:${token} `)) count += 1
    }
    return count
  }

  beforeEach(() => {
    replicas = []
  })

  afterEach(async () => {
    for (const { process } of replicas) process?.resume()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
    await Promise.all([master, ...replicas].map((server) => server[Symbol.asyncDispose]()))
  })

  test('a majority confirms: locks are had, handed off and renewed, and the replicas have them', async () => {
    await start(2)
    const [one, other] = [await open(1, '2s'), await open(1, '2s')]
    const lease = await one.mutex('key').acquire()
    expect(await confirmed('lock:key', lease.token), 'how many replicas have it when it is had').toBeGreaterThanOrEqual(
      1,
    )
    const waiting = other.mutex('key').acquire()
    await vi.waitFor(async () => expect((await one.inspect('key')).entries).toHaveLength(2), LIMIT)
    await lease.release()
    const next = await waiting
    expect(await confirmed('lock:key', next.token), 'how many have it when it is handed off').toBeGreaterThanOrEqual(1)
    await vi.waitFor(() => expect(next.remainingMs).toBeLessThan(1500), LIMIT)
    await vi.waitFor(() => expect(next.remainingMs).toBeGreaterThan(1500), LIMIT)
    expect(next.held).toBe(true)
  })

  test('a majority confirms records: what is stored is there, and what is not confirmed may be', async () => {
    await start(1)
    const { engine } = await open(1)
    const put = (value: string): Promise<unknown> | undefined =>
      engine.store?.put([{ key: 'key', value: Buffer.from(value), ttlMs: null, when: {} }])
    // A replica that has come a moment ago may confirm late, which is an error that is worth another try.
    await vi.waitFor(async () => expect(await put('first')).toMatchObject([{ state: 'stored' }]), LIMIT)
    await using client = await (replicas[0] as RedisServer).connect()
    expect(await client.command('GET', 'hf1:record:{lock:key}')).toMatch(/ tfirst$/)
    replicas[0]?.process?.pause()
    await expect(put('second')).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
  })

  test('fewer than a majority are refused, with the number that would do', async () => {
    await start(3)
    const locks = await open(1)
    await expect(locks.mutex('key').acquire()).rejects.toMatchObject({
      transient: false,
      message: expect.stringContaining('so 2 have to confirm'),
    })
  })

  test('replicas that come later, and make it no majority, are noticed', async () => {
    await start(1)
    const locks = await open(1)
    await (await locks.mutex('key').acquire()).release()
    const more = Array.from({ length: 2 }, () =>
      RedisServer.start(source, { args: ['--replicaof', '127.0.0.1', `${master.port}`] }),
    )
    replicas.push(...(await Promise.all(more)))
    await vi.waitFor(async () => expect(await info('connected_slaves')).toBe('3'), LIMIT)
    // They are counted on every new connection, and now and then.
    await tell('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    await vi.waitFor(async () => {
      const refusal = await locks
        .mutex('key')
        .tryAcquire()
        .catch((error: unknown) => error)
      expect(refusal).toMatchObject({ transient: false, message: expect.stringContaining('so 2 have to confirm') })
    }, LIMIT)
  })

  test('a confirmation that another connection would give counts for nothing', async () => {
    await start(1)
    const locks = await open(1)
    await (await locks.mutex('before').acquire()).release()
    replicas[0]?.process?.pause()
    const asked = locks
      .mutex('key')
      .acquire({ wait: 0 })
      .catch((error: unknown) => error)
    await vi.waitFor(async () => expect(await tell('EXISTS', 'lock:key')).toBe(1), LIMIT)
    // WAIT on a connection that has written nothing is content at once.
    await tell('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes')
    expect(await asked).toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
  })

  test('replicas that do not answer: a try fails, what waits is had when they are back, and no other had it meanwhile', async () => {
    await start(1)
    const [locks, other] = [await open(1), await open(undefined)]
    await (await locks.mutex('before').acquire()).release()
    replicas[0]?.process?.pause()
    await expect(locks.mutex('key').tryAcquire()).rejects.toMatchObject({
      outcome: 'unknown',
      message: expect.stringContaining('0 of 1 replicas'),
    })
    const asked = locks.mutex('other').acquire()
    await vi.waitFor(async () => expect((await other.inspect('other')).entries).toHaveLength(1), LIMIT)
    expect(await other.mutex('other').tryAcquire()).toBeUndefined()
    replicas[0]?.process?.resume()
    expect((await asked).held).toBe(true)
  })

  test.each([0, -1, 1.5])('replicas: %s is no number of replicas', async (count) => {
    await start(0)
    await expect(openRedis(master.url, { durability: { replicas: count } })).rejects.toThrow(RangeError)
  })
})
