/** What goes wrong, as the core wants to know it. */
import { SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import { EngineError } from '../../core/errors.ts'

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
export function noSession(error: unknown): EngineError {
  if (error instanceof EngineError) return error
  const { code, message } = error as { code?: string; message?: string }
  return new EngineError(ENGINE, `no session: ${message || code || String(error)}`, {
    outcome: 'not-applied',
    transient: !LASTING.has(sqlStateOf(error) ?? ''),
    cause: error,
  })
}

/** The statement may have done what it says; but its session is over, and what it locked is free. */
export function asEngineError(error: unknown): EngineError {
  if (error instanceof EngineError) return error
  return new EngineError(ENGINE, (error as Error).message, { outcome: 'unknown', cause: error })
}
