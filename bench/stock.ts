/**
 * What `stock` costs beside what people write by hand: a script on Redis, and a transaction with a row lock on
 * PostgreSQL. Both peers hold one unit under an id that counts once, with an expiry, and then sell it. One caller, and
 * a hundred at once, all of one item. On Redis ours is on the connection that `connect(url)` makes, and the script on
 * an ioredis with its default options.
 */
import { Redis } from 'ioredis'
import { Pool, type PoolClient } from 'pg'
import { connect } from '../src/connect.ts'
import { postgres } from '../src/engines/postgres/index.ts'
import { createLocks, type Locks } from '../src/locks.ts'
import { stock } from '../src/recipes/stock/index.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { callers, race } from './driver.ts'

const CROWD = 100
const UNITS = 100_000_000
const HOLD_MS = 600_000

/** Hold one unit under this id, and sell it. */
type Purchase = (id: string) => Promise<unknown>

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
  await compare('Redis', locks, 'a script', await byScript(theirs))
  await locks.close()
  theirs.disconnect()
}

const RESERVE = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 100)) do
  redis.call('ZREM', KEYS[3], id)
  redis.call('HINCRBY', KEYS[1], 'left', redis.call('HGET', KEYS[2], id))
  redis.call('HDEL', KEYS[2], id)
end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 1 end
if tonumber(redis.call('HGET', KEYS[1], 'left')) < tonumber(ARGV[2]) then return 0 end
redis.call('HINCRBY', KEYS[1], 'left', -ARGV[2])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
return 1`

const CONFIRM = `
local time = redis.call('TIME')
local at = redis.call('ZSCORE', KEYS[3], ARGV[1])
if not at or tonumber(at) <= time[1] * 1000 then return redis.call('HEXISTS', KEYS[4], ARGV[1]) end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[4], ARGV[1], redis.call('HGET', KEYS[2], ARGV[1]))
redis.call('HDEL', KEYS[2], ARGV[1])
return 1`

async function byScript(client: Redis): Promise<Purchase> {
  client.defineCommand('reserveUnit', { numberOfKeys: 3, lua: RESERVE })
  client.defineCommand('confirmUnit', { numberOfKeys: 4, lua: CONFIRM })
  const { reserveUnit, confirmUnit } = client as unknown as Record<string, (...words: unknown[]) => Promise<number>>
  await client.hset('{by hand}:stock', 'left', UNITS)
  const keys = ['{by hand}:stock', '{by hand}:holds', '{by hand}:lapses']
  return async (id) => {
    if ((await reserveUnit?.call(client, ...keys, id, 1, HOLD_MS)) !== 1) throw new Error('sold out')
    if ((await confirmUnit?.call(client, ...keys, '{by hand}:sold', id)) !== 1) throw new Error('lapsed')
  }
}

async function onPostgres(): Promise<void> {
  const source = await findPostgres()
  if (source instanceof Missing) return console.log(`skipped: ${source.reason}`)
  await using server = await PostgresServer.start(source, { fsync: true })
  const connectionString = await server.database()
  const [ours, theirs] = [new Pool({ connectionString }), new Pool({ connectionString })]
  await using locks = createLocks(postgres({ client: ours }))
  await compare('PostgreSQL, which writes to its disk', locks, 'a row lock', await byRowLock(theirs))
  await locks.close()
  await ours.end()
  await theirs.end()
}

async function byRowLock(pool: Pool): Promise<Purchase> {
  await pool.query('CREATE TABLE seats (item text PRIMARY KEY, free bigint NOT NULL) WITH (fillfactor = 50)')
  await pool.query('CREATE TABLE carts (id text PRIMARY KEY, state text NOT NULL, until timestamptz NOT NULL)')
  await pool.query(`INSERT INTO seats VALUES ('A', ${UNITS})`)
  const transaction = async (work: (client: PoolClient) => Promise<void>): Promise<void> => {
    const client = await pool.connect()
    try {
      await client.query('BEGIN')
      await work(client)
      await client.query('COMMIT')
    } finally {
      client.release()
    }
  }
  const free = "SELECT free FROM seats WHERE item = 'A' FOR UPDATE"
  const until = `clock_timestamp() + interval '${HOLD_MS} ms'`
  const hold = `INSERT INTO carts VALUES ($1, 'held', ${until}) ON CONFLICT DO NOTHING`
  const sell = "UPDATE carts SET state = 'sold' WHERE id = $1 AND until > clock_timestamp()"
  return async (id) => {
    await transaction(async (client) => {
      const { rows } = await client.query({ name: 'free', text: free })
      if (Number(rows[0].free) < 1) throw new Error('sold out')
      const { rowCount } = await client.query({ name: 'hold', text: hold, values: [id] })
      if (rowCount === 1)
        await client.query({ name: 'less', text: "UPDATE seats SET free = free - 1 WHERE item = 'A'" })
    })
    await transaction(async (client) => {
      await client.query({ name: 'sell', text: sell, values: [id] })
    })
  }
}

async function compare(where: string, locks: Locks, peer: string, purchase: Purchase): Promise<void> {
  const seats = stock(locks, 'bench', { hold: HOLD_MS })
  await seats.set({ A: UNITS })
  const ours: Purchase = async (id) => {
    const hold = await seats.reserve(id, { A: 1 })
    if ((await hold?.confirm()) !== 'sold') throw new Error('not sold')
  }
  let [mine, others] = [0, 0]
  for (const count of [1, CROWD])
    await race(`${where}, ${count === 1 ? '1 buyer' : `${count} buyers`}`, [
      { name: peer, run: callers(count, () => purchase(`cart ${others++}`)) },
      { name: 'holdfast', run: callers(count, () => ours(`cart ${mine++}`)) },
    ])
}
