/**
 * Servers that die, freeze and vanish: a minority of them costs no holder the lock, a majority costs a holder no more
 * than the lock.
 */
import { Redis } from 'ioredis'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { openRedlock, redlock } from '../../src/engines/redlock/index.ts'
import { createLocks, EngineError, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { connected, Fleet, urlOf } from './redlock-world.ts'

const LIMIT = { timeout: 30_000, interval: 20 }
const FAULTS = ['killed', 'frozen', 'black-holed'] as const
type Fault = (typeof FAULTS)[number]

await describeServer('Redlock on servers that fail', findOwnRedis, (source) => {
  let fleet: Fleet
  let proxies: readonly FaultProxy[]
  const open: Locks[] = []

  beforeAll(async () => {
    fleet = await Fleet.start(source)
    proxies = await Promise.all(fleet.servers.map((server) => FaultProxy.start(server)))
  })

  afterEach(async () => {
    await Promise.all(open.splice(0).map((locks) => locks.close()))
  })

  afterAll(async () => {
    for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    await fleet[Symbol.asyncDispose]()
  })

  async function locksOf(ttl: `${number}s` = '10s'): Promise<Locks> {
    // On a busy machine 50 ms are too short for five servers to be called dead.
    const engine = await openRedlock(`${urlOf(proxies.map(({ port }) => port))}?timeout=300`)
    const locks = createLocks(await connected(engine), { ttl })
    open.push(locks)
    return locks
  }

  async function fail(index: number, fault: Fault): Promise<void> {
    if (fault === 'killed') await fleet.servers[index]?.process?.kill()
    else if (fault === 'frozen') fleet.servers[index]?.process?.pause()
    else proxies[index]?.blackHole()
  }

  async function mend(index: number, fault: Fault): Promise<void> {
    if (fault === 'killed') await fleet.servers[index]?.process?.start()
    else if (fault === 'frozen') fleet.servers[index]?.process?.resume()
    else await proxies[index]?.heal()
  }

  test('servers whose handshakes were never answered are used again', async () => {
    const locks = await locksOf()
    await (await locks.mutex('before').acquire()).release()
    const three = proxies.filter((_, index) => index % 2 === 0)
    for (const proxy of three) {
      proxy.blackHole()
      proxy.reset()
    }
    // Connected again, each with a second connection to listen on.
    await vi.waitFor(() => expect(Math.min(...three.map(({ size }) => size))).toBeGreaterThanOrEqual(2), LIMIT)
    for (const proxy of three) {
      proxy.forget()
      await proxy.heal()
    }
    const lease = await locks.mutex('after').acquire({ wait: '30s' })
    expect(await lease.release()).toBe(true)
    for (const proxy of three) proxy.reset()
  })

  for (const fault of FAULTS) {
    test(`two of five are ${fault} while locks are taken: every one is had, held and released, and tokens rise`, async () => {
      const locks = await locksOf()
      let last = 0n
      const cycle = async (): Promise<void> => {
        const lease = await locks.mutex(`minority ${fault}`).acquire({ wait: '20s' })
        expect(lease.token).toBeGreaterThan(last)
        last = lease.token as bigint
        expect(await lease.release()).toBe(true)
      }
      for (let round = 0; round < 5; round += 1) await cycle()
      const breaking = [1, 3].map((index) => fail(index, fault))
      for (let round = 0; round < 20; round += 1) await cycle()
      await Promise.all(breaking)
      for (let round = 0; round < 20; round += 1) await cycle()
      const mending = [1, 3].map((index) => mend(index, fault))
      for (let round = 0; round < 20; round += 1) await cycle()
      await Promise.all(mending)
      await vi.waitFor(async () => expect(await fleet.stored()).toEqual([]), LIMIT)
    })

    test(`a lease is held on, past its ttl, while two of five are ${fault}`, async () => {
      const locks = await locksOf('4s')
      const other = await locksOf('4s')
      const lease = await locks.mutex(`on ${fault}`).acquire()
      await Promise.all([0, 4].map((index) => fail(index, fault)))
      // It is renewed every third of its ttl: the third time is past it.
      let [renewals, last] = [0, lease.remainingMs]
      await vi.waitFor(() => {
        const left = lease.remainingMs
        if (left > last) renewals += 1
        last = left
        expect(renewals, 'renewals').toBeGreaterThanOrEqual(3)
      }, LIMIT)
      expect(lease.held).toBe(true)
      expect(await other.mutex(`on ${fault}`).tryAcquire()).toBeUndefined()
      await Promise.all([0, 4].map((index) => mend(index, fault)))
      expect(await lease.release()).toBe(true)
    })

    test(`three of five are ${fault}: an asking is refused, and nothing is left of it`, async () => {
      const locks = await locksOf('2s')
      await (await locks.mutex('before').acquire()).release()
      await Promise.all([0, 2, 4].map((index) => fail(index, fault)))
      await expect(locks.mutex(`majority ${fault}`).tryAcquire()).rejects.toThrow(EngineError)
      await Promise.all([0, 2, 4].map((index) => mend(index, fault)))
      await vi.waitFor(async () => expect(await fleet.stored()).toEqual([]), LIMIT)
      await vi.waitFor(async () => {
        const lease = await locks.mutex(`majority ${fault}`).acquire({ wait: '5s' })
        await lease.release()
      }, LIMIT)
    })
  }
})

await describeServer('Redlock on a network that forgets connections', findOwnRedis, (source) => {
  test('listening connections that are dead without having ended are noticed by the next beat of a waiter, and made anew', async () => {
    await using fleet = await Fleet.start(source, 3, {})
    const proxies = await Promise.all(fleet.servers.map((server) => FaultProxy.start(server)))
    // The clients themselves have a good way; only what they are duplicated to listens through the proxies.
    const clients = fleet.servers.map(({ port }, index) => {
      const client = new Redis(port)
      const duplicate = client.duplicate.bind(client)
      client.duplicate = (override) => duplicate({ ...override, port: (proxies[index] as FaultProxy).port })
      return client
    })
    const near = createLocks(await connected(await openRedlock(`${fleet.url}?timeout=300`)), { ttl: '3s' })
    const locks = createLocks(redlock({ clients, timeout: '300ms' }), { ttl: '3s' })
    const entries = async (key: string): Promise<number> => (await near.inspect(key)).entries.length
    const held = await near.mutex('key').acquire()
    const waiting = locks.mutex('key').acquire()
    await vi.waitFor(async () => expect(await entries('key')).toBe(2), LIMIT)
    await vi.waitFor(() => expect(proxies.map(({ size }) => size)).toEqual([1, 1, 1]), LIMIT)
    for (const proxy of proxies) proxy.forget()
    await held.release()
    expect((await waiting).held).toBe(true)
    await vi.waitFor(() => expect(Math.min(...proxies.map(({ size }) => size))).toBeGreaterThan(1), LIMIT)
    const other = await near.mutex('other').acquire()
    const woken = locks.mutex('other', { ttl: '600s' }).acquire({ wait: '30s' })
    await vi.waitFor(async () => expect(await entries('other')).toBe(2), LIMIT)
    await other.release()
    expect((await woken).held).toBe(true)
    await Promise.all([near.close(), locks.close()])
    for (const client of clients) client.disconnect()
    for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
  })
})

await describeServer('Redlock on servers that forget', findOwnRedis, (source) => {
  test('a server that restarts empty is given the lock again by the next renewal, and lets no other holder in meanwhile', async () => {
    await using fleet = await Fleet.start(source, 3, {})
    const [one, other] = await Promise.all(
      [0, 1].map(async () =>
        createLocks(await connected(await openRedlock(`${fleet.url}?timeout=300`)), { ttl: '3s' }),
      ),
    )
    if (one === undefined || other === undefined) throw new Error('no locks')
    const lease = await one.mutex('kept').acquire()
    const [first] = fleet.servers
    await first?.process?.kill()
    await first?.process?.start()
    expect(await other.mutex('kept').tryAcquire()).toBeUndefined()
    await vi.waitFor(
      async () => expect((await fleet.stored()).filter((key) => key.includes('kept'))).toHaveLength(3),
      LIMIT,
    )
    expect(lease.held).toBe(true)
    await Promise.all([one.close(), other.close()])
  })

  test('two of three restart empty: a second one is let in beside the first, and has the higher token', async () => {
    await using fleet = await Fleet.start(source, 3, {})
    const one = createLocks(await connected(await openRedlock(`${fleet.url}?timeout=300`)), { ttl: '60s' })
    const lease = await one.mutex('broken').acquire()
    for (const { process } of fleet.servers.slice(1)) {
      await process?.kill()
      await process?.start()
    }
    const other = createLocks(await connected(await openRedlock(`${fleet.url}?timeout=300`)), { ttl: '60s' })
    const second = await other.mutex('broken').acquire({ wait: '20s' })
    expect({ first: lease.held, second: second.held }).toEqual({ first: true, second: true })
    expect(second.token).toBeGreaterThan(lease.token as bigint)
    await Promise.all([one.close(), other.close()])
  })
})
