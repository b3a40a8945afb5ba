/** Statements from the caller's names and values: quoted, bound, and refused where they would mean something else. */
import { describe, expect, test } from 'vitest'
import { dialect as mysql } from '../../src/transactions/mysql/client.ts'
import { dialect as postgres } from '../../src/transactions/postgres/client.ts'
import { describeRow, select, update } from '../../src/transactions/statements.ts'

describe('a statement', () => {
  test('has its names quoted and its values beside it, in the way of its server', () => {
    const selection = {
      table: 'shop.tickets',
      where: { id: 7, gone: null },
      columns: ['id', 'left'],
      order: ['id'],
      limit: 2,
    }
    expect(select(postgres, selection, 'FOR UPDATE')).toEqual({
      text: 'SELECT "id", "left" FROM "shop"."tickets" WHERE "id" = $1 AND "gone" IS NULL ORDER BY "id" LIMIT 2 FOR UPDATE',
      values: [7],
    })
    expect(select(mysql, selection).text).toBe(
      'SELECT `id`, `left` FROM `shop`.`tickets` WHERE `id` = ? AND `gone` IS NULL ORDER BY `id` LIMIT 2',
    )
  })

  test('writes only what is still as it was read, null included', () => {
    const given = ['tickets', { left: 1 }, { id: 7 }, { left: 2, note: null }] as const
    expect(update(postgres, ...given)).toEqual({
      text: 'UPDATE "tickets" SET "left" = $1 WHERE "id" = $2 AND "left" IS NOT DISTINCT FROM $3 AND "note" IS NOT DISTINCT FROM $4',
      values: [1, 7, 2, null],
    })
    expect(update(mysql, ...given).text).toBe(
      'UPDATE `tickets` SET `left` = ? WHERE `id` = ? AND `left` <=> ? AND `note` <=> ?',
    )
  })

  test('takes a name with a quote, a dot or a space in it for a name', () => {
    expect(select(postgres, { table: ['a"b', 'c.d'], where: { 'e" OR 1=1 --': 1 } }).text).toBe(
      'SELECT * FROM "a""b"."c.d" WHERE "e"" OR 1=1 --" = $1',
    )
    expect(select(mysql, { table: ['a`b', 'c.d'], where: { 'e` OR 1=1 --': 1 } }).text).toBe(
      'SELECT * FROM `a``b`.`c.d` WHERE `e`` OR 1=1 --` = ?',
    )
  })

  test('is refused if it would mean every row, or a value was forgotten', () => {
    for (const dialect of [postgres, mysql]) {
      expect(() => select(dialect, { table: 't', where: {} })).toThrow('every row')
      expect(() => select(dialect, { table: 't', where: { id: undefined } })).toThrow(`'id' is undefined`)
      expect(() => select(dialect, { table: 't', where: { id: 1 }, columns: [] })).toThrow('columns must name a column')
      for (const limit of [0, 1.5, -1])
        expect(() => select(dialect, { table: 't', where: { id: 1 }, limit })).toThrow(RangeError)
    }
  })

  test('is refused if a name is empty, has a NUL, has too many parts, or would be cut short', () => {
    for (const table of ['', 'a.', 'a\0', 'a.b.c'])
      expect(() => select(postgres, { table, where: { id: 1 } }), table).toThrow(TypeError)
    expect(() => select(postgres, { table: 'x'.repeat(64), where: { id: 1 } })).toThrow('longer than the 63 bytes')
    expect(() => select(postgres, { table: 't', where: { ['ä'.repeat(32)]: 1 } })).toThrow(RangeError)
  })

  test('for MySQL takes no object for a value: some clients write it into the text', () => {
    for (const id of [{ id: 1 }, [1, 2], () => 1])
      expect(() => select(mysql, { table: 't', where: { id } })).toThrow(TypeError)
    expect(
      select(mysql, { table: 't', where: { a: new Date(0), b: Buffer.from('x'), c: 1n, d: true } }).values,
    ).toHaveLength(4)
  })
})

test('a row is called by its table and key in messages', () => {
  expect(describeRow(['shop', 'tickets'], { id: 7, name: 'front' })).toBe(`shop.tickets (id = 7, name = 'front')`)
})
