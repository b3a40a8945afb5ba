/**
 * The last ticket and ten buyers in eight processes: how many tickets a second each way sells, on servers that write to
 * disk before they answer. It is examples/inventory, run as it is; what it prints is its own.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { findMariadb, MariadbServer } from '../test/servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'

const ROUNDS = 200

export async function run(): Promise<void> {
  const postgres = await findPostgres()
  if (postgres instanceof Missing) console.log(postgres.reason)
  else {
    await using server = await PostgresServer.start(postgres, { fsync: true })
    const database = await server.database()
    await market('PostgreSQL', database)
    await server.drop(database)
  }
  const mariadb = await findMariadb()
  if (mariadb instanceof Missing) console.log(mariadb.reason)
  else {
    await using server = await MariadbServer.start(mariadb, { durable: true })
    await market('MariaDB', server.url)
  }
}

async function market(name: string, url: string): Promise<void> {
  console.log(`\n${name}, one ticket left, ten buyers in eight processes`)
  const args = ['examples/inventory/market.mjs', url, `${ROUNDS}`]
  const [code] = await once(spawn(process.execPath, args, { stdio: 'inherit' }), 'exit')
  if (code !== 0) throw new Error(`the market ended with ${code}`)
}
