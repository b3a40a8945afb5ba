/**
 * Rate limits on servers whose store has no `take`: a draw is put by the version that was read. From the first call on,
 * on a server that has never stored anything, clients together take what the limit allows, and no more.
 */
import { expect, onTestFinished, test } from 'vitest'
import { connect } from '../../src/connect.ts'
import { rateLimit } from '../../src/recipes/rate-limit/index.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { describeServer } from '../servers/suite.ts'
import { findZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'

const CLIENTS = 3
const CALLS = 8
const BURST = 7

async function expectLimited(url: string): Promise<void> {
  const clients = await Promise.all(
    Array.from({ length: CLIENTS }, async () => {
      const locks = await connect(url as `zookeeper://${string}`)
      onTestFinished(() => locks.close())
      return rateLimit(locks, { limit: 1, per: '24h', burst: BURST })
    }),
  )
  expect((await clients[0]?.peek('key'))?.remaining).toBe(BURST)
  const verdicts = await Promise.all(
    clients.flatMap((client) => Array.from({ length: CALLS }, () => client.take('key'))),
  )
  expect(verdicts.filter(({ allowed }) => allowed)).toHaveLength(BURST)
  expect((await clients[0]?.take('another key'))?.allowed).toBe(true)
}

test('MongoDB, on a stand-in', async () => {
  await using server = await StandIn.start({ replicaSet: true })
  await expectLimited(server.url)
})

await describeServer('on a new server', findZooKeeper, (source) => {
  test('ZooKeeper', async () => {
    await using server = await ZooKeeperServer.start(source)
    await expectLimited(server.url)
  })
})
