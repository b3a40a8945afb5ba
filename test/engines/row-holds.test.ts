/**
 * Holds of rows of the user's own, inside of the user's transactions, on each database: the same cases for all of them,
 * with connections of their own and the clock of the server.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createPool } from 'mysql2/promise'
import pg from 'pg'
import postgres from 'postgres'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import * as onMysql from '../../src/transactions/mysql.ts'
import * as onPostgres from '../../src/transactions/postgres.ts'
import * as onSqlite from '../../src/transactions/sqlite.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'

const ROW = { table: 'tickets', where: { id: 7 }, left: 'left' } as const

type Options = { readonly id: string } & Record<string, unknown>
type Answer = {
  readonly state: string
  readonly quantity?: number
  readonly left?: number
  readonly remainingMs?: number
}

/** The four calls, inside of one transaction. */
interface Calls {
  reserve(options: Options): Promise<Answer>
  extend(options: Options): Promise<Answer>
  confirm(options: Options): Promise<Answer>
  cancel(options: Options): Promise<Answer>
}

interface Shop extends AsyncDisposable {
  /** Commits, or rolls back what throws. */
  transaction<Result>(work: (calls: Calls) => Promise<Result>): Promise<Result>
  outside(): Promise<unknown>
  tell(sql: string): Promise<unknown>
  /** What the column says. */
  left(): Promise<number>
}

type Module<Client> = {
  readonly [Call in 'reserveRow' | 'extendRow' | 'confirmRow' | 'cancelRow']: (
    client: Client,
    options: never,
  ) => unknown
}

function callsOf<Client>(module: Module<Client>, client: Client): Calls {
  const by =
    (call: keyof Module<Client>) =>
    async (options: Options): Promise<Answer> =>
      (await module[call](client, { ...ROW, ...options } as never)) as Answer
  return { reserve: by('reserveRow'), extend: by('extendRow'), confirm: by('confirmRow'), cancel: by('cancelRow') }
}

function cases(open: () => Promise<Shop>): void {
  let shop: Shop
  beforeAll(async () => {
    shop = await open()
  })
  afterAll(() => shop[Symbol.asyncDispose]())
  beforeEach(async () => {
    await shop.tell('DELETE FROM holdfast_row_holds')
    await shop.tell('DELETE FROM tickets')
    await shop.tell(`INSERT INTO tickets VALUES (7, 10), (8, 10)`)
  })
  const once = (call: keyof Calls, options: Options): Promise<Answer> =>
    shop.transaction((calls) => calls[call](options))

  test('units are held, counted once for an id, and sold once', async () => {
    const wanted = { id: 'cart', quantity: 4, hold: '1m' }
    expect(await once('reserve', wanted)).toMatchObject({ state: 'held', quantity: 4, remainingMs: 60_000 })
    expect(await once('reserve', wanted)).toMatchObject({ state: 'held', quantity: 4 })
    expect(await shop.left()).toBe(6)
    expect(await once('reserve', { ...wanted, quantity: 5 })).toEqual({ state: 'differs', quantity: 4 })
    expect(await once('reserve', { id: 'other', quantity: 7 })).toEqual({ state: 'short', left: 6 })
    expect(await once('confirm', { id: 'cart' })).toEqual({ state: 'sold', quantity: 4 })
    expect(await once('confirm', { id: 'cart' })).toEqual({ state: 'sold', quantity: 4 })
    expect(await once('reserve', wanted)).toEqual({ state: 'sold', quantity: 4 })
    expect(await once('cancel', { id: 'cart' })).toEqual({ state: 'sold', quantity: 4 })
    expect(await once('extend', { id: 'cart' })).toEqual({ state: 'sold', quantity: 4 })
    expect(await shop.left()).toBe(6)
  })

  test('calls that are made at once in one transaction are done one after the other', async () => {
    const ids = ['a', 'b', 'c']
    const held = await shop.transaction(({ reserve }) => Promise.all(ids.map((id) => reserve({ id, quantity: 1 }))))
    expect(held.map(({ state }) => state)).toEqual(['held', 'held', 'held'])
    expect(await shop.left()).toBe(7)
  })

  test('what is cancelled is there again, once; and so is what a transaction takes back that fails', async () => {
    await once('reserve', { id: 'cart', quantity: 4 })
    expect(await once('cancel', { id: 'cart' })).toEqual({ state: 'cancelled', quantity: 4 })
    expect(await once('cancel', { id: 'cart' })).toEqual({ state: 'lapsed' })
    expect(await shop.left()).toBe(10)
    const failing = shop.transaction(async ({ reserve }) => {
      expect(await reserve({ id: 'cart', quantity: 9 })).toMatchObject({ state: 'held' })
      throw new Error('the user gives up')
    })
    await expect(failing).rejects.toThrow('the user gives up')
    expect(await shop.left()).toBe(10)
    expect(await once('confirm', { id: 'cart' })).toEqual({ state: 'lapsed' })
  })

  test('what has lapsed is there for the call that wants it, and is not sold; what was extended lives', async () => {
    await once('reserve', { id: 'elsewhere', where: { id: 8 }, quantity: 3, hold: 100 })
    await once('reserve', { id: 'lapses', quantity: 3, hold: 100 })
    await once('reserve', { id: 'lapses too', quantity: 2, hold: 100 })
    await once('reserve', { id: 'lives', quantity: 4, hold: 100 })
    expect(await once('extend', { id: 'lives', hold: '1m' })).toMatchObject({ state: 'held', remainingMs: 60_000 })
    expect(await once('extend', { id: 'lives', hold: '1s' })).toMatchObject({ state: 'held', quantity: 4 })
    const tooMany = (): Promise<Answer> => once('reserve', { id: 'too many', quantity: 7 })
    await expect.poll(tooMany, { timeout: 10_000 }).toEqual({ state: 'short', left: 6 })
    expect(await shop.left()).toBe(6)
    expect(await once('confirm', { id: 'elsewhere', where: { id: 8 } })).toEqual({ state: 'lapsed' })
    expect(await once('confirm', { id: 'lapses' })).toEqual({ state: 'lapsed' })
    expect(await once('reserve', { id: 'all', quantity: 6 })).toMatchObject({ state: 'held' })
    expect(await shop.left()).toBe(0)
    expect(await once('confirm', { id: 'lapses', late: 'if-available', quantity: 3 })).toEqual({ state: 'lapsed' })
    await once('cancel', { id: 'all' })
    expect(await once('confirm', { id: 'lapses', late: 'if-available', quantity: 3 })).toMatchObject({ state: 'sold' })
    expect(await once('confirm', { id: 'lives' })).toMatchObject({ state: 'sold' })
    expect(await shop.left()).toBe(3)
  })

  test('a sale by code that knows nothing of holds takes nothing that is held', async () => {
    await once('reserve', { id: 'cart', quantity: 9 })
    await shop.tell('UPDATE tickets SET "left" = "left" - 2 WHERE id = 7 AND "left" >= 2')
    expect(await shop.left()).toBe(1)
    expect(await once('confirm', { id: 'cart' })).toMatchObject({ state: 'sold' })
  })

  test('buyers at once get no more than there is, and each id counts once', async () => {
    const buy = async (id: string): Promise<boolean> => {
      for (;;) {
        const { state } = await once('reserve', { id, quantity: 1 }).catch(() => ({ state: 'conflict' }))
        if (state === 'held') return true
        if (state === 'short') return false
      }
    }
    const ids = Array.from({ length: 24 }, (_, number) => `cart ${number % 16}`)
    const held = (await Promise.all(ids.map(async (id) => ((await buy(id)) ? id : '')))).filter((id) => id !== '')
    expect(new Set(held).size).toBe(10)
    expect(await shop.left()).toBe(0)
  })

  test('other rows are others, a row that is not there is missing, and what cannot be meant is refused', async () => {
    await once('reserve', { id: 'cart', quantity: 10 })
    expect(await once('reserve', { id: 'cart', where: { id: 8 }, quantity: 10 })).toMatchObject({ state: 'held' })
    expect(await once('reserve', { id: 'cart', where: { id: '7' }, quantity: 10 })).toMatchObject({ state: 'held' })
    expect(await once('reserve', { id: 'cart', where: { id: 9 }, quantity: 1 })).toEqual({ state: 'missing' })
    await expect(once('reserve', { id: '', quantity: 1 })).rejects.toThrow('id must be')
    await expect(once('reserve', { id: 'cart', quantity: 0 })).rejects.toThrow('quantity must be')
    await expect(once('confirm', { id: 'x', late: 'if-available' })).rejects.toThrow('quantity must be')
    await expect(once('reserve', { id: 'cart', quantity: 1, where: {} })).rejects.toThrow('every row')
    const where = { id: {} } as never
    await expect(once('reserve', { id: 'cart', quantity: 1, where })).rejects.toThrow('got object')
    await expect(shop.outside()).rejects.toThrow('needs an open transaction')
  })
}

await describeServer('holds of rows on PostgreSQL', findPostgres, (source) => {
  let server: PostgresServer
  let database: string
  beforeAll(async () => {
    server = await PostgresServer.start(source)
    database = await server.database()
    const client = new pg.Client(database)
    await client.connect()
    await client.query('CREATE TABLE tickets (id int PRIMARY KEY, "left" int NOT NULL)')
    await Promise.all([onPostgres.setupRowHolds(client), onPostgres.setupRowHolds(client)])
    await client.end()
  })
  afterAll(() => server[Symbol.asyncDispose]())

  describe('by pg', () => {
    cases(async () => {
      const pool = new pg.Pool({ connectionString: database, max: 6 })
      return {
        async transaction(work) {
          const client = await pool.connect()
          try {
            await client.query('BEGIN')
            const result = await work(callsOf(onPostgres, client))
            await client.query('COMMIT')
            return result
          } catch (error) {
            await client.query('ROLLBACK')
            throw error
          } finally {
            client.release()
          }
        },
        outside: async () => {
          const client = await pool.connect()
          try {
            return await onPostgres.reserveRow(client, { ...ROW, id: 'x', quantity: 1 })
          } finally {
            client.release()
          }
        },
        tell: (sql) => pool.query(sql),
        left: async () => (await pool.query('SELECT "left" FROM tickets WHERE id = 7')).rows[0].left,
        [Symbol.asyncDispose]: () => pool.end(),
      }
    })
  })

  describe('by postgres.js', () => {
    cases(async () => {
      const sql = postgres(database, { max: 6, onnotice: () => undefined })
      return {
        transaction: (work) => sql.begin((inside) => work(callsOf(onPostgres, inside))) as never,
        outside: () => onPostgres.reserveRow(sql, { ...ROW, id: 'x', quantity: 1 }),
        tell: async (text) => await sql.unsafe(text),
        left: async () => (await sql`SELECT "left" FROM tickets WHERE id = 7`)[0]?.left,
        [Symbol.asyncDispose]: () => sql.end(),
      }
    })
  })
})

await describeServer('holds of rows on MariaDB', findMariadb, (source) => {
  cases(async () => {
    const server = await MariadbServer.start(source)
    const pool = createPool({ uri: server.url, connectionLimit: 6 })
    const plain = (sql: string): string => sql.replaceAll('"', '`')
    await pool.query('CREATE TABLE tickets (id INT PRIMARY KEY, `left` INT NOT NULL) ENGINE = InnoDB')
    await onMysql.setupRowHolds(pool)
    return {
      async transaction(work) {
        const client = await pool.getConnection()
        try {
          await client.beginTransaction()
          const result = await work(callsOf(onMysql, client))
          await client.commit()
          return result
        } catch (error) {
          await client.rollback()
          throw error
        } finally {
          client.release()
        }
      },
      outside: () => onMysql.reserveRow(pool, { ...ROW, id: 'x', quantity: 1 }),
      tell: (sql) => pool.query(plain(sql)),
      left: async () => {
        const [rows] = await pool.query('SELECT `left` FROM tickets WHERE id = 7')
        return (rows as { left: number }[])[0]?.left as number
      },
      async [Symbol.asyncDispose]() {
        await pool.end()
        await server[Symbol.asyncDispose]()
      },
    }
  })
})

describe('holds of rows on SQLite', () => {
  test('are cleared away also where 200,000 are due at once: a call fails no more than with one', async () => {
    const database = (await loadDriver()).open(':memory:')
    database.exec('CREATE TABLE tickets (id INTEGER PRIMARY KEY, "left" INTEGER NOT NULL)')
    database.exec('INSERT INTO tickets VALUES (7, 10)')
    onSqlite.setupRowHolds(database)
    const hold = (id: string): Answer => onSqlite.reserveRow(database, { ...ROW, id, quantity: 1 })
    database.exec('begin immediate')
    hold('first')
    database.exec(`
      WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 200000)
      INSERT INTO holdfast_row_holds SELECT row_key, 'sold ' || n, 'sold', 1, n, row_of FROM holdfast_row_holds, numbers
    `)
    expect(hold('last')).toMatchObject({ state: 'held' })
    expect(database.prepare('SELECT id FROM holdfast_row_holds ORDER BY id').all()).toMatchObject([
      { id: 'first' },
      { id: 'last' },
    ])
    database.exec('commit')
    database.close()
  })

  cases(async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-row-holds-'))
    const database = (await loadDriver()).open(join(folder, 'shop.db'))
    database.exec('CREATE TABLE tickets (id INTEGER PRIMARY KEY, "left" INTEGER NOT NULL)')
    onSqlite.setupRowHolds(database)
    // One connection, so one transaction at a time.
    let turn: Promise<unknown> = Promise.resolve()
    return {
      transaction(work) {
        const done = turn.then(async () => {
          database.exec('begin immediate')
          try {
            const result = await work(callsOf(onSqlite, database))
            database.exec('commit')
            return result
          } catch (error) {
            database.exec('rollback')
            throw error
          }
        })
        turn = done.catch(() => undefined)
        return done
      },
      outside: async () => onSqlite.reserveRow(database, { ...ROW, id: 'x', quantity: 1 }),
      tell: async (sql) => database.exec(sql),
      left: async () => (database.prepare('SELECT "left" FROM tickets WHERE id = 7').all()[0] as { left: number }).left,
      async [Symbol.asyncDispose]() {
        database.close()
        rmSync(folder, { recursive: true })
      },
    }
  })
})
