/** What `once` costs in round trips, counted on the wire: at most two more than the work, and one for a replay. */
import { expect, test, vi } from 'vitest'
import { connect } from '../../src/connect.ts'
import type { Locks } from '../../src/locks.ts'
import { once } from '../../src/recipes/once/index.ts'
import { CountedWire } from '../servers/counted-wire.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const TRIES = 9

interface Cost {
  readonly before: number
  readonly after: number
  readonly replay: number
}

/**
 * The fewest of some tries, of each. The first ones open connections, and cost more, as does a machine that sends with
 * a pause what is one round trip. What this process asks besides may be on its way when a request is sent, which is not
 * counted as one more round trip then: none at all is no cost.
 */
async function costOf(wire: CountedWire, locks: Locks): Promise<Cost> {
  const pay = once(locks)
  const quiet = (key: string): Promise<unknown> =>
    vi.waitFor(async () => expect((await locks.inspect(key)).entries).toEqual([]), { timeout: 10_000 })
  const costs: Cost[] = []
  for (let nth = 0; nth < TRIES; nth += 1) {
    const key = `key ${nth}`
    let working = 0
    const start = wire.turns
    await pay.run(key, () => {
      working = wire.turns
    })
    const done = wire.turns
    await quiet(`once::${key}`)
    const again = wire.turns
    await pay.run(key, () => undefined)
    costs.push({ before: working - start, after: done - working, replay: wire.turns - again })
    await quiet(`once::${key}`)
  }
  const fewest = (of: keyof Cost): number => Math.min(...costs.map((cost) => cost[of]).filter((cost) => cost > 0))
  return { before: fewest('before'), after: fewest('after'), replay: fewest('replay') }
}

await describeServer('once on PostgreSQL', findPostgres, (source) => {
  test('begins after one round trip, ends with one, and replays in one', async () => {
    await using server = await PostgresServer.start(source)
    await using wire = await CountedWire.to(await server.database())
    await using locks = await connect(wire.url as `postgres://${string}`)
    expect(await costOf(wire, locks)).toEqual({ before: 1, after: 1, replay: 1 })
  })
})

await describeServer('once on MariaDB', findMariadb, (source) => {
  test('begins after one round trip, ends with one, and replays in one', async () => {
    await using server = await MariadbServer.start(source)
    await using wire = await CountedWire.to(server.url)
    await using locks = await connect(wire.url as `mysql://${string}`)
    expect(await costOf(wire, locks)).toEqual({ before: 1, after: 1, replay: 1 })
  })
})

await describeServer('once on Redis', findRedis, (source) => {
  test('begins after one round trip, ends with one, and replays in one', async () => {
    await using server = await RedisServer.start(source)
    await using wire = await CountedWire.to(server.url)
    await using locks = await connect(wire.url as `redis://${string}`)
    expect(await costOf(wire, locks)).toEqual({ before: 1, after: 1, replay: 1 })
  })
})
