/**
 * The command line on MariaDB: run across processes, make the tables or print them, and what doctor says of a server.
 */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'
import { World } from './holdfast.ts'
import { servedInOrder } from './server-cases.ts'

await describeServer('holdfast on MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer
  let world: World

  beforeAll(async () => {
    server = await MariadbServer.start(source, { durable: true })
    world = new World()
  })

  afterAll(async () => {
    await world[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test.each(['mysql', 'mariadb'])('%s:// runs across processes, in order, with a token', async (scheme) => {
    await servedInOrder(world, server.url.replace('mysql', scheme))
  })

  test('migrate makes the tables; migrate --print prints them, without a connection, for the client of MySQL', async () => {
    const printed = await world.run('migrate', '--print', '--url', 'mysql://?name=app')
    expect(printed).toMatchObject({ exit: 0, stderr: '' })
    expect(printed.stdout).toMatch(
      /DELIMITER \/\/[\s\S]*CREATE TABLE IF NOT EXISTS `app_line`[\s\S]*CREATE PROCEDURE IF NOT EXISTS `app_enter_\w{8}`/,
    )
    const url = `${server.url}?name=migrated`
    expect(await world.run('migrate', '--url', url)).toMatchObject({ exit: 0, stdout: 'the tables are there\n' })
    expect(await server.asRoot(`show tables in holdfast like 'migrated%'`)).toHaveLength(7)
    expect(await world.run('migrate', '--url', 'mysql://user@127.0.0.1:1/none')).toMatchObject({ exit: 69 })
  })

  test('doctor is content with a server as it comes', async () => {
    const found = await world.doctor(server.url)
    const names = [
      'node',
      'reachable',
      'round trip',
      'verbs',
      'version',
      'durability',
      'clock skew',
      'connections',
      'waking',
      'hand-off',
    ]
    expect([...found.values()].map(({ name, status }) => [name, status])).toEqual(names.map((name) => [name, 'ok']))
    expect(found.get('version')?.finding).toMatch(/^MariaDB \d+/)
  })

  test('doctor warns of a server that does not write to its disk, fails one that cannot log what we do, or refuses writes', async () => {
    await using careless = await MariadbServer.start(source, { args: ['--log-bin=log', '--binlog-format=STATEMENT'] })
    const found = await world.doctor(careless.url)
    expect(found.get('reachable')).toMatchObject({ status: 'ok' })
    expect(found.get('durability')).toMatchObject({ status: 'warn', finding: 'innodb_flush_log_at_trx_commit is 2' })
    expect(found.get('binary log')).toMatchObject({ status: 'fail', finding: 'binlog_format is STATEMENT' })
    await careless.asRoot('set global read_only = 1')
    expect((await world.doctor(careless.url)).get('reachable')).toMatchObject({
      status: 'fail',
      finding: expect.stringContaining('primary'),
    })
    // A user who may write all the same is told, too: others may not.
    const privileged = `mysql://root@${careless.host}:${careless.port}/holdfast`
    expect((await world.doctor(privileged)).get('version')).toMatchObject({
      status: 'fail',
      todo: expect.stringContaining('primary'),
    })
  })
})
