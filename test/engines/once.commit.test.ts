/** `attempt.commit`: the result of `once` inside the user's own transaction, with each driver. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createConnection } from 'mysql2/promise'
import pg, { type Connection } from 'pg'
import postgres from 'postgres'
import { describe, expect, test, vi } from 'vitest'
import { faulty } from '../../conformance/faulty.ts'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { connect } from '../../src/connect.ts'
import { EngineError, LeaseLostError } from '../../src/core/errors.ts'
import { openSqlite } from '../../src/engines/sqlite/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { type Attempt, once } from '../../src/recipes/once/index.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findOwnPostgres, findPostgres, PostgresServer } from '../servers/postgres.ts'
import type { ServerProcess } from '../servers/servers.ts'
import { describeServer } from '../servers/suite.ts'

/** A database of the user, by one driver. */
interface Books {
  /** Insert a row and `commit` the result of the attempt, in one transaction; then call `before` and end it. */
  book(attempt: Attempt, before: () => Promise<void> | void): Promise<string>
  count(): Promise<number>
}

const CREATE = 'create table if not exists books (name varchar(200) not null)'

/** The properties, with any driver. */
async function checkCommit(locks: Locks, books: Books): Promise<void> {
  const pay = once(locks, { wait: '20s' })
  const booked = await pay.run('done', (attempt) => books.book(attempt, () => {}))
  expect(booked).toMatchObject({ value: 'booked', replayed: false })
  expect(await pay.run('done', () => 'again')).toMatchObject({ value: 'booked', replayed: true })
  expect(await books.count()).toBe(1)

  // Rolled back: neither the row nor the record is there.
  const failing = pay.run('failed', (attempt) =>
    books.book(attempt, () => {
      throw new Error('no more')
    }),
  )
  await expect(failing).rejects.toThrow('no more')
  expect(await books.count()).toBe(1)
  const again = await pay.run('failed', (attempt) => books.book(attempt, () => {}))
  expect(again).toMatchObject({ value: 'booked', replayed: false, attempt: { number: 2 } })
  expect(await books.count()).toBe(2)

  // The work throws after the transaction: what is stored is what happened.
  const late = await pay.run<string>('thrown', async (attempt) => {
    await books.book(attempt, () => {})
    throw new Error('the connection broke')
  })
  expect(late).toMatchObject({ value: 'booked', replayed: false })
  expect(await books.count()).toBe(3)

  // The work returns, and the transaction was rolled back.
  const forgotten = pay.run('forgotten', async (attempt) => {
    await books.book(attempt, () => Promise.reject(new Error('roll back'))).catch(() => {})
    return 'pretended'
  })
  await expect(forgotten).rejects.toThrow(/was not committed when the work for 'forgotten' ended/)
  expect(await pay.run('forgotten', () => 'again')).toMatchObject({ value: 'again', attempt: { number: 2 } })

  // Rolled back, and tried again by the same work, as after a serialization failure.
  const retried = await pay.run('retried', async (attempt) => {
    await books.book(attempt, () => Promise.reject(new Error('try again'))).catch(() => {})
    return books.book(attempt, () => {})
  })
  expect(retried).toMatchObject({ value: 'booked', replayed: false })
  expect(await books.count()).toBe(4)

  // Committed: there is no second time, and what else is in that transaction is rolled back.
  const twice = await pay.run('twice', async (attempt) => {
    const value = await books.book(attempt, () => {})
    await expect(books.book(attempt, () => {})).rejects.toThrow(/called before by this attempt/)
    return value
  })
  expect(twice).toMatchObject({ value: 'booked', replayed: false })
  expect(await books.count()).toBe(5)

  // Evicted, so that another execution can begin: refused, and nothing of it is left.
  const evicted = pay.run('evicted', async (attempt) => {
    await locks.evict('once::evicted', attempt.token as bigint, 'now')
    return books.book(attempt, () => {})
  })
  await expect(evicted).rejects.toThrow(LeaseLostError)
  expect(await books.count()).toBe(5)
  await expect(pay.run('wrong', (attempt) => attempt.commit('no transaction', 1))).rejects.toThrow(TypeError)
}

describe('commit on SQLite', () => {
  test('stores the result and the row together, or neither', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
    const file = join(folder, 'books.db')
    await using locks = await connect(`sqlite:${file}`)
    const database = (await loadDriver()).open(file)
    try {
      database.exec(`pragma busy_timeout = 10000; ${CREATE}`)
      await checkCommit(locks, {
        async book(attempt, before) {
          database.exec('begin immediate')
          try {
            database.prepare('insert into books values (?)').run(attempt.key)
            const value = await attempt.commit(database, 'booked')
            await before()
            database.exec('commit')
            return value
          } catch (error) {
            database.exec('rollback')
            throw error
          }
        },
        count: async () => database.prepare('select * from books').all().length,
      })
    } finally {
      database.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test('is the last of an attempt: a step behind it is refused, and not done', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
    const file = join(folder, 'books.db')
    await using locks = await connect(`sqlite:${file}`)
    const database = (await loadDriver()).open(file)
    try {
      const mails: string[] = []
      const booked = await once(locks).run('a', async (attempt) => {
        database.exec('begin immediate')
        const value = await attempt.commit(database, 'booked')
        await expect(attempt.commit(database, 'again')).rejects.toThrow(/called before by this attempt/)
        database.exec('commit')
        await expect(attempt.step('mail', () => mails.push('sent'))).rejects.toThrow(TypeError)
        return value
      })
      expect(booked.value).toBe('booked')
      expect(mails).toEqual([])
    } finally {
      database.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })

  test('is not refused because of a step that was stored, though its answer was lost', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-once-'))
    const file = join(folder, 'books.db')
    const engine = faulty(await openSqlite(`sqlite:${file}`))
    await using locks = createLocks(engine, { callTimeout: '500ms' })
    const database = (await loadDriver()).open(file)
    try {
      const held = engine.next('put', 'hold reply')
      const booked = await once(locks).run('a', async (attempt) => {
        await expect(attempt.step('charge', () => 'charged')).rejects.toThrow(EngineError)
        database.exec('begin immediate')
        const value = await attempt.commit(database, 'booked')
        database.exec('commit')
        return value
      })
      held.release()
      expect(booked).toMatchObject({ value: 'booked', replayed: false })
    } finally {
      database.close()
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

await describeServer('commit on PostgreSQL', findPostgres, (source) => {
  test('stores the result and the row together, or neither: pg', async () => {
    await using server = await PostgresServer.start(source)
    const url = await server.database()
    await using locks = await connect(url as `postgres://${string}`)
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    try {
      await client.query(CREATE)
      await checkCommit(locks, {
        async book(attempt, before) {
          await client.query('begin')
          try {
            await client.query('insert into books values ($1)', [attempt.key])
            const value = await attempt.commit(client, 'booked')
            await before()
            await client.query('commit')
            return value
          } catch (error) {
            await client.query('rollback')
            throw error
          }
        },
        count: async () => (await client.query('select * from books')).rows.length,
      })
    } finally {
      await client.end()
    }
  })

  test('stores the result and the row together, or neither: postgres.js', async () => {
    await using server = await PostgresServer.start(source)
    const url = await server.database()
    await using locks = await connect(url as `postgres://${string}`)
    const sql = postgres(url, { max: 2 })
    try {
      await sql.unsafe(CREATE)
      await checkCommit(locks, {
        book: (attempt, before) =>
          sql.begin(async (tx) => {
            await tx`insert into books values (${attempt.key})`
            const value = await attempt.commit(tx, 'booked')
            await before()
            return value
          }) as Promise<string>,
        count: async () => (await sql`select * from books`).length,
      })
    } finally {
      await sql.end()
    }
  })
})

await describeServer('a result on PostgreSQL', findPostgres, (source) => {
  test('is stored, though another transaction has locked the row of its line', { timeout: 60_000 }, async () => {
    await using server = await PostgresServer.start(source)
    const url = await server.database()
    await using locks = await connect(url as `postgres://${string}`, { ttl: '5s' })
    await using looker = await server.connect(url)
    const pay = once(locks)
    const asked = pay.run('stuck', async () => {
      await looker.query('BEGIN')
      await looker.query("SELECT FROM holdfast_line WHERE key = 'once::stuck' FOR UPDATE")
      return 'paid'
    })
    expect(await asked).toMatchObject({ value: 'paid', replayed: false })
    expect(await pay.run('stuck', () => 'again')).toMatchObject({ value: 'paid', replayed: true })
    await looker.query('ROLLBACK')
  })
})

await describeServer('commit on a PostgreSQL that stands still', findOwnPostgres, (source) => {
  test.for(['answers late', 'answers to none'] as const)(
    'and %s: there is one row, and one answer',
    { timeout: 60_000 },
    async (how) => {
      await using server = await PostgresServer.start(source)
      const { process } = server as { process: ServerProcess }
      const url = await server.database()
      await using locks = await connect(url as `postgres://${string}`, { ttl: '1s' })
      const pay = once(locks, { wait: '30s' })
      const looker = new pg.Client({ connectionString: url })
      await looker.connect()
      const count = async (): Promise<number> => (await looker.query('select * from books')).rows.length
      await looker.query(CREATE)
      // A transaction of the user, as with any driver that gives up waiting. It ends its connection then.
      const book = async (attempt: Attempt, freeze: boolean): Promise<string> => {
        const client = new pg.Client({ connectionString: url, query_timeout: freeze ? 500 : 20_000 })
        client.on('error', () => {})
        await client.connect()
        try {
          await client.query('begin')
          await client.query('insert into books values ($1)', [attempt.key])
          const value = await attempt.commit(client, `booked by ${attempt.number}`)
          if (freeze) process.pause()
          await client.query('commit')
          return value
        } finally {
          if (freeze && how === 'answers to none') (client as unknown as { connection: Connection }).connection.end()
          else if (!freeze) await client.end()
        }
      }
      let isLost = false
      const work = (attempt: Attempt): Promise<string> => {
        attempt.signal.addEventListener('abort', () => {
          isLost = true
        })
        return book(attempt, true)
      }
      const asked = pay.run('frozen', work).catch((error: Error) => error)
      await vi.waitFor(() => expect(isLost).toBe(true), { timeout: 20_000 })
      process.resume()
      const told = await asked
      const retried = await pay.run('frozen', (attempt) => book(attempt, false))
      expect(await count(), 'rows').toBe(1)
      if (!(told instanceof Error)) expect(told.value).toBe(retried.value)
      expect(await pay.run('frozen', () => 'again')).toMatchObject({ value: retried.value, replayed: true })
      await looker.end()
    },
  )
})

await describeServer('commit on MariaDB', findMariadb, (source) => {
  test('stores the result and the row together, or neither: mysql2', async () => {
    await using server = await MariadbServer.start(source)
    await using locks = await connect(server.url as `mysql://${string}`)
    const connection = await createConnection(server.url)
    try {
      await connection.query(CREATE)
      await checkCommit(locks, {
        async book(attempt, before) {
          await connection.beginTransaction()
          try {
            await connection.query('insert into books values (?)', [attempt.key])
            const value = await attempt.commit(connection, 'booked')
            await before()
            await connection.commit()
            return value
          } catch (error) {
            await connection.rollback()
            throw error
          }
        },
        count: async () => ((await connection.query('select * from books'))[0] as unknown[]).length,
      })
    } finally {
      await connection.end()
    }
  })
})
