/**
 * What is given back is gone, on every server, long before its ttl is over: whatever the servers know, and also when
 * the engine is closed. And what was counted is not counted again.
 */
import { afterEach, expect, test, vi } from 'vitest'
import { openRedlock, type RedlockEngine } from '../../src/engines/redlock/index.ts'
import { leave } from '../../src/engines/redlock/scripts.ts'
import { createLocks, type Lease, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis, type RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { connected, Fleet, urlOf } from './redlock-world.ts'

const LIMIT = { timeout: 20_000, interval: 20 }
/** Far longer than any test waits: what is gone was given back. */
const TTL = '300s'

await describeServer('what Redlock leaves behind', findOwnRedis, (source) => {
  const open: AsyncDisposable[] = []

  afterEach(async () => {
    for (const one of open.splice(0).toReversed()) await one[Symbol.asyncDispose]()
  })

  async function fleetOf(options = {}): Promise<Fleet> {
    const fleet = await Fleet.start(source, 3, options)
    open.push(fleet)
    return fleet
  }

  async function proxiesOf(fleet: Fleet): Promise<readonly FaultProxy[]> {
    const proxies = await Promise.all(fleet.servers.map((server) => FaultProxy.start(server)))
    open.push(...proxies)
    return proxies
  }

  async function engineOf(via: readonly { readonly port: number }[]): Promise<RedlockEngine> {
    const engine = await connected(await openRedlock(`${urlOf(via.map(({ port }) => port))}?timeout=300`))
    open.push(engine)
    return engine
  }

  async function locksOf(via: readonly { readonly port: number }[], ttl: `${number}s` = TTL): Promise<Locks> {
    return createLocks(await engineOf(via), { ttl })
  }

  async function command(server: RedisServer | undefined, ...words: readonly string[]): Promise<unknown> {
    if (server === undefined) throw new Error('no such server')
    await using client = await server.connect()
    return await client.command(...(words as [string]))
  }

  test('a server that restarts empty and is repaired by one holder gives no other holder a number that was given before', async () => {
    const fleet = await fleetOf()
    const [forOne, forOther] = [await proxiesOf(fleet), await proxiesOf(fleet)]
    const [one, other] = [await locksOf(forOne, '3s'), await locksOf(forOther, '3s')]
    // These two have one counter.
    await one.mutex('{x}a').acquire()
    await (await other.mutex('{x}b').acquire()).release()
    let last = 0n
    const cycle = async (): Promise<void> => {
      const lease = await other.mutex('{x}b').acquire({ wait: '20s' })
      expect(lease.token).toBeGreaterThan(last)
      last = lease.token as bigint
      await lease.release()
    }
    await forOther[2]?.refuse()
    for (let round = 0; round < 5; round += 1) await cycle()
    await fleet.servers[1]?.process?.kill()
    await fleet.servers[1]?.process?.start()
    await vi.waitFor(
      async () => expect((await fleet.stored()).filter((key) => key.includes('{x}a'))).toHaveLength(3),
      LIMIT,
    )
    // From now on it reaches the one that has forgotten, and the one that was away.
    await forOther[0]?.refuse()
    await forOther[2]?.heal()
    await vi.waitFor(cycle, LIMIT)
    for (let round = 0; round < 3; round += 1) await cycle()
  })

  test('a server that has lost the script for taking, and not that for leaving, keeps nothing', async () => {
    const fleet = await fleetOf()
    const proxies = await proxiesOf(fleet)
    const locks = await locksOf(proxies)
    await (await locks.mutex('warm').acquire()).release()
    // Its answers come after the others have decided.
    proxies[2]?.delay(20)
    await command(fleet.servers[2], 'SCRIPT', 'FLUSH')
    await command(fleet.servers[2], 'SCRIPT', 'LOAD', leave.text)
    await (await locks.mutex('unknown script').acquire()).release()
    await vi.waitFor(async () => expect(Number(await command(fleet.servers[2], 'HLEN', 'hf1:counters'))).toBe(2), LIMIT)
    await vi.waitFor(async () => expect(await fleet.stored()).toEqual([]), LIMIT)
  })

  test('servers that come and come back know the scripts before they are asked', async () => {
    const fleet = await fleetOf()
    const locks = await locksOf(fleet.servers)
    const [first] = fleet.servers
    await (await locks.mutex('known').acquire()).release()
    await first?.process?.kill()
    await first?.process?.start()
    await vi.waitFor(async () => {
      await (await locks.mutex('known').acquire()).release()
      expect(await command(first, 'HLEN', 'hf1:counters')).not.toBe(0)
    }, LIMIT)
    for (const server of fleet.servers)
      expect(String(await command(server, 'INFO', 'errorstats'))).not.toContain('NOSCRIPT')
  })

  test('an engine that is closed right after a release leaves nothing, though a script was not known and a server is slower than the others', async () => {
    const fleet = await fleetOf()
    const proxies = await proxiesOf(fleet)
    const locks = await locksOf(proxies)
    const lease = await locks.mutex('closing').acquire()
    await vi.waitFor(async () => expect(await fleet.stored()).toHaveLength(3), LIMIT)
    proxies[2]?.delay(30)
    await command(fleet.servers[2], 'SCRIPT', 'FLUSH')
    await lease.release()
    await locks.close()
    await vi.waitFor(async () => expect(await fleet.stored()).toEqual([]), LIMIT)
  })

  test('more is given back to a server that was away than one message can carry', async () => {
    const fleet = await fleetOf({ args: ['--appendonly', 'yes'] })
    const locks = await locksOf(fleet.servers)
    const [, , third] = fleet.servers
    const leases: Lease[] = []
    // A majority of two decides without the third server: what is acquired before the third is connected, or while it
    // is slow, is not on it. So locks are acquired until it has enough of them, however many that takes.
    while (Number(await command(third, 'DBSIZE')) <= 8_200) {
      const keys = Array.from({ length: 100 }, (_, index) => `${leases.length + index}`)
      leases.push(...(await Promise.all(keys.map((key) => locks.mutex(key).acquire()))))
    }
    await third?.process?.kill()
    for (let at = 0; at < leases.length; at += 100)
      await Promise.all(leases.slice(at, at + 100).map((lease) => lease.release()))
    await third?.process?.start()
    await vi.waitFor(async () => expect(await fleet.stored()).toEqual([]), LIMIT)
  })

  test('a subscription that was given up does not silence the one after it', async () => {
    const fleet = await fleetOf()
    const engine = await engineOf(fleet.servers)
    const other = await locksOf(fleet.servers)
    const news: unknown[] = []
    const first = await engine.subscribe?.(() => undefined)
    await engine.subscribe?.((one) => news.push(one))
    await first?.[Symbol.asyncDispose]()
    const held = await other.mutex('told').acquire()
    const id = 'f'.repeat(32)
    const [standing] = await engine.enter([
      { key: 'told', id, holder: 'h', weight: 1, limit: 1, ttlMs: 30_000, wait: true },
    ])
    expect(standing?.state).toBe('waiting')
    await held.release()
    await vi.waitFor(() => expect(news).toContainEqual({ key: 'told', id }), LIMIT)
  })

  test('what is remembered of evictions is forgotten when it is over, also where there are always some', async () => {
    const fleet = await fleetOf()
    const engine = await engineOf(fleet.servers)
    const evict = async (key: string, ttlMs: number): Promise<void> => {
      const claim = { key, id: key, holder: 'h', weight: 1, limit: 1, ttlMs, wait: false }
      const [standing] = await engine.enter([claim])
      if (standing?.state !== 'held') throw new Error(`${key} is ${standing?.state}`)
      expect(await engine.evict(key, standing.token as bigint, 'now')).toBe(true)
    }
    // It lives for long, and with it what holds them all.
    await evict('long', 300_000)
    await evict('short', 1_200)
    await vi.waitFor(
      async () => {
        await evict(`later.${performance.now()}`, 300_000)
        expect(await command(fleet.servers[0], 'HEXISTS', 'hf1:redlock:evicted', 'short')).toBe(0)
      },
      { timeout: 20_000, interval: 300 },
    )
    expect(await command(fleet.servers[0], 'HEXISTS', 'hf1:redlock:evicted', 'long')).toBe(1)
  })

  test('a lease that is to outlive its process does so on a server that had lost it, too', async () => {
    const fleet = await fleetOf()
    const engine = await engineOf(fleet.servers)
    const place = { key: 'outlives', id: 'o', ttlMs: 60_000 }
    await engine.enter([{ ...place, holder: 'h', weight: 1, limit: 1, wait: false }])
    await vi.waitFor(async () => expect(await fleet.stored()).toHaveLength(3), LIMIT)
    await command(fleet.servers[0], 'DEL', 'lock:outlives')
    await engine.renew([{ ...place, ttlMs: 120_000, outlives: true }])
    const flags = async (): Promise<readonly unknown[]> =>
      await Promise.all(
        fleet.servers.map(async (server) => String(await command(server, 'GET', 'lock:outlives')).split(' ')[2]),
      )
    await vi.waitFor(async () => expect(await flags()).toEqual(['o', 'o', 'o']), LIMIT)
  })
})
