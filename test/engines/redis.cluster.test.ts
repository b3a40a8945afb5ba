/**
 * A Redis Cluster of three masters conforms, and a slot that is moved under load costs no holder a lock. What is wrong
 * with one server, or with the way to it, stays there.
 */
import { Decoder, GlideClusterClient } from '@valkey/valkey-glide'
import { Cluster } from 'ioredis'
import { createCluster } from 'redis'
import { afterAll, afterEach, beforeAll, describe, expect, it, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { slotOf } from '../../src/clients/redis/names.ts'
import type { Put, When } from '../../src/core/store.ts'
import { openRedis, type RedisOptions, redis } from '../../src/engines/redis/index.ts'
import { createLocks, type Lease, type Locks } from '../../src/index.ts'
import { ClusterDeployment, thirdOf } from '../servers/cluster.ts'
import type { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis, type RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { ExclusiveLoad } from './members.ts'
import { deploymentWorld } from './redis-world.ts'

const LIMIT = { timeout: 30_000, interval: 5 }

interface Brought {
  readonly options: RedisOptions
  close(): unknown
}

const brought: readonly { readonly name: string; make(cluster: ClusterDeployment): Promise<Brought> }[] = [
  {
    name: 'ioredis',
    async make({ addresses }) {
      const client = new Cluster([...addresses])
      return { options: { client }, close: () => client.disconnect() }
    },
  },
  {
    name: 'ioredis with a key prefix',
    async make({ addresses }) {
      const client = new Cluster([...addresses], { keyPrefix: 'app:' })
      return { options: { client }, close: () => client.disconnect() }
    },
  },
  {
    name: 'node-redis',
    async make({ addresses }) {
      const client = createCluster({
        rootNodes: addresses.map(({ host, port }) => ({ url: `redis://${host}:${port}` })),
      })
      await client.connect()
      return { options: { client }, close: () => client.destroy() }
    },
  },
  {
    name: 'valkey-glide with a subscriber',
    async make({ addresses }) {
      const options = { addresses: [...addresses], requestTimeout: 5000, defaultDecoder: Decoder.String }
      const [client, subscriber] = [
        await GlideClusterClient.createClient(options),
        await GlideClusterClient.createClient(options),
      ]
      return {
        options: { client, subscriber },
        close: () => {
          client.close()
          subscriber.close()
        },
      }
    },
  },
]

await describeServer('a Redis Cluster', findOwnRedis, ({ program }) => {
  const starting = ClusterDeployment.start(program)
  const opened: Locks[] = []

  async function open(ttl: '3s' | '30s'): Promise<Locks> {
    const locks = createLocks(await openRedis((await starting).url), { ttl })
    opened.push(locks)
    return locks
  }

  afterAll(async () => {
    await Promise.all(opened.map((locks) => locks.close()))
    await (await starting)[Symbol.asyncDispose]()
  })

  conformance({ describe, it, afterAll }, 'redis cluster', () => deploymentWorld(starting))

  test('one batch for lines on all servers is answered in order', async () => {
    const locks = await open('30s')
    const keys = Array.from({ length: 300 }, (_, index) => `spread:${index}`)
    const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()))
    expect(leases.map(({ key }) => key)).toEqual(keys)
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual(keys.map(() => true))
  })

  describe.each(brought)('a client that is brought: $name', ({ make }) => {
    test('locks on all servers are had, waited for, handed off, watched and listed', async () => {
      const { options, close } = await make(await starting)
      const locks = createLocks(redis({ prefix: 'brought:', ...options }), { ttl: '30s' })
      const keys = Array.from({ length: 30 }, (_, index) => `key ${index}`)
      const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()))
      const waiting = Promise.all(keys.map((key) => locks.mutex(key).acquire()))
      await vi.waitFor(async () => expect((await locks.inspect('key 29')).entries).toHaveLength(2), LIMIT)
      const changed = vi.fn()
      await using _watching = await locks.engine.watch?.('key 7', changed)
      const listed: string[] = []
      for await (const { key, held, waiting } of locks.engine.list('')) listed.push(`${key}: ${held}, ${waiting}`)
      expect(listed.sort()).toEqual(keys.map((key) => `${key}: 1, 1`).sort())
      expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual(keys.map(() => true))
      const next = await waiting
      expect(next.every((lease, index) => (lease.token ?? 0n) > (leases[index]?.token ?? 0n))).toBe(true)
      await vi.waitFor(() => expect(changed).toHaveBeenCalled(), LIMIT)
      await Promise.all(next.map((lease) => lease.release()))
      await locks.close()
      await close()
    })
  })

  test('the Cluster is down for less than a ttl: leases on all servers go on, and callers that ask meanwhile are served', async () => {
    const cluster = await starting
    const locks = await open('30s')
    const keys = Array.from({ length: 30 }, (_, index) => `down:${index}`)
    const leases = await Promise.all(keys.map((key) => locks.mutex(key, { ttl: '20s' }).acquire()))
    const [frozen, other] = await cluster.masters()
    frozen?.process?.pause()
    await using client = await (other as RedisServer).connect()
    const state = async (): Promise<string> => String(await client.command('CLUSTER', 'INFO'))
    await vi.waitFor(async () => expect(await state()).toContain('cluster_state:fail'), LIMIT)
    await expect(client.command('GET', 'x')).rejects.toThrow('CLUSTERDOWN')
    const asked = Promise.all(keys.map((key) => locks.mutex(`${key}:new`).acquire()))
    frozen?.process?.resume()
    expect((await asked).every(({ held }) => held)).toBe(true)
    expect(leases.every(({ held, signal }) => held && !signal.aborted)).toBe(true)
    expect(await Promise.all(leases.map((lease) => lease.release()))).toEqual(keys.map(() => true))
  })

  test('a slot is moved under load: no holder loses a lock or meets another one, tokens rise', async () => {
    const cluster = await starting
    const [one, other] = [await open('30s'), await open('30s')]
    const key = 'moved'
    const slot = slotOf(`lock:${key}`)
    // Held all the time, alone in its line: its keys do not all exist, which is what makes a move hard.
    const held = await one.mutex(`{lock:${key}}:held`, { ttl: '3s' }).acquire()
    expect(slotOf(`lock:{lock:${key}}:held`)).toBe(slot)
    const load = new ExclusiveLoad([one, other], key)
    for (let move = 0; move < 4; move += 1) {
      const { finish } = await cluster.beginMove(slot, ((await cluster.ownerOf(slot)) + 1) % 3)
      try {
        await vi.waitFor(() => expect(held.remainingMs).toBeLessThan(2500), LIMIT)
        await vi.waitFor(() => expect(held.remainingMs).toBeGreaterThan(2500), LIMIT)
      } finally {
        await finish()
      }
      await load.advance(20)
    }
    await load.end()
    expect(held.signal.aborted).toBe(false)
    expect(await held.release()).toBe(true)
  })
})

await describeServer('a Redis Cluster of which a server is frozen', findOwnRedis, ({ program }) => {
  test('only the leases on that server are lost', async () => {
    await using cluster = await ClusterDeployment.start(program, ['--cluster-require-full-coverage', 'no'])
    const locks = createLocks(await openRedis(cluster.url), { ttl: '3s' })
    const keys = Array.from({ length: 120 }, (_, index) => `lease:${index}`)
    const owners = new Map<string, number>()
    for (const key of keys) owners.set(key, thirdOf(slotOf(`lock:${key}`)))
    const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()))
    const [frozen] = await cluster.masters()
    const [doomed, healthy] = [true, false].map((on) => leases.filter(({ key }) => (owners.get(key) === 0) === on))
    const lost = new Set<string>()
    for (const lease of leases) lease.signal.addEventListener('abort', () => lost.add(lease.key))
    frozen?.process?.pause()
    // For one and a half ttls.
    await vi.waitFor(() => expect(doomed?.filter(({ held }) => held)).toEqual([]), LIMIT)
    for (const limit of [2000, 2500]) {
      await vi.waitFor(() => expect(healthy?.some(({ remainingMs }) => remainingMs < limit)).toBe(true), LIMIT)
      await vi.waitFor(() => expect(healthy?.every(({ remainingMs }) => remainingMs > limit)).toBe(true), LIMIT)
    }
    frozen?.process?.resume()
    expect([...lost].sort()).toEqual(doomed?.map(({ key }) => key).sort())
    await locks.close()
  })
})

await describeServer('a Redis Cluster to one server of which the way is bad', findOwnRedis, ({ program }) => {
  let cluster: ClusterDeployment
  let proxies: readonly FaultProxy[]
  const opened: Locks[] = []

  beforeAll(async () => {
    cluster = await ClusterDeployment.start(program)
    proxies = await cluster.behindProxies()
  })
  afterEach(async () => {
    for (const proxy of proxies) await proxy.heal()
    await Promise.all(opened.splice(0).map((locks) => locks.close()))
  })
  afterAll(async () => {
    for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
    await cluster[Symbol.asyncDispose]()
  })

  async function open(ttl: '3s' | '20s'): Promise<Locks> {
    const url = `redis-cluster://${proxies.map(({ port }) => `127.0.0.1:${port}`).join(',')}`
    const locks = createLocks(await openRedis(url), { ttl })
    opened.push(locks)
    return locks
  }

  /** Leases on all three servers, and on which server each of them is. */
  async function acquired(locks: Locks, label: string): Promise<{ readonly lease: Lease; readonly third: number }[]> {
    const keys = Array.from({ length: 30 }, (_, index) => `${label}:${index}`)
    const leases = await Promise.all(keys.map((key) => locks.mutex(key).acquire()))
    return leases.map((lease) => ({ lease, third: thirdOf(slotOf(`lock:${lease.key}`)) }))
  }

  test('flows to one server that the network has forgotten are noticed: its leases go on, and new locks are had', async () => {
    const locks = await open('20s')
    const leases = await acquired(locks, 'forgotten')
    const [there, elsewhere] = [true, false].map((on) =>
      leases.filter(({ third }) => (third === 0) === on).map(({ lease }) => lease),
    )
    const first = there?.[0] as Lease
    const waiting = locks.mutex(first.key).acquire({ wait: '60s' })
    // The test may fail before it is awaited.
    waiting.catch(() => undefined)
    await vi.waitFor(async () => expect((await locks.inspect(first.key)).entries).toHaveLength(2), LIMIT)
    expect(proxies[0]?.size).toBeGreaterThan(0)
    proxies[0]?.forget()
    // The others answer all the time: not the whole Cluster is silent.
    for (const lease of elsewhere ?? []) expect(await lease.release()).toBe(true)
    await locks.mutex(`{lock:${first.key}}:new`).acquire({ wait: '60s' })
    expect(there?.filter(({ held }) => !held)).toEqual([])
    expect(await first.release()).toBe(true)
    expect((await waiting).held).toBe(true)
  })

  test('a black hole before one server, for longer than a ttl: leases on the others go on, and it is had again when it is over', async () => {
    const locks = await open('3s')
    const leases = await acquired(locks, 'black hole')
    const [doomed, healthy] = [true, false].map((on) => leases.filter(({ third }) => (third === 0) === on))
    const lost = new Set<Lease>()
    for (const { lease } of leases) lease.signal.addEventListener('abort', () => lost.add(lease))
    proxies[0]?.blackHole()
    await vi.waitFor(() => expect(doomed?.filter(({ lease }) => lease.held)).toEqual([]), LIMIT)
    for (const limit of [2000, 2500]) {
      await vi.waitFor(() => expect(healthy?.some(({ lease }) => lease.remainingMs < limit)).toBe(true), LIMIT)
      await vi.waitFor(() => expect(healthy?.every(({ lease }) => lease.remainingMs > limit)).toBe(true), LIMIT)
    }
    await proxies[0]?.heal()
    expect([...lost].map(({ key }) => key).sort()).toEqual(doomed?.map(({ lease }) => lease.key).sort())
    for (const { lease } of doomed ?? []) await locks.mutex(lease.key).acquire({ wait: '30s' })
  })

  test('a change whose answer is lost is sent once: it is of unknown outcome, and not refused for what it did itself', async () => {
    const { store } = (await open('20s')).engine
    const key = Array.from({ length: 100 }, (_, index) => `sent once:${index}`).find(
      (one) => thirdOf(slotOf(`lock:${one}`)) === 0,
    ) as string
    const put = async (text: string, when: When): Promise<Put | undefined> =>
      (await store?.put([{ key, value: Buffer.from(text), ttlMs: null, when }]))?.[0]
    await vi.waitFor(async () => expect(await put('first', {})).toMatchObject({ state: 'stored' }), LIMIT)
    const { version } = (await put('second', {})) as { readonly version: bigint }
    proxies[0]?.blackHole('replies')
    const changing = put('third', { version })
    await using server = await ((await cluster.masters())[0] as RedisServer).connect()
    const stored = async (): Promise<string> => String(await server.command('GET', `hf1:record:{lock:${key}}`))
    await vi.waitFor(async () => expect(await stored()).toMatch(/ tthird$/), LIMIT)
    proxies[0]?.reset()
    await proxies[0]?.heal()
    expect(await changing).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
  })
})

await describeServer('a Redis Cluster that a server is taken out of', findOwnRedis, ({ program }) => {
  /** How many connections listen on each server. */
  async function listeners(cluster: ClusterDeployment): Promise<readonly number[]> {
    return await Promise.all(
      (await cluster.masters()).map(async (server) => {
        await using client = await server.connect()
        return String(await client.command('CLIENT', 'LIST', 'TYPE', 'pubsub')).split('\n').length - 1
      }),
    )
  }

  test.each([
    { ttl: '3s', how: 'a renewal of the waiter finds out' },
    { ttl: '600s', how: 'the client finds out, when it asks for what was moved' },
  ] as const)('a process that listened to it listens to another one: $how', async ({ ttl }) => {
    await using cluster = await ClusterDeployment.start(program)
    const locks = createLocks(await openRedis(cluster.url), { ttl })
    const keys = Array.from({ length: 100 }, (_, index) => `key:${index}`)
    const keyOf = (third: number): string => keys.find((key) => thirdOf(slotOf(`lock:${key}`)) === third) as string
    await (await locks.mutex('subscribed').acquire()).release()
    const leaving = (await listeners(cluster)).indexOf(1)
    const key = keyOf((leaving + 1) % 3)
    const lease = await locks.mutex(key).acquire()
    const waiting = locks.mutex(key).acquire({ wait: '60s' })
    await vi.waitFor(async () => expect((await locks.inspect(key)).entries).toHaveLength(2), LIMIT)
    await cluster.takeOut(leaving)
    // While it learns who has these slots now, the client may fail.
    if (ttl === '600s') await locks.inspect(keyOf(leaving)).catch(() => undefined)
    await vi.waitFor(async () => {
      const found = await listeners(cluster)
      expect([found[leaving], found.reduce((sum, count) => sum + count)]).toEqual([0, 1])
    }, LIMIT)
    await lease.release()
    expect((await waiting).held).toBe(true)
    await locks.close()
  })
})
