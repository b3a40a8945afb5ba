/**
 * What `cache` costs beside bentocache, on one Redis: hits, by one caller and by a hundred at once. Neither has a first
 * level. And how soon those who wait for a fill of another process are given its value, by the two ways to wake them:
 * all at once, as readers behind the filler, or one after the other.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { BentoCache, bentostore } from 'bentocache'
import { redisDriver } from 'bentocache/drivers/redis'
import { Redis } from 'ioredis'
import { delegate } from '../conformance/delegate.ts'
import { redis } from '../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../src/locks.ts'
import { cache } from '../src/recipes/cache/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { callers, figure, median, percentile, race } from './driver.ts'

const CROWD = 100
const KEYS = 100
const FILL_MS = 20
const ROUNDS = 40
/** A page of a few kilobytes. */
const VALUE = {
  title: 'home',
  rows: Array.from({ length: 20 }, (_, id) => ({ id, name: `row ${id}`, price: id * 100 })),
}

export async function run(): Promise<void> {
  const source = await findRedis()
  if (source instanceof Missing) return console.log(`skipped: ${source.reason}`)
  await using server = await RedisServer.start(source)
  await hits(server.url)
  for (const processes of [4, 16])
    for (const way of ['all at once', 'in turn'] as const) await waits(server.url, processes, way)
}

async function hits(url: string): Promise<void> {
  const [ours, theirs] = [new Redis(url), new Redis(url)]
  await using locks = createLocks(redis({ client: ours }))
  const pages = cache(locks, { ttl: '1h' })
  const bento = new BentoCache({
    default: 'redis',
    stores: { redis: bentostore({ ttl: '1h' }).useL2Layer(redisDriver({ connection: theirs })) },
  })
  const fill = async (): Promise<unknown> => VALUE
  for (const count of [1, CROWD]) {
    let [mine, others] = [0, 0]
    await race(`hits on Redis, ${count === 1 ? '1 caller' : `${count} callers`}`, [
      {
        name: 'bentocache',
        run: callers(count, () => bento.getOrSet({ key: `page:${others++ % KEYS}`, factory: fill })),
      },
      { name: 'holdfast', run: callers(count, () => pages.get(`page:${mine++ % KEYS}`, fill)) },
    ])
  }
  await locks.close()
  ours.disconnect()
  await bento.disconnectAll()
}

/** Each process is a client of its own. They are of one program here: its own turns are in the figures. */
async function waits(url: string, processes: number, way: 'all at once' | 'in turn'): Promise<void> {
  const clients = Array.from({ length: processes }, () => new Redis(url))
  const fleet = clients.map((client): Locks => {
    const engine = redis({ client })
    return createLocks(way === 'in turn' ? delegate(engine, { traits: { ...engine.traits, sharing: 'none' } }) : engine)
  })
  const late: number[] = []
  for (let round = 0; round < ROUNDS; round += 1) {
    let filledAt = 0
    const fill = async (): Promise<unknown> => {
      await sleep(FILL_MS)
      filledAt = performance.now()
      return VALUE
    }
    const waits = fleet.flatMap((locks) => {
      const pages = cache(locks, { ttl: '1h', name: `${way} ${processes}` })
      return Array.from({ length: 10 }, async () => {
        await pages.get(`page:${round}`, fill)
        return performance.now() - filledAt
      })
    })
    late.push(...(await Promise.all(waits)))
  }
  const figures = `median ${median(late).toFixed(1)} ms, p99 ${percentile(late, 0.99).toFixed(1)} ms`
  figure(`from the end of a fill to its waiters, ${processes} processes, ${way}`, figures)
  for (const locks of fleet) await locks.close()
  for (const client of clients) client.disconnect()
}
