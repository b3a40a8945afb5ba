/**
 * Records beyond what every store does, for the cases that PostgreSQL shares with MySQL: changes inside a transaction
 * of the user, at every isolation level, and rows of what has expired.
 */
import { randomUUID } from 'node:crypto'
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { isRefused, isStored, putOne, putting, read, removing, textOf } from '../../conformance/records.ts'
import type { Claim, Engine } from '../../src/core/engine.ts'
import type { Change, Put, Store } from '../../src/core/store.ts'
import { LIMIT } from './sql-database.ts'

/** A connection of the user. */
export interface SqlConnection {
  /** What `putIn` takes. */
  readonly client: unknown
  query(sql: string): Promise<unknown>
  end(): Promise<unknown>
}

/** How a server is dealt with. */
export interface SqlStoreServer {
  /** The URL of a new database. */
  database(): Promise<string>
  open(url: string): Promise<Engine>
  connect(url: string): Promise<SqlConnection>
  /** The statements that begin a transaction at that level. */
  begin(level: string): readonly string[]
  /** A pool of the user, of one connection. */
  pool(url: string): { end(): Promise<unknown> }
  tell(url: string, statement: string): Promise<readonly Record<string, unknown>[]>
  /** The statement by which the only entry of the line `key` leaves. */
  readonly leave: string
  /** Make what has expired look as if that had been some minutes ago. */
  readonly age: string
  /** How many rows one sweep removes. */
  readonly portion: number
}

/** For the tests of one suite: what the test that is running has. */
export interface StoreTests {
  url(): string
  engine(): Engine
  store(): Store
  open(url?: string): Promise<Engine>
  close(engine: Engine): Promise<void>
  connect(): Promise<SqlConnection>
  begin(level?: string): Promise<SqlConnection>
  putIn(connection: unknown, change: Change, store?: Store): Promise<Put>
  tell(statement: string): Promise<readonly Record<string, unknown>[]>
  /** Close this at the end of the test. */
  keep(end: () => Promise<unknown>): void
}

/** Ids of entries. */
export const A: string = 'a'.repeat(32)
export const B: string = 'b'.repeat(32)

export function claimOf(id: string, key = 'key'): Claim {
  return { key, id, holder: 'test', weight: 1, limit: 1, ttlMs: 60_000, wait: true }
}

export function withStore(server: () => SqlStoreServer): StoreTests {
  const engines = new Set<Engine>()
  const ends: (() => Promise<unknown>)[] = []
  let url: string
  let engine: Engine

  const open = async (at = url): Promise<Engine> => {
    const opened = await server().open(at)
    engines.add(opened)
    return opened
  }
  const close = async (one: Engine): Promise<void> => {
    if (engines.delete(one)) await one[Symbol.asyncDispose]()
  }
  const connect = async (): Promise<SqlConnection> => {
    const connection = await server().connect(url)
    ends.push(() => connection.end())
    return connection
  }
  beforeEach(async () => {
    url = await server().database()
    engine = await open()
  })
  afterEach(async () => {
    for (const end of ends.splice(0)) await end()
    for (const one of engines) await close(one)
  })
  return {
    url: () => url,
    engine: () => engine,
    store: () => engine.store as Store,
    open,
    close,
    connect,
    begin: async (level = 'READ COMMITTED') => {
      const connection = await connect()
      for (const statement of server().begin(level)) await connection.query(statement)
      return connection
    },
    putIn: (client, change, store = engine.store as Store) =>
      (store.putIn as NonNullable<Store['putIn']>).call(store, client, change),
    tell: (statement) => server().tell(url, statement),
    keep: (end) => void ends.push(end),
  }
}

/** Its user may not make the table of records. */
export async function expectAdviceToMigrate(limited: Engine): Promise<void> {
  await expect(putOne(limited.store as Store, putting('key', 'no'))).rejects.toMatchObject({
    outcome: 'not-applied',
    transient: false,
    message: expect.stringContaining('holdfast migrate --print'),
  })
}

export function sqlStoreCases(server: () => SqlStoreServer, tests: StoreTests): void {
  const { begin, putIn } = tests

  test('outside of a transaction it is refused before anything is stored', async () => {
    const pool = server().pool(tests.url())
    tests.keep(() => pool.end())
    const { client } = await tests.connect()
    for (const outside of [client, pool, {}, undefined])
      await expect(putIn(outside, putting('key', 'no'))).rejects.toThrow(TypeError)
    expect(await textOf(tests.store(), 'key')).toBe(null)
  })

  describe.each(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])('inside a transaction: %s', (level) => {
    test('a change is there when the transaction is committed, and not otherwise', async () => {
      const [engine, store] = [tests.engine(), tests.store()]
      await engine.enter([claimOf(A)])
      const one = await begin(level)
      const put = isStored(await putIn(one.client, putting('key', 'done', { holding: A, absent: true })))
      expect(await textOf(store, 'key')).toBe(null)
      await one.query('ROLLBACK')
      expect(await textOf(store, 'key')).toBe(null)
      const two = await begin(level)
      const change = putting('key', 'done', { holding: A, version: 0n }, { mark: 7n })
      const again = isStored(await putIn(two.client, change))
      await two.query('COMMIT')
      expect(again.version).toBeGreaterThan(put.version)
      expect(await read(store, 'key')).toMatchObject({ version: again.version, mark: 7n, livesForMs: null })
    })

    test('the lease is renewed while the transaction is open, alone and in a crowd', async () => {
      const [engine, store] = [tests.engine(), tests.store()]
      await engine.enter([claimOf(A)])
      const transaction = await begin(level)
      await putIn(transaction.client, putting('other', 'so that it has begun'))
      expect(await engine.renew([claimOf(A)])).toMatchObject([{ state: 'held' }])
      isStored(await putIn(transaction.client, putting('key', 'done', { holding: A })))
      expect(await engine.renew([claimOf(A)])).toMatchObject([{ state: 'held' }])
      expect(await engine.enter([claimOf(B)])).toMatchObject([{ state: 'waiting' }])
      expect(await engine.renew([claimOf(A), claimOf(B)])).toMatchObject([{ state: 'held' }, { state: 'waiting' }])
      expect(await engine.leave([claimOf(A)])).toEqual([true])
      isRefused(await putIn(transaction.client, putting('key', 'late', { holding: A })), 'holding', 'done')
      isStored(await putIn(transaction.client, putting('key', 'next', { holding: B })))
      await transaction.query('COMMIT')
      expect(await textOf(store, 'key')).toBe('next')
    })

    test('a holder that has lost the line since the transaction began is refused, and the transaction goes on', async () => {
      const [engine, store] = [tests.engine(), tests.store()]
      await engine.enter([claimOf(A)])
      const transaction = await begin(level)
      isStored(await putIn(transaction.client, putting('other', 'kept')))
      await engine.leave([claimOf(A)])
      isRefused(await putIn(transaction.client, putting('key', 'late', { holding: A })), 'holding', null)
      await transaction.query('COMMIT')
      expect(await textOf(store, 'key')).toBe(null)
      expect(await textOf(store, 'other')).toBe('kept')
    })

    test('the next holder waits for its end, and finds what was committed', async () => {
      const [engine, store] = [tests.engine(), tests.store()]
      await engine.enter([claimOf(A)])
      const { version } = isStored(await putOne(store, putting('key', 'started', { holding: A })))
      const transaction = await begin(level)
      isStored(await putIn(transaction.client, putting('key', 'done', { holding: A, version })))
      await engine.leave([claimOf(A)])
      await engine.enter([claimOf(B)])
      const change = putting('key', 'started again', { holding: B, version })
      await expect(putOne(store, change)).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
      expect(await engine.renew([claimOf(B)])).toMatchObject([{ state: 'held' }])
      const waiting = vi.waitFor(() => putOne(store, change), LIMIT)
      await transaction.query('COMMIT')
      isRefused(await waiting, 'version', 'done')
    })

    test('records of other keys are put and removed meanwhile, also new ones', async () => {
      const store = tests.store()
      await store.put([putting('b', '1'), putting('f', '1')])
      const transaction = await begin(level)
      isStored(await putIn(transaction.client, putting('b', '2')))
      isStored(await putIn(transaction.client, putting('d', '2', { absent: true })))
      const others = ['a', 'c', 'e', 'f', 'g'].map((key) => putting(key, 'other'))
      for (const put of await store.put([...others, removing('f')])) isStored(put)
      await transaction.query('COMMIT')
      const got = await Promise.all(['a', 'b', 'd', 'f'].map((key) => textOf(store, key)))
      expect(got).toEqual(['other', '2', '2', null])
    })
  })

  test('a release that is not committed yet is waited for: a holder cannot put behind the back of the next one', async () => {
    const [engine, store] = [tests.engine(), tests.store()]
    await engine.enter([claimOf(A)])
    isStored(await putOne(store, putting('key', 'before', { holding: A })))
    const leaving = await begin()
    await leaving.query(server().leave)
    const late = putting('key', 'late', { holding: A })
    await expect(putOne(store, late)).rejects.toMatchObject({ outcome: 'not-applied', transient: true })
    await leaving.query('COMMIT')
    isRefused(await putOne(store, late), 'holding', 'before')
  })

  test('a record that a transaction has locked fails its own changes, and no others of the batch', async () => {
    const store = tests.store()
    const transaction = await begin()
    isStored(await putIn(transaction.client, putting('locked', 'mine')))
    const puts = await store.put([putting('a', '1'), putting('locked', '2'), putting('b', '3'), putting('a', '4')])
    expect(puts.map(({ state }) => state)).toEqual(['stored', 'failed', 'stored', 'stored'])
    await transaction.query('COMMIT')
    expect(await Promise.all(['a', 'b', 'locked'].map((key) => textOf(store, key)))).toEqual(['4', '3', 'mine'])
  })

  test('changes of many keys, lines that come and go, and transactions, all at once: none waits for another in a circle', async () => {
    const engines = await Promise.all(Array.from({ length: 4 }, () => tests.open()))
    const keys = Array.from({ length: 6 }, (_, index) => `key ${index}`)
    const shuffled = (by: number): readonly string[] => keys.map((_, index) => keys[(index * 5 + by) % 6] as string)
    const change = async (engine: Engine, client: number): Promise<void> => {
      for (let round = 0; round < 20; round += 1) {
        const id = randomUUID().replaceAll('-', '')
        const claims = shuffled(round).map((key) => ({ ...claimOf(id, key), limit: 100 }))
        await engine.enter(claims)
        const changes = shuffled(round + client).map((key) => putting(key, id, { holding: id }))
        // On a busy machine a transaction may keep its record for longer than a change waits for it.
        for (const put of await (engine.store as Store).put(changes))
          if (put.state === 'failed') expect(put.error.message).toContain('another transaction has locked a row')
          else isStored(put)
        await engine.leave(claims)
      }
    }
    const commit = async (engine: Engine): Promise<void> => {
      const connection = await tests.connect()
      for (let round = 0; round < 20; round += 1) {
        for (const statement of server().begin('READ COMMITTED')) await connection.query(statement)
        isStored(await putIn(connection.client, putting(`key ${round % 6}`, 'in'), engine.store))
        await connection.query('COMMIT')
      }
    }
    await Promise.all(engines.flatMap((engine, client) => [change(engine, client), commit(engine)]))
  })

  test('a version is never given twice, though the row was swept and the clock was set back', async () => {
    const store = tests.store()
    isStored(await putOne(store, putting('key', 'a')))
    // As if the clock had been ahead by a day.
    await tests.tell('UPDATE holdfast_record SET version = version + 86400000000')
    const ahead = await read(store, 'key')
    const removal = isStored(await putOne(store, removing('key', { version: ahead.version })))
    expect(removal.version).toBe(ahead.version + 1n)
    await tests.tell(server().age)
    await tests.close(tests.engine())
    expect(await tests.tell('SELECT version FROM holdfast_record')).toEqual([])
    const next = await tests.open()
    const { version } = isStored(await putOne(next.store as Store, putting('key', 'b', { version: 0n })))
    expect(version).toBe(removal.version + 1n)
    isStored(await putOne(next.store as Store, removing('key')))
    await tests.tell(server().age)
    await tests.close(next)
    const last = await tests.open()
    const transaction = await begin()
    const put = isStored(await putIn(transaction.client, putting('key', 'c', { version: 0n }), last.store))
    await transaction.query('COMMIT')
    expect(put.version).toBeGreaterThan(version)
  })

  test('rows of what has expired go, some at once; those of other records stay', async () => {
    const store = tests.store()
    const keys = Array.from({ length: server().portion + 100 }, (_, index) => `key ${index}`)
    for (let from = 0; from < keys.length; from += 100)
      await store.put(keys.slice(from, from + 100).map((key) => putting(key, 'short', {}, { ttlMs: 50 })))
    isStored(await putOne(store, putting('kept', 'long', {}, { ttlMs: 6_000_000 })))
    isStored(await putOne(store, putting('for good', 'kept')))
    const count = async (): Promise<number> => (await tests.tell('SELECT mark FROM holdfast_record')).length
    await vi.waitFor(async () => expect(await textOf(store, keys.at(-1) as string)).toBe(null), LIMIT)
    await tests.tell(server().age)
    await tests.close(tests.engine())
    expect(await count()).toBe(102)
    const next = await tests.open()
    isStored(await putOne(next.store as Store, putting('kept', 'longer', {}, { ttlMs: 6_000_000 })))
    await tests.close(next)
    expect(await count()).toBe(2)
  })
}
