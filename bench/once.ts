/**
 * What `once` costs beside the idempotency of AWS Powertools, on one Redis: requests that are new, by one caller and by
 * a hundred at once, and the replay of one that was done.
 */
import { makeIdempotent } from '@aws-lambda-powertools/idempotency'
import { CachePersistenceLayer } from '@aws-lambda-powertools/idempotency/cache'
import { Redis } from 'ioredis'
import { createClient } from 'redis'
import { redis } from '../src/engines/redis/index.ts'
import { createLocks } from '../src/locks.ts'
import { once } from '../src/recipes/once/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { callers, race } from './driver.ts'

const CROWD = 100

/** As a Lambda has it: without it, Powertools takes every duplicate for one of a dead request, and warns. */
const CONTEXT = { getRemainingTimeInMillis: () => 30_000 } as never

export async function run(): Promise<void> {
  const source = await findRedis()
  if (source instanceof Missing) {
    console.log(`skipped: ${source.reason}`)
    return
  }
  await using server = await RedisServer.start(source)
  const client = new Redis(server.url)
  const theirs = await createClient({ url: server.url }).connect()
  await using locks = createLocks(redis({ client }))
  const pay = once(locks)
  const persistenceStore = new CachePersistenceLayer({ client: theirs })
  const powertools = makeIdempotent(async (_event: { readonly id: string }, _context: unknown) => ({ paid: true }), {
    persistenceStore,
  })
  let next = 0
  const ours = (): Promise<unknown> => pay.run(`new ${++next}`, async () => ({ paid: true }))
  const peer = (): Promise<unknown> => powertools({ id: `new ${++next}` }, CONTEXT)
  for (const count of [1, CROWD]) {
    await race(`new requests, ${count === 1 ? '1 caller' : `${count} callers`}`, [
      { name: 'powertools', run: callers(count, peer) },
      { name: 'holdfast', run: callers(count, ours) },
    ])
  }
  await pay.run('done', async () => ({ paid: true }))
  await powertools({ id: 'done' }, CONTEXT)
  await race('a replay, 1 caller', [
    { name: 'powertools', run: callers(1, () => powertools({ id: 'done' }, CONTEXT)) },
    { name: 'holdfast', run: callers(1, () => pay.run('done', async () => ({ paid: true }))) },
  ])
  await locks.close()
  client.disconnect()
  await theirs.close()
}
