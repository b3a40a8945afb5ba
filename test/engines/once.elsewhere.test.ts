/**
 * `once` on the engines that are not asked for money so often: eight processes that are killed and stopped, as in
 * once.processes.test.ts, and less of it.
 */
import { test } from 'vitest'
import { EtcdServer, findEtcd } from '../servers/etcd.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { findZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { expectOneCharge, LIMIT_MS } from './once-fleet.ts'

/** The shortest of etcd and of ZooKeeper. */
const WHOLE_SECONDS_TTL_MS = 2_000
const MONGODB_TTL_MS = 1_000
const rounds = Number(process.env.HOLDFAST_ROUNDS ?? 1)

await describeServer('processes that are killed and stopped, on etcd', findEtcd, (source) => {
  test('charge once', { timeout: LIMIT_MS }, async () => {
    await using server = await EtcdServer.start(source)
    await expectOneCharge(server.url, { rounds, ttlMs: WHOLE_SECONDS_TTL_MS })
  })
})

await describeServer('processes that are killed and stopped, on ZooKeeper', findZooKeeper, (source) => {
  test('charge once', { timeout: LIMIT_MS }, async () => {
    await using server = await ZooKeeperServer.start(source)
    await expectOneCharge(server.url, { rounds, ttlMs: WHOLE_SECONDS_TTL_MS })
  })
})

await describeServer('processes that are killed, on session locks of PostgreSQL', findPostgres, (source) => {
  // One that is stopped keeps its session, and with it the lock: none takes over.
  test('charge once', { timeout: LIMIT_MS }, async () => {
    await using server = await PostgresServer.start(source)
    const url = (await server.database()).replace(/^postgres(ql)?:/, 'postgres-advisory:')
    await expectOneCharge(url, { rounds, ttlMs: MONGODB_TTL_MS, faults: ['kill'] })
  })
})

test('processes that are killed and stopped, on a stand-in of MongoDB, charge once', {
  timeout: LIMIT_MS,
}, async () => {
  await using server = await StandIn.start({ replicaSet: true })
  await expectOneCharge(server.url, { rounds, ttlMs: MONGODB_TTL_MS })
})
