/** Stock on servers that cannot decide a step by themselves: three clients at once, by versions of one record. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import { type Stock, stock } from '../../src/recipes/stock/index.ts'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { findZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

const UNITS = 10
const sells = 'clients at once get no more than there is, each id counts once, and what lapses is there again'

async function sell(url: string): Promise<void> {
  const clients = await Promise.all([1, 2, 3].map(() => connect(url)))
  try {
    const shops = clients.map((locks) => stock(locks, 'concert:9', { hold: '1s' })) as [Stock, Stock, Stock]
    await shops[0].set({ A: UNITS })
    // Of 45 calls, 15 are retries of another client.
    const asked = Array.from({ length: 45 }, (_, call) => (shops[call % 3] as Stock).reserve(`${call % 30}`, { A: 1 }))
    const held = (await Promise.all(asked)).flatMap((hold) => (hold === undefined ? [] : [hold.id]))
    expect(new Set(held).size).toBe(UNITS)
    const left = async (): Promise<number | undefined> => (await shops[1].show()).items[0]?.left
    await expect.poll(left, { timeout: 20_000 }).toBe(UNITS)
    expect(await shops[2].confirm(held[0] as string)).toBe('lapsed')
  } finally {
    await Promise.all(clients.map((locks) => locks.close()))
  }
}

await describeServer('stock on ZooKeeper', findZooKeeper, (source) => {
  test(sells, async () => {
    await using server = await ZooKeeperServer.start(source)
    await sell(server.url)
  })
})

await describeServer('stock on session locks of PostgreSQL', findPostgres, (source) => {
  test(sells, async () => {
    await using server = await PostgresServer.start(source)
    const database = await server.database()
    await sell(database.replace(/^postgres(?:ql)?:/, 'postgres-advisory:'))
  })
})

await describeServer('stock on etcd', findEtcd, (source) => {
  test('is refused in words: etcd does not tell its time', async () => {
    await using server = await EtcdServer.start(source)
    await using locks = await connect(server.url)
    await expect(stock(locks, 'concert:9').show()).rejects.toThrow('does not tell its time, by which holds lapse')
  })
})
