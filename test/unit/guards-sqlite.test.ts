/** The guard of SQLite, on a database in memory: it decides as the pure rule does, and only inside of a transaction. */
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import { type Database, loadDriver } from '../../src/clients/sqlite/driver.ts'
import { EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { raised, type Touch, UNTOUCHED } from '../../src/guards/marks.ts'
import { guard } from '../../src/guards/sqlite.ts'

const driver = await loadDriver()
const fence = guard()
let database: Database

beforeEach(() => {
  database = driver.open(':memory:')
  fence.setup(database)
  return () => database.close()
})

const holder = (token: bigint, shared = false): { key: string; token: bigint; shared: boolean } => ({
  key: 'order',
  token,
  shared,
})

function inside<Result>(work: () => Result): Result {
  database.exec('begin immediate')
  try {
    const result = work()
    database.exec('commit')
    return result
  } catch (error) {
    database.exec('rollback')
    throw error
  }
}

function tries(touch: Touch, token: bigint): boolean {
  try {
    inside(() => (touch === 'read' ? fence.touch(database, holder(token)) : fence.write(database, holder(token))))
    return true
  } catch (error) {
    if (error instanceof StaleTokenError) return false
    throw error
  }
}

test('decides as the pure rule does, and stores the same marks', () => {
  const touches = fc.array(fc.tuple(fc.constantFrom<Touch>('read', 'write'), fc.bigInt(1n, 9n)), {
    minLength: 1,
    maxLength: 20,
  })
  fc.assert(
    fc.property(touches, (all) => {
      database.exec('delete from holdfast_fence')
      let marks = UNTOUCHED
      for (const [touch, token] of all) {
        expect(tries(touch, token)).toBe(token >= (touch === 'write' ? marks.seen : marks.written))
        marks = raised(marks, token, touch)
        expect(fence.list(database)).toEqual([{ resource: 'order', ...marks }])
      }
    }),
  )
})

test('knows tokens that no double holds', () => {
  const high = 2n ** 53n
  inside(() => fence.write(database, holder(high + 1n)))
  expect(() => inside(() => fence.write(database, holder(high)))).toThrow(
    expect.objectContaining({ offered: high, seen: high + 1n }),
  )
})

describe('outside of a transaction', () => {
  test('it refuses, whether the driver says so or not', () => {
    expect(() => fence.write(database, holder(1n))).toThrow(/inside of your transaction/)
    const silent = { exec: (sql: string) => database.exec(sql), prepare: (sql: string) => database.prepare(sql) }
    expect(() => fence.write(silent, holder(1n))).toThrow(/inside of your transaction/)
    inside(() => fence.write(silent, holder(1n)))
    expect(fence.list(database)).toHaveLength(1)
  })
})

test('what was refused leaves no trace in what is committed after it', () => {
  tries('write', 9n)
  inside(() => expect(() => fence.write(database, holder(8n))).toThrow(StaleTokenError))
  expect(fence.list(database)).toEqual([{ resource: 'order', seen: 9n, written: 9n }])
})

test('marks are listed by prefix, and forgotten only by whoever knows them', () => {
  inside(() => {
    fence.write(database, holder(5n), 'a%b')
    fence.touch(database, holder(5n, true), 'a_c')
    fence.touch(database, holder(6n), 'axb')
  })
  expect(fence.list(database, 'a%').map(({ resource }) => resource)).toEqual(['a%b'])
  expect(fence.reset(database, 'a%b', 4n)).toBe(false)
  expect(fence.reset(database, 'a%b', 5n)).toBe(true)
  expect(fence.list(database)).toHaveLength(2)
})

test('marks of a newer version are refused and left alone', () => {
  database.exec("insert into holdfast_fence values ('order', 2, 1, 1)")
  expect(() => tries('write', 5n)).toThrow(EngineError)
  expect(fence.list(database)).toEqual([{ resource: 'order', seen: 1n, written: 1n }])
})

test('the table may be called otherwise', () => {
  const other = guard({ table: 'odd "name' })
  other.setup(database)
  inside(() => other.write(database, holder(5n)))
  expect(other.list(database)).toHaveLength(1)
  expect(fence.list(database)).toEqual([])
})
