/** Records in PostgreSQL: the cases that hold for every SQL server, and those about its drivers, tables and rights. */
import pg from 'pg'
import postgresJs from 'postgres'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { isRefused, isStored, putOne, putting, textOf } from '../../conformance/records.ts'
import type { Store } from '../../src/core/store.ts'
import type { PoolStep } from '../../src/core/store-hold.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { migration } from '../../src/engines/postgres/migration.ts'
import { DEFAULT_NAMES, renamed } from '../../src/engines/postgres/names.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import {
  A,
  B,
  claimOf,
  expectAdviceToMigrate,
  type SqlConnection,
  type SqlStoreServer,
  sqlStoreCases,
  withStore,
} from './sql-store.ts'

await describeServer('records in PostgreSQL', findOwnPostgres, (source) => {
  let server: PostgresServer

  beforeAll(async () => {
    server = await PostgresServer.start(source, { settings: { max_connections: 200 } })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const dealing: SqlStoreServer = {
    database: () => server.database(),
    open: (url) => openPostgres(url),
    connect,
    pool: (url) => new pg.Pool({ connectionString: url, max: 1 }),
    begin: (level) => [`BEGIN ISOLATION LEVEL ${level}`],
    tell: async (url, statement) => {
      await using connection = await server.connect(url)
      return await connection.query(statement)
    },
    leave: `UPDATE holdfast_line SET id = NULL WHERE key = 'key'`,
    age: `UPDATE holdfast_record SET expires_at = expires_at - interval '10 min'`,
    portion: 1000,
  }
  const tests = withStore(() => dealing)
  const { begin, putIn, tell } = tests
  const migrated = migration({ schema: 'public', name: 'holdfast' })

  sqlStoreCases(() => dealing, tests)

  test('postgres.js: a change is there when the transaction is committed, and not otherwise', async () => {
    const sql = postgresJs(tests.url(), { max: 2 })
    tests.keep(() => sql.end())
    await tests.engine().enter([claimOf(A)])
    for (const level of ['READ COMMITTED', 'SERIALIZABLE']) {
      const failing = sql.begin(`ISOLATION LEVEL ${level}`, async (tx) => {
        isStored(await putIn(tx, putting(level, 'lost')))
        throw new Error('changed my mind')
      })
      await expect(failing).rejects.toThrow('changed my mind')
      expect(await textOf(tests.store(), level)).toBe(null)
      await sql.begin(`ISOLATION LEVEL ${level}`, async (tx) => {
        isRefused(await putIn(tx, putting(level, 'late', { holding: B })), 'holding', null)
        isStored(await putIn(tx, putting('key', level, { holding: A })))
      })
      expect(await textOf(tests.store(), 'key')).toBe(level)
    }
    await expect(putIn(sql, putting('key', 'no'))).rejects.toThrow(TypeError)
  })

  test('a change that is refused in a transaction leaves nothing locked', async () => {
    for (const level of ['READ COMMITTED', 'REPEATABLE READ']) {
      const transaction = await begin(level)
      isRefused(await putIn(transaction.client, putting(level, 'late', { holding: A })), 'holding', null)
      isStored(await putOne(tests.store(), putting(level, 'next')))
    }
  })

  test('at REPEATABLE READ, what other calls have put since it began makes the transaction begin again', async () => {
    for (const before of ['a value', null]) {
      const key = `key ${before}`
      if (before !== null) isStored(await putOne(tests.store(), putting(key, before)))
      const transaction = await begin('REPEATABLE READ')
      await transaction.query('SELECT 1 FROM pg_class')
      isStored(await putOne(tests.store(), putting(key, 'newer')))
      await expect(putIn(transaction.client, putting(key, 'from an old snapshot'))).rejects.toMatchObject({
        code: '40001',
      })
      await transaction.query('ROLLBACK')
      expect(await textOf(tests.store(), key)).toBe('newer')
    }
  })

  test('no call reads a table of records or pools from end to end, though none was ever analyzed', async () => {
    type Row = { readonly relname: string; readonly seq_scan: number; readonly written: number }
    const statistics = `SELECT relname, seq_scan::int, (n_tup_ins + n_tup_upd)::int AS written
      FROM pg_stat_user_tables WHERE relname ~ 'holdfast_(record|pool_item|pool_hold)' ORDER BY 1`
    /** A backend tells what it has done when it ends, at the latest. */
    const after = async (rounds: number, before: readonly Row[]): Promise<readonly Row[]> => {
      const engine = await tests.open()
      for (let round = 0; round < rounds; round += 1) await useEachVerb(engine.store as Store, round)
      await tests.close(engine)
      return await vi.waitFor(
        async () => {
          const rows = (await tell(statistics)) as unknown as readonly Row[]
          expect(rows).toHaveLength(3)
          for (const [index, { written }] of rows.entries())
            expect(written).toBeGreaterThanOrEqual((before[index]?.written ?? 0) + 2 * rounds)
          return rows
        },
        { timeout: 20_000, interval: 50 },
      )
    }
    const before = await after(1, [])
    const now = await after(20, before)
    // What has expired is looked for when an engine is closed, all at once.
    const scans = now.filter(({ seq_scan }, index) => seq_scan - (before[index]?.seq_scan ?? 0) > 1)
    expect(scans).toEqual([])
  })

  test('the settings of the transaction are as before', async () => {
    const transaction = await begin()
    const wait = async (): Promise<unknown> =>
      (await (transaction.client as pg.Client).query('SHOW lock_timeout')).rows[0]?.lock_timeout
    isStored(await putIn(transaction.client, putting('key', 'again')))
    expect(await wait()).toBe('0')
    await transaction.query(`SET LOCAL lock_timeout = '7s'`)
    isStored(await putIn(transaction.client, putting('key', 'done')))
    isRefused(await putIn(transaction.client, putting('key', 'done', { absent: true })), 'absent', 'done')
    expect(await wait()).toBe('7s')
  })

  test('tables of an older version, without records: what is missing is made, and locks do not notice', async () => {
    await tell(migrated)
    await tell('DROP TABLE holdfast_record CASCADE')
    for (const name of ['put', 'put_in', 'get', 'forget'])
      await tell(renamed(`DROP FUNCTION public.holdfast_${name}`, DEFAULT_NAMES))
    expect(await tests.engine().enter([claimOf(A)])).toMatchObject([{ state: 'held' }])
    const transaction = await begin()
    isStored(await putIn(transaction.client, putting('key', 'done', { holding: A })))
    await transaction.query('COMMIT')
    expect(await textOf(tests.store(), 'key')).toBe('done')
    await tell('DROP TABLE holdfast_record CASCADE')
    isStored(await putOne(tests.store(), putting('key', 'new', { version: 0n })))
  })

  test('a user who may not make them is told what to run', async () => {
    await tell(migrated)
    await tell('DROP TABLE holdfast_record CASCADE')
    await tell('CREATE ROLE clerk LOGIN')
    await tell('REVOKE CREATE ON SCHEMA public FROM public')
    await tell('GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_meta, holdfast_line, holdfast_entry TO clerk')
    const url = new URL(tests.url())
    url.username = 'clerk'
    const limited = await tests.open(url.href)
    expect(await limited.enter([claimOf(A)])).toMatchObject([{ state: 'held' }])
    await expectAdviceToMigrate(limited)
  })
})

async function useEachVerb(store: Store, round: number): Promise<void> {
  const rate = { tokenUnits: 1, stepUnits: 1, stepUs: 1000, capacity: 100 }
  const step = (verb: PoolStep['verb'], id: string): PoolStep => ({
    ...{ key: 'pool', verb, id: `${id} ${round}`, lines: [{ item: 'A', quantity: 1 }] },
    ...{ ms: 60_000, wantMs: 0, flag: false },
  })
  isStored(await putOne(store, putting(`key ${round}`, 'a', {}, { ttlMs: 60_000 })))
  isStored(await putOne(store, putting(`key ${round}`, 'b', {}, { ttlMs: 60_000 })))
  await store.get([`key ${round}`])
  await store.take?.([{ parts: [{ key: `rate ${round}`, rate, cost: 1 }], bookUs: 0 }])
  for (const [verb, id] of [
    ...[['add', 'stock'] as const, ['reserve', 'one'] as const, ['reserve', 'other'] as const],
    ...[['extend', 'one'] as const, ['find', 'one'] as const, ['confirm', 'one'] as const],
    ...[['cancel', 'other'] as const, ['unwant', 'other'] as const],
  ])
    await store.hold?.([step(verb, id)])
}

async function connect(url: string): Promise<SqlConnection> {
  const client = new pg.Client(url)
  client.on('error', () => undefined)
  await client.connect()
  return { client, query: (sql) => client.query(sql), end: () => client.end() }
}
