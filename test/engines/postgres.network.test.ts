/**
 * The way to a PostgreSQL server, cut, slowed and swallowed: the cases that hold for every SQL server, and one about
 * its listening connection.
 */
import { expect, test, vi } from 'vitest'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { createLocks } from '../../src/index.ts'
import { findPostgres } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { PostgresDatabase } from './postgres-database.ts'
import { LIMIT, withDatabase } from './sql-database.ts'
import { sqlNetworkCases } from './sql-network.ts'

await describeServer('the way to PostgreSQL', findPostgres, (source) => {
  const tests = withDatabase(() => PostgresDatabase.start(source))

  sqlNetworkCases(tests)

  test('a waiter whose listening connection is dead, without knowing it, is served, and then listens anew', async () => {
    const holding = await tests.open({ ttl: '20s' })
    // Only what it listens on goes through the proxy.
    const { url } = tests.database()
    const listening = await openPostgres(url, { listenUrl: tests.database().at(tests.proxy().port) })
    const waiting = tests.keep(createLocks(listening, { ttl: '3s' }))
    const lease = await holding.mutex('key').acquire()
    const first = waiting.mutex('key').acquire()
    await tests.untilInLine(holding, 'key', 2)
    tests.proxy().blackHole()
    await lease.release()
    await (await first).release()
    // A message to itself does not arrive, so the engine connects anew: then a hand-off wakes again, long before a
    // renewal would.
    const again = await holding.mutex('key').acquire()
    const second = waiting.mutex('key').acquire()
    await tests.untilInLine(holding, 'key', 2)
    const before = tests.proxy().size
    await tests.proxy().heal()
    await vi.waitFor(() => expect(tests.proxy().size).toBeGreaterThanOrEqual(Math.min(before, 1)), LIMIT)
    await again.release()
    expect((await second).held).toBe(true)
  })
})
