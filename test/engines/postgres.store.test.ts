/**
 * Records in PostgreSQL, beyond what every store does: changes inside a transaction of the user, tables of an older
 * version, and rows of what has expired.
 */
import pg from 'pg'
import postgresJs from 'postgres'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { isRefused, isStored, putOne, putting, read, removing, textOf } from '../../conformance/records.ts'
import type { Claim } from '../../src/core/engine.ts'
import type { Change, Put, Store } from '../../src/core/store.ts'
import { openPostgres, type PostgresEngine } from '../../src/engines/postgres/index.ts'
import { migration } from '../../src/engines/postgres/migration.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { LIMIT } from './sql-database.ts'

type PutIn = (transaction: unknown, change: Change) => Promise<Put>

await describeServer('records in PostgreSQL', findOwnPostgres, (source) => {
  let server: PostgresServer
  let database: string
  let engine: PostgresEngine
  let store: Store
  let putIn: PutIn
  const closing: (() => Promise<unknown>)[] = []
  const opening = new Set<PostgresEngine>()

  beforeAll(async () => {
    server = await PostgresServer.start(source, { settings: { max_connections: 200 } })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  beforeEach(async () => {
    database = await server.database()
    engine = await open()
    store = engine.store
    putIn = (transaction, change) => (store.putIn as PutIn)(transaction, change)
  })
  afterEach(async () => {
    for (const end of closing.splice(0)) await end()
    for (const opened of opening) await close(opened)
  })

  async function open(url = database): Promise<PostgresEngine> {
    const opened = await openPostgres(url)
    opening.add(opened)
    return opened
  }

  async function close(opened: PostgresEngine): Promise<void> {
    if (opening.delete(opened)) await opened[Symbol.asyncDispose]()
  }

  async function connect(): Promise<pg.Client> {
    const client = new pg.Client(database)
    client.on('error', () => undefined)
    await client.connect()
    closing.push(() => client.end())
    return client
  }

  async function begin(level = 'READ COMMITTED'): Promise<pg.Client> {
    const client = await connect()
    await client.query(`BEGIN ISOLATION LEVEL ${level}`)
    return client
  }

  async function tell(...statements: readonly string[]): Promise<readonly Record<string, unknown>[]> {
    await using connection = await server.connect(database)
    let rows: readonly Record<string, unknown>[] = []
    for (const statement of statements) rows = await connection.query(statement)
    return rows
  }

  const claimOf = (id: string, ttlMs = 60_000): Claim => ({
    ...{ key: 'key', id, holder: 'test', weight: 1, limit: 1, ttlMs, wait: true },
  })

  describe.each(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])('inside a transaction: %s', (level) => {
    test('a change is there when the transaction is committed, and not otherwise', async () => {
      await engine.enter([claimOf('a')])
      const client = await begin(level)
      const put = isStored(await putIn(client, putting('key', 'done', { holding: 'a', absent: true })))
      expect(await textOf(store, 'key')).toBe(null)
      await client.query('ROLLBACK')
      expect(await textOf(store, 'key')).toBe(null)
      await client.query(`BEGIN ISOLATION LEVEL ${level}`)
      const again = isStored(await putIn(client, putting('key', 'done', { holding: 'a', version: 0n }, { mark: 7n })))
      await client.query('COMMIT')
      expect(again.version).toBeGreaterThan(put.version)
      expect(await read(store, 'key')).toMatchObject({ version: again.version, mark: 7n, livesForMs: null })
    })

    test('postgres.js: the same', async () => {
      const sql = postgresJs(database, { max: 2 })
      closing.push(() => sql.end())
      await engine.enter([claimOf('a')])
      const failing = sql.begin(`ISOLATION LEVEL ${level}`, async (tx) => {
        isStored(await putIn(tx, putting('key', 'lost', { holding: 'a' })))
        throw new Error('changed my mind')
      })
      await expect(failing).rejects.toThrow('changed my mind')
      expect(await textOf(store, 'key')).toBe(null)
      await sql.begin(`ISOLATION LEVEL ${level}`, async (tx) => {
        isRefused(await putIn(tx, putting('key', 'late', { holding: 'b' })), 'holding', null)
        isStored(await putIn(tx, putting('key', 'done', { holding: 'a' })))
      })
      expect(await textOf(store, 'key')).toBe('done')
      await expect(putIn(sql, putting('key', 'no'))).rejects.toThrow(TypeError)
    })

    test('the lease is renewed while the transaction is open, alone and in a crowd; and ends, if it is not', async () => {
      await engine.enter([claimOf('a')])
      const client = await begin(level)
      // From here on a snapshot sees the line as it was.
      await client.query('SELECT 1 FROM pg_class')
      expect(await engine.renew([claimOf('a')])).toMatchObject([{ state: 'held' }])
      isStored(await putIn(client, putting('key', 'done', { holding: 'a' })))
      expect(await engine.renew([claimOf('a')])).toMatchObject([{ state: 'held' }])
      expect(await engine.enter([claimOf('b')])).toMatchObject([{ state: 'waiting' }])
      expect(await engine.renew([claimOf('a'), claimOf('b')])).toMatchObject([{ state: 'held' }, { state: 'waiting' }])
      expect(await engine.leave([claimOf('a')])).toEqual([true])
      isRefused(await putIn(client, putting('key', 'late', { holding: 'a' })), 'holding', 'done')
      isStored(await putIn(client, putting('key', 'next', { holding: 'b' })))
      await client.query('COMMIT')
      expect(await textOf(store, 'key')).toBe('next')
    })

    test('a holder that has lost the line since the transaction began is refused, and the transaction goes on', async () => {
      await engine.enter([claimOf('a')])
      const client = await begin(level)
      await client.query('SELECT 1 FROM pg_class')
      await engine.leave([claimOf('a')])
      isRefused(await putIn(client, putting('key', 'late', { holding: 'a' })), 'holding', null)
      // Nothing of the record is locked: the next holder can put.
      await engine.enter([claimOf('b')])
      isStored(await putOne(store, putting('key', 'next', { holding: 'b' })))
      await client.query('COMMIT')
      expect(await textOf(store, 'key')).toBe('next')
    })

    test('the next holder waits for its end, and finds what was committed', async () => {
      await engine.enter([claimOf('a')])
      const { version } = isStored(await putOne(store, putting('key', 'started', { holding: 'a' })))
      const client = await begin(level)
      isStored(await putIn(client, putting('key', 'done', { holding: 'a', version })))
      await engine.leave([claimOf('a')])
      await engine.enter([claimOf('b')])
      const change = putting('key', 'started again', { holding: 'b', version })
      await expect(putOne(store, change)).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
      const waiting = vi.waitFor(() => putOne(store, change), LIMIT)
      await client.query('COMMIT')
      isRefused(await waiting, 'version', 'done')
    })
  })

  test('at REPEATABLE READ, what other calls have put since it began makes the transaction begin again', async () => {
    for (const before of ['a value', null]) {
      const key = `key ${before}`
      if (before !== null) isStored(await putOne(store, putting(key, before)))
      const client = await begin('REPEATABLE READ')
      await client.query('SELECT 1 FROM pg_class')
      isStored(await putOne(store, putting(key, 'newer')))
      await expect(putIn(client, putting(key, 'from an old snapshot'))).rejects.toMatchObject({ code: '40001' })
      await client.query('ROLLBACK')
      expect(await textOf(store, key)).toBe('newer')
    }
  })

  test('outside of a transaction it is refused before anything is stored', async () => {
    const pool = new pg.Pool({ connectionString: database, max: 1 })
    closing.push(() => pool.end())
    const client = await connect()
    for (const outside of [client, pool, {}, undefined])
      await expect(putIn(outside, putting('key', 'no'))).rejects.toThrow(TypeError)
    expect(await textOf(store, 'key')).toBe(null)
  })

  test('the settings of the transaction are as before', async () => {
    const client = await begin()
    await client.query(`SET LOCAL lock_timeout = '7s'`)
    isStored(await putIn(client, putting('key', 'done')))
    isRefused(await putIn(client, putting('key', 'done', { absent: true })), 'absent', 'done')
    expect((await client.query('SHOW lock_timeout')).rows).toEqual([{ lock_timeout: '7s' }])
    await client.query('COMMIT')
    await client.query('BEGIN')
    isStored(await putIn(client, putting('key', 'again')))
    expect((await client.query('SHOW lock_timeout')).rows).toEqual([{ lock_timeout: '0' }])
    await client.query('COMMIT')
  })

  test('a record that a transaction has locked fails its own changes, and no others of the batch', async () => {
    const client = await begin()
    isStored(await putIn(client, putting('locked', 'mine')))
    const puts = await store.put([putting('a', '1'), putting('locked', '2'), putting('b', '3'), putting('a', '4')])
    expect(puts.map(({ state }) => state)).toEqual(['stored', 'failed', 'stored', 'stored'])
    await client.query('COMMIT')
    expect(await Promise.all(['a', 'b', 'locked'].map((key) => textOf(store, key)))).toEqual(['4', '3', 'mine'])
  })

  test('changes of many keys, lines that come and go, and transactions, all at once: none waits for another in a circle', async () => {
    const engines = await Promise.all(Array.from({ length: 4 }, () => open()))
    const keys = Array.from({ length: 6 }, (_, index) => `key ${index}`)
    const shuffled = (by: number): readonly string[] => keys.map((_, index) => keys[(index * 5 + by) % 6] as string)
    const work = engines.flatMap((one, client) => [
      (async () => {
        for (let round = 0; round < 30; round += 1) {
          const id = `${client} ${round}`
          const claims = shuffled(round).map((key) => ({ ...claimOf(id), key, limit: 100 }))
          await one.enter(claims)
          const puts = await one.store.put(shuffled(round + client).map((key) => putting(key, id, { holding: id })))
          // On a busy machine a transaction may keep its record for longer than a change waits for it.
          for (const put of puts)
            if (put.state === 'failed') expect(put.error.message).toContain('lock timeout')
            else isStored(put)
          await one.leave(claims)
        }
      })(),
      (async () => {
        const transaction = await connect()
        for (let round = 0; round < 30; round += 1) {
          await transaction.query('BEGIN')
          isStored(await (one.store.putIn as PutIn).call(one.store, transaction, putting(`key ${round % 6}`, 'in')))
          await transaction.query('COMMIT')
        }
      })(),
    ])
    await Promise.all(work)
  })

  test('tables of an older version, without records: what is missing is made, and locks do not notice', async () => {
    await tell(migration({ schema: 'public', name: 'holdfast' }), 'DROP TABLE holdfast_record CASCADE')
    await tell('DROP FUNCTION holdfast_put_2, holdfast_put_in_2, holdfast_get_2, holdfast_forget_2')
    expect(await engine.enter([claimOf('a')])).toMatchObject([{ state: 'held' }])
    const client = await begin()
    isStored(await putIn(client, putting('key', 'done', { holding: 'a' })))
    await client.query('COMMIT')
    expect(await textOf(store, 'key')).toBe('done')
    await tell('DROP TABLE holdfast_record CASCADE')
    isStored(await putOne(store, putting('key', 'new', { version: 0n })))
  })

  test('a user who may not make them is told what to run', async () => {
    await tell(migration({ schema: 'public', name: 'holdfast' }), 'DROP TABLE holdfast_record CASCADE')
    await tell('CREATE ROLE clerk LOGIN', 'REVOKE CREATE ON SCHEMA public FROM public')
    await tell('GRANT SELECT, INSERT, UPDATE, DELETE ON holdfast_meta, holdfast_line, holdfast_entry TO clerk')
    const url = new URL(database)
    url.username = 'clerk'
    const limited = await open(url.href)
    expect(await limited.enter([claimOf('a')])).toMatchObject([{ state: 'held' }])
    await expect(putOne(limited.store, putting('key', 'no'))).rejects.toMatchObject({
      outcome: 'not-applied',
      transient: false,
      message: expect.stringContaining('holdfast migrate --print'),
    })
    await engine.leave([claimOf('a')])
  })

  test('a version is never given twice, though the row was swept and the clock was set back', async () => {
    isStored(await putOne(store, putting('key', 'a')))
    // As if the clock had been ahead by a day.
    await tell('UPDATE holdfast_record SET version = version + 86400000000')
    const ahead = await read(store, 'key')
    const removal = isStored(await putOne(store, removing('key', { version: ahead.version })))
    expect(removal.version).toBe(ahead.version + 1n)
    await close(engine)
    expect(await tell('SELECT key FROM holdfast_record')).toEqual([])
    const other = await open()
    const { version } = isStored(await putOne(other.store, putting('key', 'b', { version: 0n })))
    expect(version).toBe(removal.version + 1n)
  })

  test('rows of what has expired go, some at once; those of other records stay', async () => {
    const keys = Array.from({ length: 1500 }, (_, index) => `key ${index}`)
    for (let from = 0; from < keys.length; from += 100)
      await store.put(keys.slice(from, from + 100).map((key) => putting(key, 'short', {}, { ttlMs: 50 })))
    isStored(await putOne(store, putting('kept', 'long', {}, { ttlMs: 600_000 })))
    isStored(await putOne(store, putting('for good', 'kept')))
    const count = async (): Promise<unknown> => (await tell('SELECT count(*)::int AS n FROM holdfast_record'))[0]?.n
    await vi.waitFor(async () => expect(await textOf(store, 'key 1499')).toBe(null), LIMIT)
    await close(engine)
    expect(await count()).toBe(502)
    const next = await open()
    isStored(await putOne(next.store, putting('kept', 'longer', {}, { ttlMs: 600_000 })))
    await close(next)
    expect(await count()).toBe(2)
  })
})
