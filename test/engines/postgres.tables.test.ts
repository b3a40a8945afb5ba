/**
 * The tables: made on first use, by many at once, or by a user who may; under names of their own; refused where they
 * cannot be used.
 */
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { migration } from '../../src/engines/postgres/migration.ts'
import { DEFAULT_NAMES, renamed } from '../../src/engines/postgres/names.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { findOwnPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'

const TABLES = ['entry', 'line', 'meta', 'pool', 'pool_hold', 'pool_item', 'record']

await describeServer('the tables in PostgreSQL', findOwnPostgres, (source) => {
  let server: PostgresServer

  beforeAll(async () => {
    server = await PostgresServer.start(source, { settings: { max_connections: 200 } })
  })

  afterAll(() => server[Symbol.asyncDispose]())

  async function tell(database: string, ...statements: readonly string[]): Promise<readonly Record<string, unknown>[]> {
    await using connection = await server.connect(database)
    let rows: readonly Record<string, unknown>[] = []
    for (const statement of statements) rows = await connection.query(statement)
    return rows
  }

  async function using<Value>(url: string, use: (locks: Locks) => Promise<Value>, options = {}): Promise<Value> {
    const locks = createLocks(await openPostgres(url, options), { ttl: '60s' })
    try {
      return await use(locks)
    } finally {
      await locks.close()
    }
  }

  const take = async (locks: Locks): Promise<bigint | null> =>
    await locks.mutex('key').using({ wait: '20s' }, (lease) => lease.token)

  /** The URL of the same database for a user who may connect, and nothing else. */
  async function asPlainUser(database: string): Promise<string> {
    await tell(database, `DO $$ BEGIN CREATE ROLE app LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$`)
    await tell(database, 'REVOKE CREATE ON SCHEMA public FROM public')
    const url = new URL(database)
    url.username = 'app'
    return url.href
  }

  test('fifty who come to an empty database at once all get the lock, one after the other', async () => {
    const database = await server.database()
    const all = await Promise.all(
      Array.from({ length: 50 }, async () => createLocks(await openPostgres(database), { ttl: '60s' })),
    )
    const tokens = await Promise.all(all.map(take))
    expect(new Set(tokens).size).toBe(50)
    await Promise.all(all.map((locks) => locks.close()))
    expect(await tell(database, 'SELECT count(*)::int AS metas FROM holdfast_meta')).toEqual([{ metas: 1 }])
  })

  test('a user who may not create them is told what to do; done that, all works', async () => {
    const database = await server.database()
    const url = await asPlainUser(database)
    await expect(using(url, take)).rejects.toMatchObject({
      outcome: 'not-applied',
      transient: false,
      message: expect.stringContaining('holdfast migrate --print'),
    })
    const text = migration({ schema: 'public', name: 'holdfast' })
    await tell(database, text)
    await expect(using(url, take)).rejects.toMatchObject({
      transient: false,
      message: expect.stringContaining('GRANT'),
    })
    const grants = text.split('\n').filter((line) => /^--\s+GRANT/.test(line))
    expect(grants).toHaveLength(2)
    await tell(database, ...grants.map((line) => line.replace(/^--\s+/, '').replace('your_user', 'app')))
    const token = await using(url, take)
    expect(await using(url, take)).toBeGreaterThan(token as bigint)
  })

  test('the printed text can be run again, also while locks are held, and changes nothing', async () => {
    const database = await server.database()
    const text = migration({ schema: 'locks', name: 'app' })
    await tell(database, text)
    await using(
      database,
      async (locks) => {
        const lease = await locks.mutex('key').acquire()
        await tell(database, text)
        expect((await locks.inspect('key')).entries).toHaveLength(1)
        expect(await lease.release()).toBe(true)
      },
      { schema: 'locks', name: 'app' },
    )
  })

  test('names of one’s own are lines of one’s own, in a schema that is made with them', async () => {
    const database = await server.database()
    await using(`${database}?schema=Locks&name=Team_1`, async (ours) => {
      await using(database, async (theirs) => {
        await ours.mutex('key').acquire()
        expect(await theirs.mutex('key').tryAcquire()).toBeDefined()
      })
    })
    const tables = await tell(
      database,
      `SELECT schemaname || '.' || tablename AS name FROM pg_tables WHERE tablename ~ '^(holdfast|Team_1)_' ORDER BY 1`,
    )
    expect(tables.map(({ name }) => name)).toEqual([
      ...TABLES.map((table) => `Locks.Team_1_${table}`),
      ...TABLES.map((table) => `public.holdfast_${table}`),
    ])
    await expect(openPostgres(database, { schema: 'a"b' })).rejects.toThrow(TypeError)
    await expect(openPostgres(database, { name: 'x'.repeat(60) })).rejects.toThrow(TypeError)
  })

  test('tables that are dropped are made again, and tokens go on', async () => {
    const database = await server.database()
    await using(database, async (locks) => {
      const before = await take(locks)
      await tell(database, 'DROP TABLE holdfast_line, holdfast_entry, holdfast_meta CASCADE')
      expect(await take(locks)).toBeGreaterThan(before as bigint)
      await tell(database, 'DROP TABLE holdfast_line CASCADE')
      expect(await take(locks)).toBeGreaterThan(before as bigint)
    })
  })

  test('functions of another version stay beside ours, and both serve the same locks', async () => {
    const database = await server.database()
    const names = { schema: 'public', name: 'holdfast' }
    const [ours = ''] = /holdfast_enter_[0-9a-f]{8}/.exec(migration(names)) ?? []
    const theirs = ours.replace(/.{8}$/, '00000000')
    // What another release left there: the same functions here, by other names.
    await tell(database, migration(names).replaceAll(/(holdfast_\w+)_[0-9a-f]{8}/g, '$1_00000000'))
    const made = async (): Promise<readonly unknown[]> =>
      (await tell(database, `SELECT proname FROM pg_proc WHERE proname IN ('${ours}', '${theirs}') ORDER BY 1`)).map(
        ({ proname }) => proname,
      )
    expect(await made()).toEqual([theirs])
    await using(database, async (locks) => {
      await locks.mutex('key').acquire()
      expect(await made()).toEqual([ours, theirs].toSorted())
      const [answer] = await tell(
        database,
        `SELECT public.${theirs}(ARRAY['${Buffer.from('key').toString('hex')}'], ARRAY['${'0'.repeat(32)}'], ARRAY['other'],
          ARRAY[1], ARRAY[1], ARRAY[1000::bigint], ARRAY[false], ARRAY[0], 'other', 0)::text AS answer`,
      )
      expect(answer).toBeDefined()
    })
  })

  test('a format of the future is refused, and left alone', async () => {
    const database = await server.database()
    await tell(database, migration({ schema: 'public', name: 'holdfast' }))
    await tell(
      database,
      'UPDATE holdfast_meta SET format = 2',
      renamed('DROP FUNCTION public.holdfast_enter_one, public.holdfast_enter', DEFAULT_NAMES),
    )
    await expect(using(database, take)).rejects.toMatchObject({
      transient: false,
      message: expect.stringContaining('a newer Holdfast'),
    })
  })

  test('a database that cannot store every key is refused', async () => {
    await using connection = await server.connect()
    await connection.query(`CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'`)
    await expect(using(server.url.replace(/\/postgres$/, '/latin'), take)).rejects.toMatchObject({
      transient: false,
      message: expect.stringContaining('UTF8'),
    })
  })

  test('rows of empty lines go, by and by, also those of dead processes', async () => {
    const database = await server.database()
    const rows = async (): Promise<unknown> =>
      (await tell(database, 'SELECT count(*)::int AS rows FROM holdfast_line'))[0]?.rows
    const engine = await openPostgres(database)
    const claims = Array.from({ length: 300 }, (_, index) => ({
      ...{ key: `key ${index}`, id: `${index}`, holder: 'dead', weight: 1, limit: 1, ttlMs: 100, wait: true },
    }))
    await engine.enter(claims)
    expect(await rows()).toBe(300)
    await tell(database, `UPDATE holdfast_meta SET swept_at = swept_at - interval '1 hour'`)
    await vi.waitFor(async () => {
      await tell(database, `UPDATE holdfast_meta SET swept_at = swept_at - interval '1 hour'`)
      await using(database, take)
      expect(await rows()).toBe(0)
    }, 20_000)
    await engine[Symbol.asyncDispose]()
  })
})
