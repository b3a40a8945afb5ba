/** What goes wrong, as the core wants to know it. */
import { isDoubtful, isLasting, SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import { EngineError } from '../../core/errors.ts'
import { type AsEngineError, type EngineCall, engineErrors } from '../../core/failed-call.ts'

export const ENGINE = 'postgres-advisory'

/** Wrong password or user, no such database, no right to make the table: time mends none of these. */
const LASTING: ReadonlySet<string> = new Set([
  SQLSTATE.invalidPassword,
  SQLSTATE.invalidAuthorization,
  SQLSTATE.invalidCatalogName,
  SQLSTATE.invalidSchemaName,
  SQLSTATE.insufficientPrivilege,
  SQLSTATE.undefinedTable,
])

/** The server was not asked: there is no session to ask it on. */
export const noSession: AsEngineError = engineErrors(ENGINE, (error) => {
  const { code, message } = error as { code?: string; message?: string }
  return {
    message: `no session: ${message || code || String(error)}`,
    outcome: 'not-applied',
    transient: !LASTING.has(sqlStateOf(error) ?? ''),
  }
})

/** The statement may have done what it says; but its session is over, and what it locked is free. */
export const asEngineError: AsEngineError = engineErrors(ENGINE, () => ({ outcome: 'unknown', transient: true }))

/** A statement of the store failed, on whose connection no lock lives. */
export const asStoreError: AsEngineError = engineErrors(ENGINE, (error) => ({
  outcome: isDoubtful(error) ? 'unknown' : 'not-applied',
  transient: !isLasting(error),
}))

export function closedError(call: EngineCall): EngineError {
  return new EngineError(ENGINE, `${call}: closed`, { outcome: 'not-applied', transient: false })
}
