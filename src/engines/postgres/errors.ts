/**
 * What went wrong, and what that means: whether anything can have been applied, and whether trying again can help.
 *
 * An error that the server answers with nearly always means that the transaction was rolled back. After an error of the
 * client (a lost connection, our own deadline) it is not known what the server did, unless nothing had been sent.
 */

import { isDoubtful, isLasting, SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import { EngineError } from '../../core/errors.ts'
import type { AsEngineError } from '../../core/failed-call.ts'
import { sqlErrors } from '../shared/sql-errors.ts'

export const ENGINE = 'postgres'

/** As they are raised in sql/. */
const STRICT_ISOLATION = 'HF001'
const NEWER_FORMAT = 'HF002'
const OTHER_ENCODING = 'HF003'

/** Functions, tables or the schema are not there. */
const MISSING: ReadonlySet<string> = new Set([
  SQLSTATE.undefinedFunction,
  SQLSTATE.undefinedTable,
  SQLSTATE.invalidSchemaName,
])

const ADVICE: Readonly<Record<string, string>> = {
  [SQLSTATE.lockNotAvailable]: 'another transaction has locked a row of Holdfast and does not let go of it',
  [STRICT_ISOLATION]: "give Holdfast connections whose default_transaction_isolation is 'read committed'",
  [NEWER_FORMAT]: 'a newer Holdfast made these tables: update this one',
  [OTHER_ENCODING]: 'Holdfast needs a database in UTF8',
  [SQLSTATE.readOnlyTransaction]: 'this is a replica, or a server that refuses writes: connect to the primary',
  [SQLSTATE.tooManyConnections]: 'the server, or this user, may have no more connections',
  [SQLSTATE.insufficientPrivilege]:
    'this user may not: let a user who may run what `holdfast migrate --print` prints, with its GRANTs',
}

export function isMissing(error: unknown): boolean {
  return MISSING.has(sqlStateOf(error) ?? '')
}

/** Whether a call was not sent because the server, or the role, has no connection to spare. */
export function isCrowded(error: EngineError): boolean {
  return sqlStateOf(error.cause) === SQLSTATE.tooManyConnections
}

/** Whether a call failed because a row was locked for longer than it waits. */
export function isRowLocked(error: unknown): boolean {
  return error instanceof EngineError && sqlStateOf(error.cause) === SQLSTATE.lockNotAvailable
}

/** What the client threw, as the core wants it. */
export const asEngineError: AsEngineError = sqlErrors(ENGINE, {
  adviceOn: (error) => ADVICE[sqlStateOf(error) ?? ''],
  isDoubtful,
  isLasting,
})
