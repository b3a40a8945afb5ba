/** `holdfast guard`: marks are shown and reset wherever guards keep them. */

import { Redis } from 'ioredis'
import mysql from 'mysql2/promise'
import { Client } from 'pg'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { guard as mysqlGuard } from '../../src/guards/mysql.ts'
import { guard as postgresGuard } from '../../src/guards/postgres.ts'
import { guard as redisGuard } from '../../src/guards/redis.ts'
import { guard as sqliteGuard } from '../../src/guards/sqlite.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { World } from './holdfast.ts'

let world: World
beforeEach(() => {
  world = new World()
})
afterEach(() => world[Symbol.asyncDispose]())

const lease = { key: 'order:42', token: 17n, shared: false }

/** Where `order:42` was written with token 17, and no other resource has marks. */
async function expectCommands(url: string): Promise<void> {
  const at = ['--url', url]
  expect(await world.json('guard', 'show', ...at)).toEqual({
    holdfast: 1,
    command: 'guard',
    prefix: '',
    marks: [{ resource: 'order:42', seen: '17', written: '17' }],
  })
  expect((await world.run('guard', 'show', 'order:', ...at)).stdout).toBe(
    'SEEN  WRITTEN  RESOURCE\n17    17       order:42\n',
  )
  expect(await world.run('guard', 'show', 'user:', ...at)).toMatchObject({ exit: 0, stdout: '' })
  expect(await world.json('guard', 'forget', ...at)).toMatchObject({ forgotten: 0 })
  expect(await world.run('guard', 'reset', 'order:42', '--seen', '16', ...at)).toMatchObject({ exit: 1, stdout: '' })
  expect((await world.run('guard', 'reset', 'order:42', '--seen', '17', ...at)).stdout).toMatch(/^forgot 'order:42'/)
  expect(await world.json('guard', 'show', ...at)).toMatchObject({ marks: [] })
}

test('of SQLite, where no guard has been, and where one has', async () => {
  const file = world.path('shop.db')
  expect(await world.run('guard', 'show', '--url', `sqlite:${file}`)).toMatchObject({ exit: 0, stdout: '' })
  const database = (await loadDriver()).open(file)
  expect(await world.run('guard', 'show', '--url', `sqlite:${file}`)).toMatchObject({ exit: 0, stdout: '' })
  const guarded = sqliteGuard()
  guarded.setup(database)
  database.exec('begin')
  guarded.write(database, lease)
  database.exec('commit')
  await expectCommands(`sqlite:${file}`)
  database.exec("insert into holdfast_marks values ('old', 1, 5, 5, 1), ('new', 1, 5, 5, 9000000000000000)")
  expect((await world.run('guard', 'forget', '--url', `sqlite:${file}`)).stdout).toBe('forgot 1 mark\n')
  expect(guarded.list(database).map(({ resource }) => resource)).toEqual(['new'])
  database.close()
})

test('what is asked wrongly is explained', async () => {
  expect(await world.run('guard', 'shwo')).toMatchObject({
    exit: 64,
    stderr: expect.stringContaining("did you mean 'show'?"),
  })
  expect(await world.run('fence', 'show')).toMatchObject({
    exit: 64,
    stderr: expect.stringContaining("'holdfast guard' now"),
  })
  expect(await world.run('guard', 'forget', 'order:42')).toMatchObject({ exit: 64 })
  expect(await world.run('guard', 'reset', 'x')).toMatchObject({
    exit: 64,
    stderr: expect.stringContaining('--seen N'),
  })
  expect(await world.run('guard', 'show', '--url', 'memory:')).toMatchObject({ exit: 64 })
  const down = await world.run('guard', 'show', '--url', 'postgres://me:secret@127.0.0.1:9/x')
  expect(down).toMatchObject({ exit: 69, stderr: expect.stringContaining('ECONNREFUSED') })
  expect(down.stderr).not.toContain('secret')
})

await describeServer('of PostgreSQL', findPostgres, (source) => {
  test('where no guard has been, and where one has', async () => {
    await using server = await PostgresServer.start(source)
    const url = await server.database()
    expect(await world.run('guard', 'show', '--url', url)).toMatchObject({ exit: 0, stdout: '' })
    const client = new Client({ connectionString: url })
    await client.connect()
    await postgresGuard().setup(client)
    await client.query('BEGIN')
    await postgresGuard().write(client, lease)
    await client.query('COMMIT')
    await expectCommands(url)
    await client.end()
  })
})

await describeServer('of MariaDB', findMariadb, (source) => {
  test('where no guard has been, and where one has', async () => {
    await using server = await MariadbServer.start(source)
    expect(await world.run('guard', 'show', '--url', server.url)).toMatchObject({ exit: 0, stdout: '' })
    const client = await mysql.createConnection(server.url)
    const guarded = mysqlGuard({ table: [server.database, 'holdfast_marks'] })
    await guarded.setup(client)
    await client.beginTransaction()
    await guarded.write(client, lease)
    await client.commit()
    await expectCommands(server.url.replace('mysql:', 'mariadb:'))
    await client.end()
  })
})

await describeServer('of Redis', findRedis, (source) => {
  test('where no guard has been, and where one has', async () => {
    await using server = await RedisServer.start(source)
    expect(await world.run('guard', 'show', '--url', server.url)).toMatchObject({ exit: 0, stdout: '' })
    const client = new Redis(server.url)
    await redisGuard({ client }).write(lease, [])
    await expectCommands(server.url)
    client.disconnect()
  })
})
