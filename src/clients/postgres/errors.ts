/**
 * The codes that PostgreSQL answers errors with, each five characters
 * (https://www.postgresql.org/docs/current/errcodes-appendix.html), and how an error of the server is told from an
 * error of the client. All codes that Holdfast knows by name are here; what an engine makes of them is in its own
 * errors.ts.
 */
import { isUntrusted } from '../shared/driver-errors.ts'

export const SQLSTATE = {
  undefinedPreparedStatement: '26000',
  duplicatePreparedStatement: '42P05',
  noActiveTransaction: '25P01',
  failedTransaction: '25P02',
  readOnlyTransaction: '25006',
  serializationFailure: '40001',
  deadlockDetected: '40P01',
  lockNotAvailable: '55P03',
  tooManyConnections: '53300',
  invalidPassword: '28P01',
  invalidAuthorization: '28000',
  invalidCatalogName: '3D000',
  insufficientPrivilege: '42501',
  undefinedFunction: '42883',
  undefinedTable: '42P01',
  invalidSchemaName: '3F000',
  invalidText: '22P02',
} as const

/** Time does not mend it: wrong names, passwords, permissions and values, and what Holdfast itself raises (`HF...`). */
const LASTING = /^(?:HF|28|3D|42|22|0A)/
/** The server, or the connection to it, came to an end; the transaction may have been over by then. */
const DOUBTFUL = /^(?:08|57P|58|XX|F0)/
/** The server ends the connection after these. */
const ENDING = /^(?:57P|08)/

/** The code of an error that the server answered with; undefined for an error of the client, such as ECONNRESET. */
export function sqlStateOf(error: unknown): string | undefined {
  const { code } = (error ?? {}) as { code?: unknown }
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !/^E[A-Z]+$/.test(code) ? code : undefined
}

/** Whether the server refused, and goes on listening on the same connection. */
export function isRefusal(error: Error): boolean {
  const { severity } = error as { severity?: unknown }
  const code = sqlStateOf(error)
  return code !== undefined && severity !== undefined && !ENDING.test(code)
}

/** Whether trying again cannot help, whenever it is done. */
export function isLasting(error: unknown): boolean {
  const code = sqlStateOf(error)
  return code === undefined ? isUntrusted(error) : LASTING.test(code)
}

/** Whether the server may have applied what it was asked, although it failed. */
export function isDoubtful(error: unknown): boolean {
  const code = sqlStateOf(error)
  return code === undefined || DOUBTFUL.test(code)
}
