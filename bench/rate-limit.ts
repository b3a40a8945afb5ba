/**
 * What `rateLimit` costs beside rate-limiter-flexible, on Redis and on PostgreSQL: takes that are allowed, by one
 * caller and by a hundred at once, of as many keys. On Redis ours is on the connection that `connect(url)` makes, and
 * the peer on an ioredis with its default options: each as its own documentation has it.
 */
import { Redis } from 'ioredis'
import { Pool } from 'pg'
import { RateLimiterPostgres, RateLimiterRedis } from 'rate-limiter-flexible'
import { connect } from '../src/connect.ts'
import { postgres } from '../src/engines/postgres/index.ts'
import { createLocks, type Locks } from '../src/locks.ts'
import { rateLimit } from '../src/recipes/rate-limit/index.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { callers, race } from './driver.ts'

const CROWD = 100
const LIMIT = 100_000_000
const SECONDS = 60

interface Peer {
  consume(key: string): Promise<unknown>
}

export async function run(): Promise<void> {
  await onRedis()
  await onPostgres()
}

async function onRedis(): Promise<void> {
  const source = await findRedis()
  if (source instanceof Missing) return console.log(`skipped: ${source.reason}`)
  await using server = await RedisServer.start(source)
  const theirs = new Redis(server.url)
  await using locks = await connect(server.url)
  await compare('Redis', locks, new RateLimiterRedis({ storeClient: theirs, points: LIMIT, duration: SECONDS }))
  await locks.close()
  theirs.disconnect()
}

async function onPostgres(): Promise<void> {
  const source = await findPostgres()
  if (source instanceof Missing) return console.log(`skipped: ${source.reason}`)
  await using server = await PostgresServer.start(source)
  const connectionString = await server.database()
  const [ours, theirs] = [new Pool({ connectionString }), new Pool({ connectionString })]
  await using locks = createLocks(postgres({ client: ours }))
  const peer = await new Promise<Peer>((resolve, reject) => {
    const options = { storeClient: theirs, points: LIMIT, duration: SECONDS, tableName: 'peer' }
    const limiter: RateLimiterPostgres = new RateLimiterPostgres(options, (error) =>
      error === undefined ? resolve(limiter) : reject(error),
    )
  })
  await compare('PostgreSQL', locks, peer)
  await locks.close()
  await ours.end()
  await theirs.end()
}

async function compare(where: string, locks: Locks, peer: Peer): Promise<void> {
  const api = rateLimit(locks, { limit: LIMIT, per: '1m' })
  for (const count of [1, CROWD]) {
    let [mine, others] = [0, 0]
    await race(`${where}, ${count === 1 ? '1 caller' : `${count} callers`}`, [
      { name: 'rate-limiter-flexible', run: callers(count, () => peer.consume(`user:${others++ % count}`)) },
      { name: 'holdfast', run: callers(count, () => api.take(`user:${mine++ % count}`)) },
    ])
  }
}
