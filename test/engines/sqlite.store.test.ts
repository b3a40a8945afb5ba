/** Records in a SQLite file, where the conformance suite does not look: restarts of the machine, clocks, users. */
import { join } from 'node:path'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { putOne, putting, read, removing, textOf } from '../../conformance/records.ts'
import { type Database, loadDriver } from '../../src/clients/sqlite/driver.ts'
import { file, folder, open } from './sqlite-world.ts'

const HOUR_MS = 3_600_000

const databases: Database[] = []

afterEach(() => {
  vi.restoreAllMocks()
  for (const database of databases.splice(0)) database.close()
})

async function ownConnection(path = file): Promise<Database> {
  const database = (await loadDriver()).open(path)
  databases.push(database)
  return database
}

const claim = { key: 'a', holder: 'test', weight: 1, limit: 1, ttlMs: 60_000, wait: true }
const rows = (database: Database): unknown[] => database.prepare('select key from holdfast_record').all()

test('a file without records has no table for them, and gets one when the first is put', async () => {
  const engine = open()
  const { store } = engine
  await engine.enter([{ ...claim, id: '1'.repeat(32) }])
  const database = await ownConnection()
  const tables = (): unknown[] => database.prepare("select 1 from sqlite_schema where name = 'holdfast_record'").all()
  expect(tables()).toHaveLength(0)
  await putOne(store, putting('a', 'x'))
  expect(tables()).toHaveLength(1)
})

test('records outlive a restart of the machine, by what the wall clock says', async () => {
  const engine = open()
  const { store } = engine
  await putOne(store, putting('kept', 'x'))
  await putOne(store, putting('long', 'x', {}, { ttlMs: HOUR_MS }))
  await putOne(store, putting('short', 'x', {}, { ttlMs: 60_000 }))
  await engine[Symbol.asyncDispose]()
  const database = await ownConnection()
  database.exec("update holdfast_file set boot = 'an earlier run'")
  const now = Date.now()
  vi.spyOn(Date, 'now').mockImplementation(() => now + HOUR_MS / 2)
  const later = open().store
  expect(await textOf(later, 'kept')).toBe('x')
  const long = await read(later, 'long')
  expect(long.livesForMs).toBeGreaterThan(HOUR_MS / 2 - 60_000)
  expect(long.livesForMs).toBeLessThanOrEqual(HOUR_MS / 2)
  expect((await read(later, 'short')).value).toBeNull()
})

test('within a run of the machine the wall clock can be set to any time', async () => {
  const { store } = open()
  await putOne(store, putting('a', 'x', {}, { ttlMs: 60_000 }))
  const now = Date.now()
  for (const jump of [HOUR_MS, -HOUR_MS]) {
    vi.spyOn(Date, 'now').mockImplementation(() => now + jump)
    // A change sweeps as well.
    await putOne(store, putting('b', 'x'))
    const { value, livesForMs } = await read(store, 'a')
    expect(value).not.toBeNull()
    expect(livesForMs).toBeLessThanOrEqual(60_000)
  }
})

test('what has expired is swept by later changes, a few at a time', async () => {
  const { store } = open()
  await store.put(Array.from({ length: 20 }, (_, nth) => putting(`short ${nth}`, 'x', {}, { ttlMs: 1 })))
  const database = await ownConnection()
  await vi.waitFor(async () => expect((await read(store, 'short 19')).value).toBeNull(), { timeout: 30_000 })
  await putOne(store, putting('kept', 'x'))
  for (let left = rows(database).length; left > 1; left = rows(database).length) {
    await putOne(store, putting('kept', 'x'))
    expect(left - rows(database).length).toBeGreaterThan(0)
    expect(left - rows(database).length).toBeLessThanOrEqual(2)
  }
  expect(rows(database)).toEqual([{ key: 'kept' }])
})

describe('inside a transaction of the user', () => {
  test('a record is there when that is committed, and not when it is rolled back', async () => {
    const engine = open()
    const { store } = engine
    const id = '1'.repeat(32)
    await engine.enter([{ ...claim, id }])
    const database = await ownConnection()
    database.exec('create table payments (id text)')
    for (const end of ['rollback', 'commit']) {
      database.exec('begin immediate')
      database.exec("insert into payments values ('p')")
      expect(await store.putIn?.(database, putting('a', 'paid', { holding: id, absent: true }))).toMatchObject({
        state: 'stored',
      })
      database.exec(end)
      expect(await textOf(store, 'a')).toBe(end === 'commit' ? 'paid' : null)
    }
    expect(database.prepare('select * from payments').all()).toHaveLength(1)
  })

  test('who does not hold is refused', async () => {
    const engine = open()
    const { store } = engine
    const id = '1'.repeat(32)
    await engine.enter([{ ...claim, id }])
    const database = await ownConnection()
    await engine.leave([{ key: 'a', id }])
    database.exec('begin immediate')
    const put = await store.putIn?.(database, putting('a', 'late', { holding: id }))
    expect(put).toMatchObject({ state: 'refused', by: 'holding' })
    database.exec('rollback')
  })

  test('what is no such transaction is refused before anything is done, in words that help', async () => {
    const { store } = open()
    await putOne(store, removing('a'))
    const putIn = (transaction: unknown): Promise<unknown> | undefined => store.putIn?.(transaction, putting('a', 'x'))
    await expect(putIn({})).rejects.toThrow(TypeError)
    await expect(putIn(undefined)).rejects.toThrow(/a database of SQLite that is in a transaction; got undefined/)
    const database = await ownConnection()
    await expect(putIn(database)).rejects.toThrow(/there is none: exec\('begin immediate'\) first/)
    const other = await ownConnection(join(folder, 'other.db'))
    other.exec('begin immediate')
    await expect(putIn(other)).rejects.toThrow(/kept in '.*locks.db', and your transaction is in '.*other.db'/)
  })
})
