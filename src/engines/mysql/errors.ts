/**
 * What went wrong, and what that means: whether anything can have been applied, and whether trying again can help.
 *
 * Our procedures roll back when they fail. But one that is killed between two statements, or after its commit, does not
 * say so: only some of the server's errors mean that nothing was applied (see clients/mysql/errors.ts). After an error
 * of the client (a lost connection, our own deadline) it is not known what the server did, unless nothing was sent.
 */

import {
  ERRNO,
  errnoOf,
  FORBIDDEN,
  isLasting,
  isRolledBack,
  isTooManyConnections,
  READ_ONLY,
} from '../../clients/mysql/errors.ts'
import { NotSent } from '../../clients/shared/driver-errors.ts'
import { EngineError } from '../../core/errors.ts'
import type { AsEngineError } from '../../core/failed-call.ts'
import { sqlErrors } from '../shared/sql-errors.ts'

export const ENGINE = 'mysql'

const ROW_LOCKED = 'another transaction has locked a row of Holdfast and does not let go of it'
const PERMISSIONS = 'this user may not: let a user who may run what `holdfast migrate --print` prints, with its GRANTs'
const REPLICA = 'this is a replica, or a server that refuses writes: connect to the primary'

const ADVICE: Readonly<Record<number, string>> = {
  [ERRNO.lockWaitTimeout]: ROW_LOCKED,
  [ERRNO.statementBinaryLog]: 'set binlog_format to ROW or MIXED',
  ...Object.fromEntries(FORBIDDEN.map((errno) => [errno, PERMISSIONS])),
  ...Object.fromEntries(READ_ONLY.map((errno) => [errno, REPLICA])),
}

/** Whether another transaction kept one of the rows for longer than the call waited. */
export function isRowLocked(error: unknown): boolean {
  return causeOf(error) === ERRNO.lockWaitTimeout
}

export function isDeadlock(error: unknown): boolean {
  return causeOf(error) === ERRNO.deadlock
}

/** Whether a plain statement undid itself: see plain-statements.ts. */
export function isSelfUndone(error: unknown): boolean {
  return causeOf(error) === ERRNO.subqueryRows
}

/** Whether the server does not know SET STATEMENT: it is MySQL, and not MariaDB. */
export function isSyntaxError(error: unknown): boolean {
  return causeOf(error) === ERRNO.syntax
}

/** Whether the connection, not the server, is set to read only. Our procedures do not mind. */
export function isReadOnlyTransaction(error: unknown): boolean {
  return causeOf(error) === ERRNO.readOnlyTransaction
}

/** Whether a call failed because the server has no connection to spare for it. */
export function isCrowded(error: unknown): boolean {
  return isTooManyConnections(error instanceof NotSent ? error.cause : error)
}

function causeOf(error: unknown): number | undefined {
  return errnoOf(error instanceof EngineError ? error.cause : error)
}

/** What the client threw, as the core wants it. */
export const asEngineError: AsEngineError = sqlErrors(ENGINE, {
  adviceOn: (error) => ADVICE[errnoOf(error) ?? 0],
  isDoubtful: (error) => !isRolledBack(error),
  isLasting,
})

/** What became of an item whose line another transaction has locked. */
export function lineLocked(key: string): EngineError {
  return new EngineError(ENGINE, `the line of '${key}' is locked: ${ROW_LOCKED}`, { outcome: 'not-applied' })
}

/** What became of a change whose record, or its line, another transaction has locked. */
export function recordLocked(key: string): EngineError {
  return new EngineError(ENGINE, `the record of '${key}' is locked: ${ROW_LOCKED}`, { outcome: 'not-applied' })
}
