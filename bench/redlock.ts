/**
 * Redlock on five servers, beside the libraries that people use for it: what a lock costs with one caller and with a
 * hundred, while all servers are well, and while one of them has vanished without a word.
 */
import { createRequire } from 'node:module'
import { Redlock as SesameRedlock } from '@sesamecare-oss/redlock'
import { Redis } from 'ioredis'
import { RedlockMutex } from 'redis-semaphore'
import { openRedlock } from '../src/engines/redlock/index.ts'
import { createLocks } from '../src/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { FaultProxy } from '../test/servers/proxy.ts'
import { findOwnRedis, RedisServer } from '../test/servers/redis.ts'
import { type Contender, callers, figure, type Result, race, ratio, resultOf } from './driver.ts'

const SERVERS = 5
const TTL_MS = 30_000
/** Of one server that does not answer; each library that has such a setting gets it. */
const TIMEOUT_MS = 50
/** Some thousand pairs each: with one caller, it takes as many until all code is compiled. */
const WARM_UPS = 12

type Pair = (caller: number) => Promise<unknown>
type Redlock = new (
  clients: Redis[],
  options: object,
) => { lock(key: string, ttlMs: number): Promise<{ unlock(): PromiseLike<void> }> }

export async function run(): Promise<void> {
  const source = await findOwnRedis()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  const servers = await Promise.all(Array.from({ length: SERVERS }, () => RedisServer.start(source)))
  // Two of them behind proxies, which can swallow everything.
  const proxies = await Promise.all(servers.slice(0, 2).map((server) => FaultProxy.start(server)))
  const [proxy, second] = proxies as [FaultProxy, FaultProxy]
  const ports = [proxy.port, ...servers.slice(1).map(({ port }) => port)]
  const direct = servers.map(({ port }) => port)
  for (const count of [1, 100]) await healthy(direct, count)
  for (const count of [1, 100]) await oneVanished(ports, proxy, count)
  await twoVanish([proxy.port, second.port, ...direct.slice(2)], [proxy, second])
  for (const one of proxies) await one[Symbol.asyncDispose]()
  await Promise.all(servers.map((server) => server[Symbol.asyncDispose]()))
}

async function healthy(ports: readonly number[], count: number): Promise<void> {
  const { contenders, close } = await allContenders(ports, count)
  const results = await race(`acquire + release on ${SERVERS} servers, ${counted(count)}, all well`, contenders, {
    warmUps: WARM_UPS,
  })
  judge(results, 'at least 1.0 x')
  await close()
}

async function oneVanished(ports: readonly number[], proxy: FaultProxy, count: number): Promise<void> {
  const { contenders, close } = await allContenders(ports, count)
  proxy.blackHole()
  const results = await race(`acquire + release, ${counted(count)}, one server has vanished`, contenders, {
    rounds: 3,
    roundMs: 1000,
  })
  judge(results, 'at least 5 x those that wait for it')
  await close()
  await proxy.heal()
}

/** How much longer an acquire takes, at most, while two of five vanish without a word. */
async function twoVanish(ports: readonly number[], proxies: readonly FaultProxy[]): Promise<void> {
  const locks = createLocks(await openRedlock(urlOf(ports)), { ttl: TTL_MS })
  const longest = async (): Promise<number> => {
    let most = 0
    for (let round = 0; round < 500; round += 1) {
      const startedAt = performance.now()
      const lease = await locks.mutex(`vanishing:${round}`).acquire()
      most = Math.max(most, performance.now() - startedAt)
      await lease.release()
    }
    return most
  }
  await longest()
  const well = await longest()
  for (const proxy of proxies) proxy.blackHole()
  const without = await longest()
  console.log(`\nthe longest of 500 acquires, ${SERVERS} servers`)
  figure('all well', `${well.toFixed(1)} ms`)
  figure('two vanish', `${without.toFixed(1)} ms   (at most ${TIMEOUT_MS + 100} ms more)`)
  await locks.close()
  for (const proxy of proxies) await proxy.heal()
}

function urlOf(ports: readonly number[]): string {
  return `redlock://${ports.map((port) => `127.0.0.1:${port}`).join(',')}?timeout=${TIMEOUT_MS}`
}

function counted(count: number): string {
  return count === 1 ? '1 caller' : `${count} callers`
}

function judge(results: readonly Result[], wanted: string): void {
  const others = results.filter(({ name }) => !name.startsWith('holdfast'))
  const best = others.reduce((a, b) => (a.rate > b.rate ? a : b))
  figure(
    `holdfast to the best of the others, ${best.name}`,
    `${ratio(resultOf(results, 'holdfast'), best).toFixed(2)} x   (${wanted})`,
  )
}

/** Each with clients of its own; auto-pipelined where many call at once. */
async function allContenders(
  ports: readonly number[],
  count: number,
): Promise<{ contenders: readonly Contender[]; close(): Promise<void> }> {
  const clients: Redis[] = []
  const connect = (): Redis[] => {
    const made = ports.map(
      (port) =>
        new Redis({ port, enableAutoPipelining: count > 1, commandTimeout: TIMEOUT_MS, maxRetriesPerRequest: 0 }),
    )
    for (const client of made) client.on('error', () => undefined)
    clients.push(...made)
    return made
  }
  const locks = createLocks(await openRedlock(urlOf(ports)), {
    ttl: TTL_MS,
  })
  const mutexes = Array.from({ length: count }, (_, caller) => locks.mutex(`key:${caller}`))
  await Promise.all(mutexes.map((mutex) => mutex.using(async () => undefined)))
  const pairs: readonly (readonly [string, Pair])[] = [
    ...libraries(connect, count),
    ...(await universal(connect, count)),
    [
      'holdfast (fenced, renewed)',
      async (caller) => {
        const lease = await mutexes[caller]?.acquire()
        await lease?.release()
      },
    ],
  ]
  const close = async (): Promise<void> => {
    await locks.close()
    for (const client of clients) client.disconnect()
  }
  return { contenders: pairs.map(([name, pair]) => ({ name, run: callers(count, tolerant(pair)) })), close }
}

/** A library that fails while a server is away has done no pair in that time; it is not the end of the race. */
function tolerant(pair: Pair): Pair {
  return async (caller) => {
    for (;;) {
      try {
        return await pair(caller)
      } catch {
        // Again.
      }
    }
  }
}

function libraries(connect: () => Redis[], count: number): readonly (readonly [string, Pair])[] {
  const redlock = new (createRequire(import.meta.url)('redlock') as Redlock)(connect(), {})
  const sesame = new SesameRedlock(connect())
  const semaphoreClients = connect()
  const semaphores = Array.from(
    { length: count },
    (_, caller) =>
      new RedlockMutex(semaphoreClients, `semaphore:${caller}`, { lockTimeout: TTL_MS, refreshInterval: 0 }),
  )
  return [
    ['redlock', async (caller) => await (await redlock.lock(`redlock:${caller}`, TTL_MS)).unlock()],
    ['@sesamecare-oss/redlock', async (caller) => await (await sesame.acquire([`sesame:${caller}`], TTL_MS)).release()],
    [
      'redis-semaphore, RedlockMutex',
      async (caller) => {
        await semaphores[caller]?.acquire()
        await semaphores[caller]?.release()
      },
    ],
  ]
}

interface Universal {
  createRedlock(config: { adapters: object[]; key: string; ttl: number }): {
    acquire(): Promise<object>
    release(handle: object): Promise<boolean>
  }
  IoredisAdapter: new (client: Redis) => object
}

async function universal(connect: () => Redis[], count: number): Promise<readonly (readonly [string, Pair])[]> {
  try {
    const { createRedlock, IoredisAdapter } = (await import('redlock-universal' as string)) as Universal
    const adapters = connect().map((client) => new IoredisAdapter(client))
    const locks = Array.from({ length: count }, (_, caller) =>
      createRedlock({ adapters, key: `universal:${caller}`, ttl: TTL_MS }),
    )
    const pair: Pair = async (caller) => {
      const lock = locks[caller]
      if (lock !== undefined) await lock.release(await lock.acquire())
    }
    return [['redlock-universal', pair]]
  } catch (error) {
    // It says that it needs Node 22, and npm would warn of that at every installation of ours.
    console.log(
      `redlock-universal is not compared: npm install --no-save redlock-universal (${(error as Error).message.split('\n')[0]})`,
    )
    return []
  }
}
