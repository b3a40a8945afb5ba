/**
 * Eight processes, each with twenty callers of one key, while some are killed and some are stopped for longer than the
 * ttl. With `commit` there is one order for each key. Without it, every further execution has the same attempt id and a
 * higher number, and a payment provider that is given the id charges once.
 *
 * HOLDFAST_ROUNDS makes it longer.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, test } from 'vitest'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { expectOneCharge, expectOneOrder, LIMIT_MS } from './once-fleet.ts'

describe('processes that are killed and stopped, on SQLite', () => {
  let folder: string

  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
  })

  afterEach(() => rmSync(folder, { recursive: true, force: true }))

  test('charge once', () => expectOneCharge(`sqlite:${join(folder, 'locks.db')}`), LIMIT_MS)
  test('store one order', () => expectOneOrder(`sqlite:${join(folder, 'shop.db')}`, 'sqlite'), LIMIT_MS)
})

await describeServer('processes that are killed and stopped, on PostgreSQL', findPostgres, (source) => {
  test.for(['charge once', 'store one order'] as const)('%s', { timeout: LIMIT_MS }, async (what) => {
    await using server = await PostgresServer.start(source)
    const url = await server.database()
    await (what === 'charge once' ? expectOneCharge(url) : expectOneOrder(url, 'postgres'))
  })
})

await describeServer('processes that are killed and stopped, on MariaDB', findMariadb, (source) => {
  test.for(['charge once', 'store one order'] as const)('%s', { timeout: LIMIT_MS }, async (what) => {
    await using server = await MariadbServer.start(source)
    await (what === 'charge once' ? expectOneCharge(server.url) : expectOneOrder(server.url, 'mysql'))
  })
})

await describeServer('processes that are killed and stopped, on Redis', findRedis, (source) => {
  test('charge once', { timeout: LIMIT_MS }, async () => {
    await using server = await RedisServer.start(source)
    await expectOneCharge(server.url)
  })
})
