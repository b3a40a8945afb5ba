/**
 * The inventory example, run as it is: ten buyers in eight processes for the last ticket, round after round. Row lock,
 * version and lease never sell it twice; without them it is sold twice, or the example would prove nothing.
 */
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { expect, test } from 'vitest'
import { builtModule } from '../built.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'

const ROUNDS = 40
const SAFE = ['byRowLock', 'byVersion', 'byLease']

interface Result {
  readonly way: string
  readonly sold: number
  readonly oversold: number
}

async function market(url: string): Promise<readonly Result[]> {
  builtModule('src/index.ts')
  const child = fork('examples/inventory/market.mjs', [url, `${ROUNDS}`], {
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  })
  const exited = once(child, 'exit')
  const said = await Promise.race([
    once(child, 'message'),
    exited.then(([code]) => expect.fail(`the market ended with ${code}`)),
  ])
  expect(await exited).toEqual([0, null])
  return said[0] as readonly Result[]
}

function expectHonest(results: readonly Result[]): void {
  for (const way of SAFE) expect(results).toContainEqual(expect.objectContaining({ way, sold: ROUNDS, oversold: 0 }))
  expect(results.find(({ way }) => way === 'naive')?.oversold).toBeGreaterThan(0)
}

await describeServer('an inventory on PostgreSQL', findPostgres, (source) => {
  test('is never oversold, but by the naive way', async () => {
    await using server = await PostgresServer.start(source)
    const database = await server.database()
    expectHonest(await market(database))
    await server.drop(database)
  })
})

await describeServer('an inventory on MariaDB', findMariadb, (source) => {
  test('is never oversold, but by the naive way', async () => {
    await using server = await MariadbServer.start(source)
    expectHonest(await market(server.url))
  })
})
