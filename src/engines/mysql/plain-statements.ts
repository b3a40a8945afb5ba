/**
 * Entering, renewing and leaving without a procedure: by one plain statement, which changes the rows of lines that no
 * other entry is in. That is what nearly always happens. One statement for one line costs as much as a lock that is
 * written by hand; one for several lines costs the server half of what a procedure does.
 *
 * A statement that cannot do all that is asked changes nothing, or says by the number of rows what it has done; then
 * the procedure is called, which can do everything. The number that comes back with a statement, LAST_INSERT_ID, is the
 * token.
 *
 * Statements for one line are always the same but for their values, so that a server can prepare them. Values are
 * digits, which mean the same in every character set.
 *
 * Statements for several lines name them in the order of their keys, in which every process locks lines, and no key is
 * there twice. So that the server locks in this order, it is told to use the primary key: of a small table it would
 * read all rows, and wait for any that is locked.
 */

import type { MysqlStatement } from '../../clients/mysql/wire.ts'
import type { Claim, EntryName, Place } from '../../core/engine.ts'
import type { EngineError } from '../../core/errors.ts'
import { withOutcome } from '../../core/failed-call.ts'
import { hex, inOrder } from './codec.ts'

const NOW = `TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))`
const UNTIL = `${NOW} + CAST(? AS SIGNED)`

// ---- one line ----

const TAKE =
  `UPDATE \`holdfast_line\` SET token = LAST_INSERT_ID(GREATEST(token + 1, ${NOW})), ` +
  'id = UNHEX(?), holder = UNHEX(?), client = UNHEX(?), weight = ?, lim = ?, ttl = ?, ' +
  `since = ${NOW}, evicted = 0, outlives = 0, due_at = ${UNTIL} ` +
  `WHERE k = UNHEX(?) AND crowd = 0 AND due_at <= ${NOW}`
const MAKE =
  `INSERT INTO \`holdfast_line\` (id, holder, client, weight, lim, ttl, since, due_at, k, token) ` +
  `VALUES (UNHEX(?), UNHEX(?), UNHEX(?), ?, ?, ?, ${NOW}, ${UNTIL}, UNHEX(?), ` +
  `LAST_INSERT_ID(GREATEST(${NOW}, ` +
  '(SELECT m.floor + 1 FROM `holdfast_meta` m WHERE m.one = 1 LOCK IN SHARE MODE)))) ' +
  'ON DUPLICATE KEY UPDATE token = token + 0 * LAST_INSERT_ID(0)'
const STILL_THERE = `WHERE k = UNHEX(?) AND id = UNHEX(?) AND due_at > ${NOW} AND evicted = 0`
/**
 * NOW is from before the statement waited, and a later renewal may have been answered meanwhile. So an entry that has
 * this ttl already is not cut short, unless by a clock that was set back far.
 */
const RENEW =
  `UPDATE \`holdfast_line\` SET token = LAST_INSERT_ID(token), ` +
  `due_at = IF(outlives OR (ttl = CAST(? AS SIGNED) AND due_at < ${UNTIL} + 60000000), ` +
  `GREATEST(due_at, ${UNTIL}), ${UNTIL}), ttl = ? ${STILL_THERE}`
const RENEW_OUTLIVING =
  `UPDATE \`holdfast_line\` SET token = LAST_INSERT_ID(token), ttl = ?, due_at = ${UNTIL}, ` +
  `outlives = 1 ${STILL_THERE}`
const FREE =
  'UPDATE `holdfast_line` SET due_at = 0, token = LAST_INSERT_ID(token) ' +
  `WHERE k = UNHEX(?) AND id = UNHEX(?) AND due_at > ${NOW}`

/** Enter a line that has a row and is free. */
export function takeStatement(claim: Claim, engineId: string): MysqlStatement {
  return { sql: TAKE, values: enterValues(claim, engineId) }
}

/**
 * Enter a line that has no row. Its token is above the floor, which was raised when the row was removed. The lock on
 * the floor keeps other processes from removing rows meanwhile: see sql/tidy.sql.
 */
export function makeStatement(claim: Claim, engineId: string): MysqlStatement {
  return { sql: MAKE, values: enterValues(claim, engineId) }
}

/** Renew an entry that is alone in its line. See sql/renew.sql for `outlives`. */
export function renewStatement({ key, id, ttlMs, outlives }: Place): MysqlStatement {
  const ttl = `${ttlMs}000`
  return outlives === true
    ? { sql: RENEW_OUTLIVING, values: [ttl, ttl, hex(key), id] }
    : { sql: RENEW, values: [ttl, ttl, ttl, ttl, ttl, hex(key), id] }
}

/**
 * Leave a line in which the entry has always been alone. The id stays: a row that keeps its size is changed in place.
 */
export function freeStatement({ key, id }: EntryName): MysqlStatement {
  return { sql: FREE, values: [hex(key), id] }
}

function enterValues({ key, id, holder, weight, limit, ttlMs }: Claim, engineId: string): string[] {
  const ttl = `${ttlMs}000`
  return [id, hex(holder), engineId, String(weight), String(limit), ttl, ttl, hex(key)]
}

// ---- several lines ----

/** Fails with `ERRNO.subqueryRows`, and so undoes the whole statement, if the server evaluates it. */
const FAIL = '(SELECT 1 UNION SELECT 2)'

/**
 * Enter lines that have rows and are free. Those that are not free, or have no row, are left out: then fewer rows have
 * changed. Tokens follow each other, as `ranks` says.
 */
export function takeAllStatement(claims: readonly Claim[], engineId: string): MysqlStatement {
  const { holder, weight, limit, ttlMs } = claims[0] as Claim
  const items = inOrder(claims)
  const sql =
    'UPDATE `holdfast_line` FORCE INDEX (PRIMARY) ' +
    `SET token = LAST_INSERT_ID(${NOW}) + FIELD(k, ${keysOf(items)}), id = ${idOf(items)}, ` +
    `holder = x'${hex(holder)}', client = x'${engineId}', weight = ${weight}, lim = ${limit}, ttl = ${ttlMs}000, ` +
    `since = ${NOW}, evicted = 0, outlives = 0, due_at = ${NOW} + ${ttlMs}000 ` +
    `WHERE ${amongKeys(items)} AND crowd = 0 AND due_at <= ${NOW} AND token < ${NOW}`
  return { sql, values: [] }
}

/**
 * Enter lines that have no row. Tokens follow each other, above the floor, as in `makeStatement`. If one of them has a
 * row, nothing happens.
 */
export function makeAllStatement(claims: readonly Claim[], engineId: string): MysqlStatement {
  const { holder, weight, limit, ttlMs } = claims[0] as Claim
  const items = inOrder(claims).map(({ key, id }, index) =>
    index === 0
      ? `SELECT x'${hex(key)}' AS k, x'${id}' AS id, 1 AS n`
      : `SELECT x'${hex(key)}', x'${id}', ${index + 1}`,
  )
  const sql =
    `INSERT INTO \`holdfast_line\` (k, id, holder, client, weight, lim, ttl, since, due_at, token) ` +
    `SELECT v.k, v.id, x'${hex(holder)}', x'${engineId}', ${weight}, ${limit}, ${ttlMs}000, ` +
    `${NOW}, ${NOW} + ${ttlMs}000, LAST_INSERT_ID(GREATEST(${NOW}, m.floor)) + v.n ` +
    `FROM \`holdfast_meta\` m, (${items.join(' UNION ALL ')}) v WHERE m.one = 1 LOCK IN SHARE MODE ` +
    `ON DUPLICATE KEY UPDATE token = ${FAIL}`
  return { sql, values: [] }
}

/**
 * Leave lines in which the entries have always been alone. If another entry is in one of them, or was since, nothing
 * happens.
 *
 * The number of rows that have changed tells which items were left: always the first ones, in the order of the keys. To
 * make that so, the statement counts. It comes to the rows in the order of the keys, and LAST_INSERT_ID goes up by one
 * with each row. The n-th row has to be that of the n-th item. If a row before it is missing, it is not, and the whole
 * statement fails. Only rows at the end can be missing without that.
 *
 * The count begins at `start`, where the row of the first item is. Without that row, LAST_INSERT_ID is still that of an
 * earlier statement. So `start` has to be a number that no other statement has.
 */
export function freeAllStatement(places: readonly EntryName[], start: number): MysqlStatement {
  const items = inOrder(places)
  const firstKey = `x'${hex((items[0] as EntryName).key)}'`
  const turn = `CAST(LAST_INSERT_ID(IF(k = ${firstKey}, ${start}, LAST_INSERT_ID()) + 1) AS SIGNED) - ${start}`
  const id = `ELT(${turn}, ${items.map((item) => `x'${item.id}'`).join(',')})`
  const sql =
    'UPDATE `holdfast_line` FORCE INDEX (PRIMARY) ' +
    `SET due_at = IF(id = ${id} AND crowd = 0 AND due_at > ${NOW}, 0, ${FAIL}) ` +
    `WHERE ${amongKeys(items)}`
  return { sql, values: [] }
}

/**
 * The rank of each item in the order of the keys, from 1. The token of a claim is the number that came back plus its
 * rank.
 */
export function ranks(items: readonly { readonly key: string }[]): readonly number[] {
  const order = inOrder(items.map(({ key }, index) => ({ key, index })))
  const rank: number[] = new Array(items.length)
  for (const [at, { index }] of order.entries()) rank[index] = at + 1
  return rank
}

function amongKeys(items: readonly EntryName[]): string {
  return `k IN (${keysOf(items)})`
}

function keysOf(items: readonly EntryName[]): string {
  return items.map(({ key }) => `x'${hex(key)}'`).join(',')
}

/** The id that goes with a row's key. */
function idOf(items: readonly EntryName[]): string {
  return `CASE k ${items.map(({ key, id }) => `WHEN x'${hex(key)}' THEN x'${id}'`).join(' ')} END`
}

// ---- which items of a batch go by a plain statement ----

/**
 * How a part is sent. `take` and `make`: by a plain statement, for lines that have a row or have none. `alone`: by a
 * plain statement, for entries that are alone in their lines. `call`: by a procedure, which can do everything.
 */
export type CallWay = 'take' | 'make' | 'alone' | 'call'

/**
 * A batch in parts: what can be done by a plain statement, and the rest. The parts are of different lines, and so are
 * sent at the same time.
 */
export interface BatchPart<Item> {
  readonly way: CallWay
  readonly items: readonly Item[]
  /** Where in the batch each of them is. */
  readonly at: readonly number[]
}

/** Fewer items than these are not worth a statement of their own, if there is a procedure call they can go with. */
const FEW = 3

/** Items of one line are in one part, in their order: that of the procedure, if there are several. */
export function splitBatch<Item extends { readonly key: string }>(
  items: readonly Item[],
  wayOf: (item: Item) => CallWay,
): readonly BatchPart<Item>[] {
  const [first] = items
  if (items.length === 1 && first !== undefined) return [{ way: wayOf(first), items, at: [0] }]
  const ways = new Map<CallWay, number[]>()
  const twice = repeatedKeys(items)
  for (const [index, item] of items.entries()) {
    const way = twice.has(item.key) ? 'call' : wayOf(item)
    const at = ways.get(way)
    if (at === undefined) ways.set(way, [index])
    else at.push(index)
  }
  joinSmallParts(ways)
  return [...ways].map(([way, at]) => ({ way, items: at.map((index) => items[index] as Item), at }))
}

/**
 * What the parts are answered, in the order of the batch. Settles when all have. If one fails, what became of the batch
 * is not known: other parts were applied.
 */
export async function callParts<Item, Answer>(
  parts: readonly BatchPart<Item>[],
  call: (part: BatchPart<Item>) => Promise<readonly Answer[]>,
): Promise<readonly Answer[]> {
  const [only] = parts
  if (parts.length === 1 && only !== undefined) return await call(only)
  const settled = await Promise.allSettled(parts.map(call))
  const answers: Answer[] = []
  for (const [index, { at }] of parts.entries()) {
    const part = settled[index] as PromiseSettledResult<readonly Answer[]>
    if (part.status === 'rejected') throw withOutcome(part.reason as EngineError, 'unknown')
    for (const [order, place] of at.entries()) answers[place] = part.value[order] as Answer
  }
  return answers
}

function repeatedKeys(items: readonly { readonly key: string }[]): ReadonlySet<string> {
  const [once, twice] = [new Set<string>(), new Set<string>()]
  for (const { key } of items) (once.has(key) ? twice : once).add(key)
  return twice
}

/** Let the items of small parts go with the procedure. */
function joinSmallParts(ways: Map<CallWay, number[]>): void {
  if (ways.size === 1) return
  const byProcedure = ways.get('call') ?? []
  for (const [way, at] of ways) {
    if (way === 'call' || at.length >= FEW) continue
    ways.delete(way)
    byProcedure.push(...at)
  }
  // In the order of the batch: if all go this way, the answers need no sorting.
  byProcedure.sort((a, b) => a - b)
  if (byProcedure.length > 0) ways.set('call', byProcedure)
}
