/**
 * `cache` on the engines that cache.processes.test.ts leaves out: three clients of one server miss together, the value
 * is invalidated while it is made, and a stale one is refreshed by one of them.
 */
import { describe, expect, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import type { Locks } from '../../src/locks.ts'
import { type CacheOptions, cache } from '../../src/recipes/cache/index.ts'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { findZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { gate } from '../unit/once-world.ts'

const LIMIT_MS = 60_000
const CLIENTS = 3

async function serve(url: string, store?: Locks): Promise<void> {
  const fleet = await Promise.all(Array.from({ length: CLIENTS }, () => connect(url, { ttl: '5s' })))
  try {
    const cachesOf = (options: CacheOptions) =>
      fleet.map((locks) => cache(locks, { ...options, ...(store && { store }) }))
    await missTogether(cachesOf({ ttl: '1m' }))
    await invalidateMeanwhile(cachesOf({ ttl: '1m', name: 'changing' }))
    await refreshOnce(cachesOf({ ttl: '1s', stale: '1m', jitter: 0, name: 'stale' }))
  } finally {
    await Promise.all(fleet.map((locks) => locks.close()))
  }
}

type Caches = readonly ReturnType<typeof cache>[]

/** A fill that waits until it is told, and counts. */
function slowFill(): { count: number; fill(): Promise<string>; end(value: string): void } {
  const { opened, open } = gate<string>()
  const made = {
    count: 0,
    fill: () => {
      made.count += 1
      return opened
    },
    end: open,
  }
  return made
}

async function missTogether(caches: Caches): Promise<void> {
  const slow = slowFill()
  const asked = caches.flatMap((pages) => [pages.get('page', slow.fill), pages.get('page', slow.fill)])
  await expect.poll(() => slow.count, { timeout: 10_000 }).toBe(1)
  slow.end('made')
  expect(new Set(await Promise.all(asked))).toEqual(new Set(['made']))
  expect(slow.count).toBe(1)
}

async function invalidateMeanwhile(caches: Caches): Promise<void> {
  const slow = slowFill()
  const before = caches[0]?.get('page', slow.fill)
  await expect.poll(() => slow.count, { timeout: 10_000 }).toBe(1)
  await caches[1]?.invalidate('page')
  const after = caches.map((pages) => pages.get('page', () => 'new'))
  slow.end('old')
  expect(await before).toBe('old')
  expect(new Set(await Promise.all(after))).toEqual(new Set(['new']))
}

async function refreshOnce(caches: Caches): Promise<void> {
  await caches[0]?.get('page', () => 'old')
  const slow = slowFill()
  // A fresh one is not refreshed: ask until it is stale.
  const ask = async (): Promise<number> => {
    for (const pages of caches) expect(await pages.get('page', slow.fill)).toBe('old')
    return slow.count
  }
  await expect.poll(ask, { timeout: 20_000 }).toBe(1)
  await ask()
  slow.end('new')
  await expect.poll(() => caches[1]?.get('page', slow.fill), { timeout: 20_000 }).toBe('new')
  expect(slow.count).toBe(1)
}

await describeServer('a cache on etcd', findEtcd, (source) => {
  test('is filled once, and forgets', { timeout: LIMIT_MS }, async () => {
    await using server = await EtcdServer.start(source)
    await serve(server.url)
  })
})

await describeServer('a cache on ZooKeeper', findZooKeeper, (source) => {
  test('is filled once, and forgets', { timeout: LIMIT_MS }, async () => {
    await using server = await ZooKeeperServer.start(source)
    await serve(server.url)
  })
})

await describeServer('a cache beside session locks of PostgreSQL', findPostgres, (source) => {
  test('is filled once, and forgets', { timeout: LIMIT_MS }, async () => {
    await using server = await PostgresServer.start(source)
    const database = await server.database()
    await serve(database.replace(/^postgres(ql)?:/, 'postgres-advisory:'))
    await server.drop(database)
  })
})

await describeServer('a cache of a Redlock, with records elsewhere', findOwnRedis, (source) => {
  test('is filled once, and forgets', { timeout: LIMIT_MS }, async () => {
    const servers = await Promise.all([1, 2, 3].map(() => RedisServer.start(source)))
    const hosts = servers.map(({ url }) => new URL(url).host).join(',')
    await using store = await connect('memory:')
    await serve(`redlock://${hosts}`, store)
    for (const server of servers) await server[Symbol.asyncDispose]()
  })
})

describe('a cache on a stand-in for MongoDB', () => {
  test('is filled once, and forgets', { timeout: LIMIT_MS }, async () => {
    const server = await StandIn.start({ replicaSet: true })
    await serve(server.url)
    await server.close()
  })
})
