/** The examples of docs/fencing.md do what they say. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { test } from 'vitest'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { StandIn } from '../servers/mongodb-stand-in/stand-in.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { expectExample, SQLITE_ACCOUNT } from './guards.docs.ts'

test('the example of SQLite', async () => {
  await expectExample(
    'sqlite',
    SQLITE_ACCOUNT,
    "assert.equal(database.prepare('select balance from account').all()[0].balance, 110)",
  )
})

test('the example of files', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-docs-'))
  const before = `const folder = ${JSON.stringify(folder)}\nconst locks = await connect('memory:')`
  const after = `import { readFileSync } from 'node:fs'\nassert.equal(readFileSync(folder + '/report.json', 'utf8'), '{"done":true}')`
  await expectExample('files', before, after)
  rmSync(folder, { recursive: true })
})

test('the example of HTTP', async () => {
  const before = `${SQLITE_ACCOUNT}
import { guard } from 'holdfast/guards/sqlite'
const guarded = guard()
guarded.setup(database)
function store(lease) {
  database.exec('begin immediate')
  try {
    guarded.write(database, lease)
    database.exec('commit')
  } catch (error) {
    database.exec('rollback')
    throw error
  }
}
const listening = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const urlOf = (server, key) => \`http://127.0.0.1:\${server.address().port}/\${key}\``
  const after = `
assert.equal(guarded.list(database)[0].resource, 'account:7')
await assert.rejects(guardedFetch({ key: 'account:7', token: 0n, shared: false }, urlOf(server, 'account:7'), { method: 'PUT' }), { code: 'STALE_TOKEN' })
server.closeAllConnections()
server.close()`
  await expectExample('http', before, after)
})

test('the example of MongoDB, on a stand-in', async () => {
  await using server = await StandIn.start({ replicaSet: true })
  const before = `import { MongoClient } from 'mongodb'
const client = new MongoClient(${JSON.stringify(server.url)})
const accounts = client.db().collection('account')
await accounts.insertOne({ _id: 7, balance: 100 })
const locks = await connect('memory:')`
  await expectExample(
    'mongodb',
    before,
    'assert.equal((await accounts.findOne({ _id: 7 })).balance, 110)\nawait client.close()',
  )
})

await describeServer('the example of PostgreSQL', findPostgres, (source) => {
  test('adds ten', async () => {
    await using server = await PostgresServer.start(source)
    const url = await server.database()
    const before = `import pg from 'pg'
const client = new pg.Client({ connectionString: ${JSON.stringify(url)} })
await client.connect()
await client.query('CREATE TABLE account (id int PRIMARY KEY, balance int)')
await client.query('INSERT INTO account VALUES (7, 100)')
const locks = await connect('memory:')`
    await expectExample(
      'postgres',
      before,
      "assert.equal((await client.query('SELECT balance FROM account')).rows[0].balance, 110)\nawait client.end()",
    )
  })
})

await describeServer('the example of MariaDB', findMariadb, (source) => {
  test('adds ten', async () => {
    await using server = await MariadbServer.start(source)
    await server.asRoot('create database if not exists shop')
    if (server.rootUrl !== undefined) await server.asRoot("grant all on shop.* to app@'%'")
    const before = `import { createConnection } from 'mysql2/promise'
const connection = await createConnection(${JSON.stringify(server.url)})
await connection.query('CREATE TABLE account (id int PRIMARY KEY, balance int)')
await connection.query('INSERT INTO account VALUES (7, 100)')
const locks = await connect('memory:')`
    await expectExample(
      'mysql',
      before,
      "assert.equal((await connection.query('SELECT balance FROM account'))[0][0].balance, 110)\nawait connection.end()",
    )
  })
})

await describeServer('the example of Redis', findRedis, (source) => {
  test('adds ten', async () => {
    await using server = await RedisServer.start(source)
    const before = `import { Redis } from 'ioredis'
const client = new Redis(${JSON.stringify(server.url)})
await client.set('account:7', 100)
const locks = await connect('memory:')`
    await expectExample('redis', before, "assert.equal(await client.get('account:7'), '110')\nclient.disconnect()")
  })
})
