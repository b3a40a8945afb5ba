/**
 * What a guard costs: the same write with and without it, by one caller, on servers that write to disk before they
 * answer.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { rename, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import { createConnection } from 'mysql2/promise'
import { Client } from 'pg'
import postgres from 'postgres'
import { loadDriver } from '../src/clients/sqlite/driver.ts'
import { guard as filesGuard } from '../src/guards/files.ts'
import { guard as mysqlGuard } from '../src/guards/mysql.ts'
import { guard as postgresGuard } from '../src/guards/postgres.ts'
import { guard as redisGuard } from '../src/guards/redis.ts'
import { guard as sqliteGuard } from '../src/guards/sqlite.ts'
import { findMariadb, MariadbServer } from '../test/servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { callers, race } from './driver.ts'

const lease = { key: 'account', token: 17n, shared: false }

export async function run(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-bench-'))
  await sqlite(join(folder, 'bank.db'))
  await files(folder)
  rmSync(folder, { recursive: true, force: true })
  await redis()
  await postgresql()
  await mariadb()
}

async function sqlite(file: string): Promise<void> {
  const database = (await loadDriver()).open(file)
  database.exec(
    'pragma journal_mode = wal; create table account (id integer primary key, balance integer not null); insert into account values (7, 0)',
  )
  const guarded = sqliteGuard()
  guarded.setup(database)
  const write = database.prepare('update account set balance = ? where id = 7')
  const transaction = (work: () => void) => async (): Promise<void> => {
    database.exec('begin immediate')
    work()
    database.exec('commit')
  }
  await race('SQLite, a transaction', [
    {
      name: 'begin, update, commit',
      run: callers(
        1,
        transaction(() => void write.run(1)),
      ),
    },
    {
      name: 'begin, guard, update, commit',
      run: callers(
        1,
        transaction(() => {
          guarded.write(database, lease)
          write.run(1)
        }),
      ),
    },
  ])
  database.close()
}

async function files(folder: string): Promise<void> {
  await using guarded = filesGuard({ folder })
  const plain = async (): Promise<void> => {
    await writeFile(join(folder, 'plain.tmp'), 'x', { flush: true })
    await rename(join(folder, 'plain.tmp'), join(folder, 'plain'))
  }
  await race('a file, replaced and synced', [
    { name: 'write, sync, rename', run: callers(1, plain) },
    { name: 'through the guard', run: callers(1, () => guarded.write(lease, 'guarded', 'x')) },
  ])
}

async function redis(): Promise<void> {
  const source = await findRedis()
  if (source instanceof Missing) return console.log(source.reason)
  await using server = await RedisServer.start(source)
  const client = new Redis(server.url)
  const guarded = redisGuard({ client })
  for (const count of [1, 50]) {
    await race(`Redis, a SET, ${count} at a time`, [
      { name: 'SET', run: callers(count, () => client.set('account', 1)) },
      { name: 'guarded SET: one script', run: callers(count, () => guarded.write(lease, [['SET', 'account', 1]])) },
    ])
  }
  client.disconnect()
}

async function postgresql(): Promise<void> {
  const source = await findPostgres()
  if (source instanceof Missing) return console.log(source.reason)
  await using server = await PostgresServer.start(source, { fsync: true })
  const url = await server.database()
  const client = new Client({ connectionString: url })
  await client.connect()
  const sql = postgres(url, { max: 1 })
  const guarded = postgresGuard()
  await guarded.setup(client)
  await client.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)')
  await client.query('INSERT INTO account VALUES (7, 0)')
  const text = 'UPDATE account SET balance = $1 WHERE id = 7'
  const transaction = (checked: boolean) => async (): Promise<void> => {
    await client.query('BEGIN')
    if (checked) await guarded.write(client, lease)
    await client.query(text, [1])
    await client.query('COMMIT')
  }
  await race('PostgreSQL, one statement', [
    { name: 'update', run: callers(1, () => client.query(text, [1])) },
    {
      name: 'guarded update: one statement',
      run: callers(1, () => guarded.writeStatement(client, lease, { text, values: [1] })),
    },
  ])
  await race('PostgreSQL, a transaction, pg', [
    { name: 'begin, update, commit', run: callers(1, transaction(false)) },
    { name: 'begin, guard, update, commit', run: callers(1, transaction(true)) },
  ])
  await race('PostgreSQL, a transaction, postgres.js', [
    { name: 'update', run: callers(1, () => sql.begin((tx) => tx`UPDATE account SET balance = ${1} WHERE id = 7`)) },
    {
      name: 'guard and update, sent together',
      run: callers(1, () =>
        sql.begin((tx) => Promise.all([guarded.write(tx, lease), tx`UPDATE account SET balance = ${1} WHERE id = 7`])),
      ),
    },
  ])
  await sql.end()
  await client.end()
}

async function mariadb(): Promise<void> {
  const source = await findMariadb()
  if (source instanceof Missing) return console.log(source.reason)
  await using server = await MariadbServer.start(source, { durable: true })
  const client = await createConnection(server.url)
  const guarded = mysqlGuard({ table: [server.database, 'holdfast_marks'] })
  await guarded.setup(client)
  await client.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL) ENGINE = InnoDB')
  await client.query('INSERT INTO account VALUES (7, 0)')
  let balance = 0
  const transaction = (checked: boolean) => async (): Promise<void> => {
    await client.beginTransaction()
    if (checked) await guarded.write(client, lease)
    balance += 1
    await client.execute('UPDATE account SET balance = ? WHERE id = 7', [balance])
    await client.commit()
  }
  await race('MariaDB, a transaction', [
    { name: 'begin, update, commit', run: callers(1, transaction(false)) },
    { name: 'begin, guard, update, commit', run: callers(1, transaction(true)) },
  ])
  await client.end()
}
