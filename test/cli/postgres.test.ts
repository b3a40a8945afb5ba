/**
 * The command line on PostgreSQL: run across processes, make the tables or print them, and what doctor says of a
 * server.
 */
import { existsSync } from 'node:fs'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { findPgBouncer, PgBouncer } from '../servers/pgbouncer.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer, present } from '../servers/suite.ts'
import { eventually, World } from './holdfast.ts'
import { servedInOrder } from './server-cases.ts'

await describeServer('holdfast on PostgreSQL', findOwnPostgres, (source) => {
  let server: PostgresServer
  let world: World

  beforeAll(async () => {
    server = await PostgresServer.start(source, { fsync: true })
    world = new World()
  })

  afterAll(async () => {
    await world[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test('run excludes across processes, in order, with a token', async () => {
    await servedInOrder(world, await server.database())
  })

  test('session locks, too: a holder that is killed is followed at once, and doctor says what they cannot promise', async () => {
    const url = (await server.database()).replace(/^postgres:/, 'postgres-advisory:')
    const first = world.start(['run', 'job', '--url', url, '--', 'sh', '-c', 'echo $HOLDFAST_TOKEN; sleep 60'])
    await eventually('a token', async () => first.stdout !== '')
    expect(await world.run('run', 'job', '-n', '--url', url, '--', 'true')).toMatchObject({ exit: 75 })
    const refused = await world.run('run', 'other', '--at-least', '1s', '--url', url, '--', 'touch', world.path('ran'))
    expect(refused).toMatchObject({ exit: 64, stderr: expect.stringContaining('busy behind its process') })
    expect(existsSync(world.path('ran'))).toBe(false)
    first.process.kill('SIGKILL')
    expect(await world.run('run', 'job', '-w', '20s', '--url', url, '--', 'true')).toMatchObject({ exit: 0 })
    const found = await world.doctor(url)
    expect(
      [...found.values()].filter(({ status }) => status !== 'ok').map(({ name, status }) => [name, status]),
    ).toEqual([['loss', 'warn']])
  })

  test('on session locks a grace fits into the life of the lease, and not only into the ttl that was asked for', async () => {
    const url = (await server.database()).replace(/^postgres:/, 'postgres-advisory:')
    const run = ['run', 'job', '--ttl', '10m', '--grace', '1m', '--url', url, '--', 'sleep', '1']
    expect(await world.run(...run)).toMatchObject({ exit: 0, stderr: '' })
  })

  test('migrate makes the tables; migrate --print prints them, without a connection, for psql', async () => {
    const url = await server.database()
    const printed = await world.run('migrate', '--print', '--url', 'postgres://?schema=locks&name=app')
    expect(printed).toMatchObject({ exit: 0, stderr: '' })
    await using connection = await server.connect(url)
    await connection.query(printed.stdout)
    expect(await connection.value(`SELECT to_regclass('locks.app_line')::text`)).toBe('locks.app_line')
    expect(await world.run('migrate', '--url', url)).toMatchObject({ exit: 0, stdout: 'the tables are there\n' })
    expect(await connection.value(`SELECT to_regclass('holdfast_line')::text`)).toBe('holdfast_line')
    expect(await world.run('migrate', '--url', 'postgres://postgres@127.0.0.1:1/none')).toMatchObject({ exit: 69 })
  })

  test('doctor is content with a server as it comes', async () => {
    const found = await world.doctor(await server.database())
    expect([...found.values()].map(({ name, status }) => [name, status])).toEqual(
      [
        'node',
        'reachable',
        'round trip',
        'verbs',
        'version',
        'durability',
        'database',
        'clock skew',
        'connections',
        'snapshots',
        'waking',
        'hand-off',
      ].map((name) => [name, 'ok']),
    )
    expect(found.get('version')?.finding).toMatch(/^PostgreSQL \d+.*a primary$/)
  })

  test('doctor warns of a server that does not write to its disk, and of a pooler through which nothing is heard', async (context) => {
    const program = present(await findPgBouncer(), context)
    await using careless = await PostgresServer.start(source, { settings: { synchronous_commit: 'off' } })
    await using bouncer = await PgBouncer.start(program, careless)
    const found = await world.doctor(bouncer.through(await careless.database()))
    expect(found.get('durability')).toMatchObject({ status: 'warn', finding: 'fsync off' })
    expect(found.get('waking')).toMatchObject({ status: 'warn', todo: expect.stringContaining('listenUrl') })
    expect(found.get('hand-off')).toMatchObject({ status: 'ok' })
  })

  test('doctor warns of an old snapshot, until it is closed', async () => {
    const url = await server.database()
    await using report = await server.connect(url)
    await report.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await report.query('SELECT 1')
    await using busy = await server.connect(url)
    await busy.query('DO $$ BEGIN FOR i IN 1..11000 LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$')
    expect((await world.doctor(url)).get('snapshots')).toMatchObject({
      status: 'warn',
      finding: expect.stringMatching(/1\d{4} transactions old/),
    })
    await report.query('COMMIT')
    expect((await world.doctor(url)).get('snapshots')).toMatchObject({ status: 'ok' })
  })

  test('doctor fails a replica', async () => {
    const url = await server.database()
    await world.run('migrate', '--url', url)
    await using standby = await PostgresServer.start(source, { standbyOf: server.url })
    const found = await world.doctor(standby.url.replace(/\/postgres$/, new URL(url).pathname))
    expect(found.get('version')).toMatchObject({ status: 'fail', finding: expect.stringContaining('a replica') })
  })
})
