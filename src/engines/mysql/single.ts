/**
 * One claim or place, without a procedure: a statement of its own, which changes the one row of a line that nobody else
 * is in. It costs as much as a lock that is written by hand.
 *
 * Each either does all that is asked or nothing; then the procedure is asked, which can do everything. The number that
 * comes back with a statement, LAST_INSERT_ID, is the token. They are always the same but for their values, so that a
 * server can prepare them. Values are digits, which mean the same in every character set.
 */

import type { Statement } from '../../clients/mysql/wire.ts'
import type { Claim, Place } from '../../core/engine.ts'
import { hex } from './requests.ts'

export const NOW = `TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))`
const UNTIL = `${NOW} + CAST(? AS SIGNED)`
const RENEWED = `WHERE k = UNHEX(?) AND id = UNHEX(?) AND due_at > ${NOW} AND evicted = 0`

const TAKE =
  `UPDATE \`holdfast_line\` SET token = LAST_INSERT_ID(GREATEST(token + 1, ${NOW})), id = UNHEX(?), holder = UNHEX(?), client = UNHEX(?), ` +
  `weight = ?, lim = ?, ttl = ?, since = ${NOW}, evicted = 0, outlives = 0, due_at = ${UNTIL} WHERE k = UNHEX(?) AND crowd = 0 AND due_at <= ${NOW}`
const MAKE =
  `INSERT INTO \`holdfast_line\` (id, holder, client, weight, lim, ttl, since, due_at, k, token) ` +
  `VALUES (UNHEX(?), UNHEX(?), UNHEX(?), ?, ?, ?, ${NOW}, ${UNTIL}, UNHEX(?), ` +
  `LAST_INSERT_ID(GREATEST(${NOW}, (SELECT m.floor + 1 FROM \`holdfast_meta\` m WHERE m.one = 1 LOCK IN SHARE MODE)))) ` +
  'ON DUPLICATE KEY UPDATE token = token + 0 * LAST_INSERT_ID(0)'
/**
 * NOW is from before the statement waited, and a later renewal may have been answered meanwhile: so what has that ttl
 * already is not cut short, unless by a clock that was set back far.
 */
const RENEW =
  `UPDATE \`holdfast_line\` SET token = LAST_INSERT_ID(token), ` +
  `due_at = IF(outlives OR (ttl = CAST(? AS SIGNED) AND due_at < ${UNTIL} + 60000000), GREATEST(due_at, ${UNTIL}), ${UNTIL}), ttl = ? ${RENEWED}`
const RENEW_OUTLIVING = `UPDATE \`holdfast_line\` SET token = LAST_INSERT_ID(token), ttl = ?, due_at = ${UNTIL}, outlives = 1 ${RENEWED}`
const FREE = `UPDATE \`holdfast_line\` SET due_at = 0, token = LAST_INSERT_ID(token) WHERE k = UNHEX(?) AND id = UNHEX(?) AND due_at > ${NOW}`

/** Enter a line that has a row and is free. */
export function takeStatement(claim: Claim, client: string): Statement {
  return { sql: TAKE, values: entered(claim, client) }
}

/**
 * Enter a line that has no row. Its token is above the floor, which was raised when the row was removed; the lock keeps
 * others from removing rows meanwhile: see sql/tidy.sql.
 */
export function makeStatement(claim: Claim, client: string): Statement {
  return { sql: MAKE, values: entered(claim, client) }
}

/** Renew an entry that is alone in its line. See sql/renew.sql for `outlives`. */
export function renewStatement({ key, id, ttlMs, outlives }: Place): Statement {
  const ttl = `${ttlMs}000`
  return outlives === true
    ? { sql: RENEW_OUTLIVING, values: [ttl, ttl, hex(key), id] }
    : { sql: RENEW, values: [ttl, ttl, ttl, ttl, ttl, hex(key), id] }
}

/**
 * Leave a line without having been anything but alone in it. The id stays: a row that keeps its size is changed in
 * place.
 */
export function freeStatement({ key, id }: Pick<Place, 'key' | 'id'>): Statement {
  return { sql: FREE, values: [hex(key), id] }
}

function entered({ key, id, holder, weight, limit, ttlMs }: Claim, client: string): string[] {
  const ttl = `${ttlMs}000`
  return [id, hex(holder), client, String(weight), String(limit), ttl, ttl, hex(key)]
}
