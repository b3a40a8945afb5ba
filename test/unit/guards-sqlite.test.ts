/** The guard of SQLite, on a database in memory: it decides as the pure rule does, and only inside of a transaction. */
import fc from 'fast-check'
import { beforeEach, describe, expect, test } from 'vitest'
import { type Database, loadDriver } from '../../src/clients/sqlite/driver.ts'
import { EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { type Access, NO_MARKS, raiseMarks } from '../../src/guards/marks.ts'
import { guard } from '../../src/guards/sqlite.ts'
import { expectForgetting } from '../engines/guards.rule.ts'

const driver = await loadDriver()
const guarded = guard()
let database: Database

beforeEach(() => {
  database = driver.open(':memory:')
  guarded.setup(database)
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

function tries(access: Access, token: bigint): boolean {
  try {
    inside(() => (access === 'read' ? guarded.read(database, holder(token)) : guarded.write(database, holder(token))))
    return true
  } catch (error) {
    if (error instanceof StaleTokenError) return false
    throw error
  }
}

test('decides as the pure rule does, and stores the same marks', () => {
  const accesses = fc.array(fc.tuple(fc.constantFrom<Access>('read', 'write'), fc.bigInt(1n, 9n)), {
    minLength: 1,
    maxLength: 20,
  })
  fc.assert(
    fc.property(accesses, (all) => {
      database.exec('delete from holdfast_marks')
      let marks = NO_MARKS
      for (const [access, token] of all) {
        expect(tries(access, token)).toBe(token >= (access === 'write' ? marks.seen : marks.written))
        marks = raiseMarks(marks, token, access)
        expect(guarded.list(database)).toEqual([{ resource: 'order', ...marks }])
      }
    }),
  )
})

test('knows tokens that no double holds', () => {
  const high = 2n ** 53n
  inside(() => guarded.write(database, holder(high + 1n)))
  expect(() => inside(() => guarded.write(database, holder(high)))).toThrow(
    expect.objectContaining({ offered: high, seen: high + 1n }),
  )
})

describe('outside of a transaction', () => {
  test('it refuses, whether the driver says so or not', () => {
    expect(() => guarded.write(database, holder(1n))).toThrow(/inside of your transaction/)
    const silent = { exec: (sql: string) => database.exec(sql), prepare: (sql: string) => database.prepare(sql) }
    expect(() => guarded.write(silent, holder(1n))).toThrow(/inside of your transaction/)
    inside(() => guarded.write(silent, holder(1n)))
    expect(guarded.list(database)).toHaveLength(1)
  })
})

test('what was refused leaves no trace in what is committed after it', () => {
  tries('write', 9n)
  inside(() => expect(() => guarded.write(database, holder(8n))).toThrow(StaleTokenError))
  expect(guarded.list(database)).toEqual([{ resource: 'order', seen: 9n, written: 9n }])
})

test('marks are listed by prefix, and forgotten only with their present value', () => {
  inside(() => {
    guarded.write(database, holder(5n), 'a%b')
    guarded.read(database, holder(5n, true), 'a_c')
    guarded.read(database, holder(6n), 'axb')
  })
  expect(guarded.list(database, 'a%').map(({ resource }) => resource)).toEqual(['a%b'])
  expect(guarded.reset(database, 'a%b', 4n)).toBe(false)
  expect(guarded.reset(database, 'a%b', 5n)).toBe(true)
  expect(guarded.list(database)).toHaveLength(2)
})

test('marks are forgotten after the time that the user chose since their last use, and never before', async () => {
  await expectForgetting({
    check: async (forget, access, lease) => {
      const other = guard(forget === undefined ? {} : { forget })
      inside(() => (access === 'read' ? other.read(database, lease) : other.write(database, lease)))
    },
    list: async (prefix) => guarded.list(database, prefix),
    pass: async (ms) =>
      void database.exec(
        `update holdfast_marks set kept_until = kept_until - ${ms} where kept_until < 9223372036854775807`,
      ),
    forget: async () => guarded.forget(database),
  })
})

test.each(['0s', 0, -1, Number.POSITIVE_INFINITY, '30 days', 'd', '1e3d'])('forget: %j is refused', (forget) => {
  expect(() => guard({ forget: forget as '30d' })).toThrow(/forget must be/)
})

test('marks of a newer version are refused and left alone', () => {
  database.exec("insert into holdfast_marks values ('order', 2, 1, 1, 1)")
  expect(() => tries('write', 5n)).toThrow(EngineError)
  expect(guarded.forget(database)).toBe(0)
  expect(guarded.list(database)).toEqual([{ resource: 'order', seen: 1n, written: 1n }])
})

test('a temporary table of the same name hides no marks', () => {
  tries('write', 9n)
  database.exec('create temp table holdfast_marks as select * from main.holdfast_marks where 0')
  expect(tries('write', 8n)).toBe(false)
  expect(guarded.list(database)).toEqual([{ resource: 'order', seen: 9n, written: 9n }])
})

test('a migration of the user can make the table, and running it again does nothing', () => {
  const other = guard({ table: 'shop_marks' })
  database.exec(other.schema)
  inside(() => other.write(database, holder(5n)))
  database.exec(other.schema)
  other.setup(database)
  expect(other.list(database)).toEqual([{ resource: 'order', seen: 5n, written: 5n }])
})

test('the table may be called otherwise', () => {
  const other = guard({ table: 'odd "name' })
  other.setup(database)
  inside(() => other.write(database, holder(5n)))
  expect(other.list(database)).toHaveLength(1)
  expect(guarded.list(database)).toEqual([])
})
