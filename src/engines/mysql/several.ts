/**
 * Several claims or places at once, without a procedure: a statement of its own, for lines that nobody else is in. That
 * is what nearly always happens, and it costs the server half of what a procedure does.
 *
 * The items are in the order of their keys, in which everybody locks lines, and no key is there twice. So that this is
 * the order in which a server locks them, it is told to use the primary key: of a small table it would read all rows,
 * and wait for any that is locked.
 */

import type { Statement } from '../../clients/mysql/wire.ts'
import type { Claim, Place } from '../../core/engine.ts'
import { hex, inOrder } from './requests.ts'
import { NOW } from './single.ts'

type Item = Pick<Place, 'key' | 'id'>

/** Fails (1242), and so undoes the whole statement, if it is looked at. */
const FAIL = '(SELECT 1 UNION SELECT 2)'

/**
 * Enter lines that have rows and are free. Those that are not free, or have no row, are left out: then fewer rows have
 * changed. Tokens follow each other, as `ranks` says.
 */
export function takeAllStatement(claims: readonly Claim[], client: string): Statement {
  const { holder, weight, limit, ttlMs } = claims[0] as Claim
  const items = inOrder(claims)
  const sql =
    `UPDATE \`holdfast_line\` FORCE INDEX (PRIMARY) SET token = LAST_INSERT_ID(${NOW}) + FIELD(k, ${keysOf(items)}), id = ${idOf(items)}, holder = x'${hex(holder)}', client = x'${client}', ` +
    `weight = ${weight}, lim = ${limit}, ttl = ${ttlMs}000, since = ${NOW}, evicted = 0, outlives = 0, due_at = ${NOW} + ${ttlMs}000 ` +
    `WHERE ${amongKeys(items)} AND crowd = 0 AND due_at <= ${NOW} AND token < ${NOW}`
  return { sql, values: [] }
}

/**
 * Enter lines that have no row. Tokens follow each other, above the floor, as in `makeStatement`. If one of them has a
 * row, nothing happens.
 */
export function makeAllStatement(claims: readonly Claim[], client: string): Statement {
  const { holder, weight, limit, ttlMs } = claims[0] as Claim
  const items = inOrder(claims).map(({ key, id }, index) =>
    index === 0
      ? `SELECT x'${hex(key)}' AS k, x'${id}' AS id, 1 AS n`
      : `SELECT x'${hex(key)}', x'${id}', ${index + 1}`,
  )
  const sql =
    `INSERT INTO \`holdfast_line\` (k, id, holder, client, weight, lim, ttl, since, due_at, token) ` +
    `SELECT v.k, v.id, x'${hex(holder)}', x'${client}', ${weight}, ${limit}, ${ttlMs}000, ${NOW}, ${NOW} + ${ttlMs}000, LAST_INSERT_ID(GREATEST(${NOW}, m.floor)) + v.n ` +
    `FROM \`holdfast_meta\` m, (${items.join(' UNION ALL ')}) v WHERE m.one = 1 LOCK IN SHARE MODE ` +
    `ON DUPLICATE KEY UPDATE token = ${FAIL}`
  return { sql, values: [] }
}

/**
 * Leave lines without having been anything but alone in them. If somebody else is in one of them, or was since, nothing
 * happens. A line that has no row is left out, and then so are all after it, or nothing happens: rows come in the order
 * of the keys, the LAST_INSERT_ID of each is one above that of the row before, and says whose turn it is. So the number
 * of rows that have changed tells which they were. `start` is a number that no other statement has, or a row could
 * follow one of an earlier statement.
 */
export function freeAllStatement(places: readonly Item[], start: number): Statement {
  const items = inOrder(places)
  const turn = `CAST(LAST_INSERT_ID(IF(k = x'${hex((items[0] as Item).key)}', ${start}, LAST_INSERT_ID()) + 1) AS SIGNED) - ${start}`
  const sql =
    `UPDATE \`holdfast_line\` FORCE INDEX (PRIMARY) ` +
    `SET due_at = IF(id = ELT(${turn}, ${items.map(({ id }) => `x'${id}'`).join(',')}) AND crowd = 0 AND due_at > ${NOW}, 0, ${FAIL}) ` +
    `WHERE ${amongKeys(items)}`
  return { sql, values: [] }
}

/**
 * Which each item is in the order of the keys, from 1. By so much the token of a claim is above the number that came
 * back.
 */
export function ranks(items: readonly { readonly key: string }[]): readonly number[] {
  const order = inOrder(items.map(({ key }, index) => ({ key, index })))
  const rank: number[] = new Array(items.length)
  for (const [at, { index }] of order.entries()) rank[index] = at + 1
  return rank
}

function amongKeys(items: readonly Item[]): string {
  return `k IN (${keysOf(items)})`
}

function keysOf(items: readonly Item[]): string {
  return items.map(({ key }) => `x'${hex(key)}'`).join(',')
}

/** The id that goes with a row's key. */
function idOf(items: readonly Item[]): string {
  return `CASE k ${items.map(({ key, id }) => `WHEN x'${hex(key)}' THEN x'${id}'`).join(' ')} END`
}
