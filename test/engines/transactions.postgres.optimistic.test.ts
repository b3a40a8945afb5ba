/**
 * Optimistic changes of a row on PostgreSQL, with both clients, against another connection that changes the same row.
 */
import { expect, test } from 'vitest'
import { ConflictError } from '../../src/core/errors.ts'
import { optimistic, type PostgresTransactionClient } from '../../src/transactions/postgres.ts'
import { findPostgres } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { database, looker, pool, rival, server, sql, type Ticket, withTickets } from './transactions.postgres-world.ts'

await describeServer('optimistic changes on PostgreSQL', findPostgres, (source) => {
  withTickets(source)

  const less = (row: { left: number }): { left: number } | undefined =>
    row.left > 0 ? { left: row.left - 1 } : undefined

  test.each([
    ['pg', () => pool],
    ['postgres.js', () => sql],
  ])('%s: many at once lose no change, by version and by comparison', async (_name, client) => {
    for (const guard of [{ version: 'version' }, { compare: ['left'] }]) {
      await rival.query('UPDATE tickets SET "left" = 10 WHERE id = 1')
      const options = {
        client: client() as PostgresTransactionClient,
        table: 'tickets',
        where: { id: 1 },
        change: less,
        retries: 100,
        ...guard,
      }
      const results = await Promise.all(Array.from({ length: 12 }, () => optimistic<Ticket>(options)))
      expect(results.filter(({ state }) => state === 'written')).toHaveLength(10)
      expect(results.filter(({ state }) => state === 'unchanged')).toHaveLength(2)
      expect(await rival.value('SELECT "left" FROM tickets WHERE id = 1')).toBe(0)
    }
    expect(await rival.value('SELECT version FROM tickets WHERE id = 1')).toBe('11')
  })

  test('answers the row before and after, the version raised', async () => {
    const result = await optimistic({
      client: looker.client,
      table: 'tickets',
      where: { id: 1 },
      version: 'version',
      change: () => ({ note: 'x' }),
    })
    const before = { id: 1, left: 10, version: '1', note: null }
    expect(result).toEqual({ state: 'written', before, after: { ...before, version: '2', note: 'x' }, tries: 1 })
    const [row] = await rival.query('SELECT * FROM tickets WHERE id = 1')
    expect(row).toEqual({ ...before, version: '2', note: 'x' })
  })

  test('a comparison knows null', async () => {
    const options = {
      client: looker.client,
      table: 'tickets',
      where: { id: 1 },
      compare: ['note'],
      change: () => ({ note: 'mine' }),
    }
    expect(await optimistic(options)).toMatchObject({ state: 'written', before: { note: null } })
  })

  test.each([
    ['pg', () => pool],
    ['postgres.js', () => sql],
  ])('%s: a comparison sees a change that the collation of the column does not see', async (_name, client) => {
    await rival.query('DROP TABLE IF EXISTS words')
    await rival.query(
      "CREATE COLLATION IF NOT EXISTS anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    )
    await rival.query(
      'CREATE TABLE words (id int PRIMARY KEY, word text COLLATE anycase, code char(5), amount numeric, seen int)',
    )
    await rival.query("INSERT INTO words VALUES (1, 'a', 'b', 1.50)")
    let rivals = 1
    const change = async (): Promise<{ seen: number }> => {
      if (rivals-- > 0) await rival.query("UPDATE words SET word = 'A' WHERE id = 1")
      return { seen: 1 }
    }
    const options = { table: 'words', where: { id: 1 }, compare: ['word', 'code', 'amount'], change }
    const result = await optimistic({ ...options, client: client() as PostgresTransactionClient })
    expect(result).toMatchObject({ state: 'written', before: { word: 'A', code: 'b    ', amount: '1.50' }, tries: 2 })
  })

  test('sets what change names even where it was that already: another writer may have changed it since', async () => {
    const change = async (): Promise<{ left: number; note: string }> => {
      await rival.query('UPDATE tickets SET "left" = 3 WHERE id = 1')
      return { left: 10, note: 'ten' }
    }
    await optimistic({ client: looker.client, table: 'tickets', where: { id: 1 }, compare: ['note'], change })
    expect(await rival.query('SELECT "left", note FROM tickets WHERE id = 1')).toEqual([{ left: 10, note: 'ten' }])
  })

  test('names the row and the tries when it gives up', async () => {
    const change = async (): Promise<object> => {
      await rival.query('UPDATE tickets SET version = version + 1 WHERE id = 1')
      return { left: 0 }
    }
    const options = {
      client: looker.client,
      table: 'tickets',
      where: { id: 1 },
      version: 'version',
      change,
      retries: 3,
    }
    await expect(optimistic(options)).rejects.toThrow(
      'gave up changing tickets (id = 1) after 4 tries: others changed it each time',
    )
    expect(await rival.value('SELECT "left" FROM tickets WHERE id = 1')).toBe(10)
  })

  test('in a transaction that can see no newer row it gives up at once', async () => {
    await using connection = await server.connect(database)
    await connection.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    const change = async (): Promise<object> => {
      await rival.query('UPDATE tickets SET version = version + 1 WHERE id = 1')
      return { left: 0 }
    }
    const options = { client: connection.client, table: 'tickets', where: { id: 1 }, version: 'version', change }
    const error = await optimistic(options).catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(ConflictError)
    expect(error).toMatchObject({
      tries: 1,
      message: expect.stringContaining('goes on seeing it as it was') as string,
    })
  })

  test('what cannot be meant is refused', async () => {
    const options = { client: looker.client, table: 'tickets', where: { id: 1 }, change: () => ({ left: 1 }) }
    await expect(optimistic(options)).rejects.toThrow('give either version')
    await expect(optimistic({ ...options, version: 'version', compare: ['left'] })).rejects.toThrow(
      'give either version',
    )
    await expect(optimistic({ ...options, version: 'note' })).rejects.toThrow('must be a whole number')
    await expect(optimistic({ ...options, version: 'nowhere' })).rejects.toThrow(`has no column 'nowhere'`)
    await expect(optimistic({ ...options, version: 'version', change: () => ({ version: 5 }) })).rejects.toThrow(
      'leave the version column',
    )
    await expect(optimistic({ ...options, compare: ['left'], change: () => ({}) })).rejects.toThrow(
      'change names no column',
    )
    await expect(optimistic({ ...options, compare: ['left'], where: { left: 10 } })).rejects.toThrow(
      'more than one row',
    )
  })
})
