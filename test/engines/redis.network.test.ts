/**
 * A bad network on the way to Redis: silence, lost replies, cut connections. A blip shorter than the lease is
 * invisible; a longer one aborts the work in time.
 */
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { openRedis, redis } from '../../src/engines/redis/index.ts'
import { channels, createLocks, EngineError, type Lease, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

type NodeRedis = ReturnType<typeof createClient>

await describeServer('a bad network before Redis', findOwnRedis, (source) => {
  let server: RedisServer
  let proxy: FaultProxy
  /** Behind the proxy, and not. */
  let behind: Locks
  let near: Locks
  const opened: AsyncDisposable[] = []

  async function open(port: number, ttl: '3s' | '6s' | '12s' | '600s'): Promise<Locks> {
    const locks = createLocks(await openRedis(`redis://127.0.0.1:${port}`), { ttl })
    opened.push(locks)
    return locks
  }

  /** How many connections listen. */
  async function listening(): Promise<number> {
    await using hand = await server.connect()
    return String(await hand.command('CLIENT', 'LIST', 'TYPE', 'pubsub')).split('\n').length - 1
  }

  const entries = async (key: string): Promise<number> => (await near.inspect(key)).entries.length

  beforeEach(async () => {
    server = await RedisServer.start(source)
    proxy = await FaultProxy.start(server)
    behind = await open(proxy.port, '3s')
    near = await open(server.port, '3s')
    // Connections stand before anything happens to them.
    await (await behind.mutex('warm up').acquire()).release()
  })

  afterEach(async () => {
    await proxy.heal()
    await Promise.all(opened.splice(0).map((one) => one[Symbol.asyncDispose]()))
    await proxy[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  /** Until a renewal of a lease of six seconds has been missed. */
  const missed = (lease: Lease): Promise<void> => vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(3700), LIMIT)

  test('a black hole shorter than the lease is invisible to holder and waiter', async () => {
    const patient = await open(proxy.port, '6s')
    const lease = await patient.mutex('key').acquire()
    proxy.blackHole()
    const asked = patient.mutex('other').acquire()
    await missed(lease)
    await proxy.heal()
    expect((await asked).held).toBe(true)
    await vi.waitFor(() => expect(lease.remainingMs).toBeGreaterThan(4000), LIMIT)
    expect(lease.signal.aborted).toBe(false)
  })

  test('a longer black hole aborts the work before the next one is let in, and the old holder cannot hurt it afterwards', async () => {
    const lease = await behind.mutex('key').acquire()
    const lost = vi.fn()
    lease.signal.addEventListener('abort', lost)
    const waiting = near.mutex('key').acquire()
    proxy.blackHole()
    const next = await waiting
    expect(lost).toHaveBeenCalled()
    await proxy.heal()
    expect(await lease.release()).toBe(false)
    expect(next.held).toBe(true)
    expect(next.token).toBeGreaterThan(lease.token as bigint)
    // The way is open again, on whatever connection.
    expect((await behind.mutex('other').acquire({ wait: '20s' })).held).toBe(true)
  })

  test.each(['refused', 'swallowed'] as const)(
    'a blip of half of the ttl that begins right before a renewal costs no lease: %s',
    async (how) => {
      const lease = await (await open(proxy.port, '12s')).mutex('edge').acquire()
      await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(8200), LIMIT)
      const leftMs = lease.remainingMs
      if (how === 'refused') await proxy.refuse()
      else proxy.blackHole()
      await vi.waitFor(() => expect(lease.remainingMs).toBeLessThan(leftMs - 6000), LIMIT)
      await proxy.heal()
      await vi.waitFor(() => expect(lease.held && lease.remainingMs < leftMs).toBe(false), LIMIT)
      expect(lease.held).toBe(true)
    },
  )

  test('an enter whose reply is lost with its connection is one entry, and is had', async () => {
    proxy.blackHole('replies')
    const asked = behind.mutex('key').acquire()
    await vi.waitFor(async () => expect(await entries('key')).toBe(1), LIMIT)
    proxy.reset()
    await proxy.heal()
    const lease = await asked
    expect(lease.held).toBe(true)
    expect(await entries('key')).toBe(1)
    expect(await lease.release()).toBe(true)
  })

  test('an enter that arrives long after it was given up does not hold the key', async () => {
    proxy.blackHole('requests')
    const cancel = new AbortController()
    const asked = behind.mutex('key').acquire({ signal: cancel.signal })
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    cancel.abort(new Error('enough'))
    await expect(asked).rejects.toThrow('enough')
    await proxy.heal()
    expect((await near.mutex('key').acquire()).held).toBe(true)
  })

  test('a release whose reply is lost frees the key', async () => {
    const lease = await behind.mutex('key').acquire()
    proxy.blackHole('replies')
    const released = lease.release()
    await vi.waitFor(async () => expect(await entries('key')).toBe(0), LIMIT)
    proxy.reset()
    await proxy.heal()
    await released
    expect(await near.mutex('key').tryAcquire()).toBeDefined()
  })

  test('a server that refuses connections: a try says so, surely without effect, and what waits is served when it is back', async () => {
    await proxy.refuse()
    // The first try may go out on a connection that has ended without our knowing yet.
    await vi.waitFor(async () => {
      const refusal: unknown = await behind
        .mutex('key')
        .tryAcquire()
        .catch((error: unknown) => error)
      expect(refusal).toMatchObject({
        outcome: 'not-applied',
        transient: true,
        message: expect.stringContaining('ECONNREFUSED'),
      })
    }, LIMIT)
    const asked = behind.mutex('key').acquire()
    await proxy.heal()
    expect((await asked).held).toBe(true)
  })

  test('connections that are cut again and again, under load, cost no caller a lock twice', async () => {
    const [one, other] = [await open(proxy.port, '3s'), await open(proxy.port, '3s')]
    let inside = 0
    let done = 0
    const work = [one, other, near].flatMap((locks) =>
      Array.from({ length: 5 }, async () => {
        for (let turn = 0; turn < 15; turn += 1) {
          const lease = await locks.mutex('key').acquire()
          inside += 1
          expect(inside, 'how many are inside').toBe(1)
          await new Promise(setImmediate)
          inside -= 1
          await lease.release()
          done += 1
        }
      }),
    )
    const settled = Promise.all(work)
    for (let before = done; done < 225; before = done) {
      proxy.reset()
      await vi.waitFor(() => expect(done).toBeGreaterThan(Math.min(before + 5, 224)), LIMIT)
    }
    await settled
  })

  test('a listening connection that is dead without having ended is noticed by the next beat, and made anew', async () => {
    const client = new Redis(server.port)
    // The client itself has a good way; only what it is duplicated to listens through the proxy.
    const duplicate = client.duplicate.bind(client)
    client.duplicate = (override) => duplicate({ ...override, port: proxy.port })
    const locks = createLocks(redis({ client }), { ttl: '3s' })
    const held = await near.mutex('key').acquire()
    const waiting = locks.mutex('key', { ttl: '3s' }).acquire()
    await vi.waitFor(async () => expect(await entries('key')).toBe(2), LIMIT)
    const before = proxy.size
    proxy.blackHole()
    await vi.waitFor(() => expect(proxy.size).not.toBe(before), LIMIT)
    await proxy.heal()
    await held.release()
    expect((await waiting).held).toBe(true)
    await locks.close()
    client.disconnect()
  })

  test('a listening connection that was forgotten by the network is noticed by the one waiter that it did not wake', async () => {
    const client = new Redis(server.port)
    const duplicate = client.duplicate.bind(client)
    client.duplicate = (override) => duplicate({ ...override, port: proxy.port })
    const locks = createLocks(redis({ client }), { ttl: '3s' })
    const held = await near.mutex('key').acquire()
    const waiting = locks.mutex('key').acquire()
    await vi.waitFor(async () => expect(await entries('key')).toBe(2), LIMIT)
    const before = proxy.size
    proxy.forget()
    await held.release()
    expect((await waiting).held).toBe(true)
    await vi.waitFor(() => expect(proxy.size).toBeGreaterThan(before), LIMIT)
    const other = await near.mutex('other').acquire()
    const woken = locks.mutex('other', { ttl: '600s' }).acquire({ wait: '30s' })
    await vi.waitFor(async () => expect(await entries('other')).toBe(2), LIMIT)
    await other.release()
    expect((await woken).held).toBe(true)
    await locks.close()
    client.disconnect()
  })

  test('handshakes that are never answered are given up: the process locks again, and is woken again', async () => {
    const patient = await open(proxy.port, '600s')
    await (await patient.mutex('warm up').acquire()).release()
    proxy.blackHole()
    proxy.reset()
    // Connected again: two clients, each with a second connection to listen on.
    await vi.waitFor(() => expect(proxy.size).toBeGreaterThanOrEqual(4), LIMIT)
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    proxy.forget()
    await proxy.heal()
    // The outage may have outlasted the ttl.
    await vi.waitFor(async () => expect((await behind.mutex('other').acquire()).held).toBe(true), LIMIT)
    const held = await near.mutex('key').acquire()
    const waiting = patient.mutex('key').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect(await entries('key')).toBe(2), LIMIT)
    await held.release()
    expect((await waiting).held).toBe(true)
  })

  test('node-redis, brought: a handshake of the listening connection that is never answered is given up', async () => {
    // Only what listens goes through the proxy: the main connection is its owner's.
    const [client, subscriber] = [server.port, proxy.port].map((port) =>
      createClient({ url: `redis://127.0.0.1:${port}` }).on('error', () => undefined),
    ) as [NodeRedis, NodeRedis]
    await client.connect()
    const locks = createLocks(redis({ client, subscriber }), { ttl: '600s' })
    opened.push(locks)
    const lease = await locks.mutex('key').acquire()
    await behind.close()
    proxy.blackHole()
    proxy.reset()
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    proxy.forget()
    await proxy.heal()
    // There is no waiter yet, whose renewals would find out. No other process listens.
    await vi.waitFor(async () => expect(await listening()).toBe(1), LIMIT)
    const waiting = locks.mutex('key').acquire({ wait: '30s' })
    await vi.waitFor(async () => expect(await entries('key')).toBe(2), LIMIT)
    await lease.release()
    expect((await waiting).held).toBe(true)
    await locks.close()
    client.destroy()
  })

  test('node-redis, brought with a limit for silence: a handshake that is never answered is given up', async () => {
    // As docs/engines/redis.md advises, but sooner.
    const limited = { pingInterval: 200, socket: { socketTimeout: 1000, reconnectStrategy: () => 100 } }
    const client = createClient({ url: `redis://127.0.0.1:${proxy.port}`, ...limited }).on('error', () => undefined)
    await client.connect()
    const engine = redis({ client })
    expect((await engine.diagnose()).map(({ name }) => name)).not.toContain('client')
    const locks = createLocks(engine, { ttl: '3s' })
    opened.push(locks)
    await (await locks.mutex('warm up').acquire()).release()
    await behind.close()
    proxy.blackHole()
    proxy.reset()
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    proxy.forget()
    await proxy.heal()
    await vi.waitFor(async () => expect((await locks.mutex('key').acquire()).held).toBe(true), LIMIT)
    await locks.close()
    client.destroy()
  })

  test('an outage is told through diagnostics, as calls that failed, and never as an unhandled error', async () => {
    const failed = vi.fn()
    channels.failure.subscribe(failed)
    const lease = await behind.mutex('key').acquire()
    await proxy.refuse()
    await vi.waitFor(() => expect(failed).toHaveBeenCalled(), LIMIT)
    channels.failure.unsubscribe(failed)
    const [[message]] = failed.mock.calls as [[{ error: unknown }]]
    expect(message.error).toBeInstanceOf(EngineError)
    await proxy.heal()
    expect(lease.held).toBe(true)
  })
})
