/**
 * The numbers that MariaDB and MySQL answer errors with (https://mariadb.com/kb/en/mariadb-error-code-reference/), and
 * how an error of the server is told from an error of the client. All numbers that Holdfast knows are here, by name;
 * what the engine makes of them is in its own errors.ts.
 */
import { isUntrusted } from '../shared/driver-errors.ts'

export const ERRNO = {
  accessDeniedToDatabase: 1044,
  accessDenied: 1045,
  noDatabase: 1046,
  unknownDatabase: 1049,
  unknownColumn: 1054,
  tooManyConnections: 1040,
  syntax: 1064,
  hostNotAllowed: 1130,
  tableAccessDenied: 1142,
  columnAccessDenied: 1143,
  unknownTable: 1146,
  tooManyConnectionsOfUser: 1203,
  lockWaitTimeout: 1205,
  deadlock: 1213,
  userLimitReached: 1226,
  privilegeNeeded: 1227,
  /** A subquery answered more than one row: how a plain statement of the engine undoes itself. */
  subqueryRows: 1242,
  unknownPrepared: 1243,
  oldAuthentication: 1251,
  readOnlyServer: 1290,
  notPreparable: 1295,
  procedureExists: 1304,
  unknownProcedure: 1305,
  queryInterrupted: 1317,
  procedureAccessDenied: 1370,
  binaryLogPrivilege: 1419,
  tooManyPrepared: 1461,
  unknownPlugin: 1524,
  prepareRepeatedly: 1615,
  statementBinaryLog: 1665,
  authenticationRefused: 1698,
  readOnlyTransaction: 1792,
  passwordMustChange: 1820,
  readOnlyMode: 1836,
  passwordExpired: 1862,
  /** "Record has changed since last read": MariaDB with innodb_snapshot_isolation. */
  snapshotChanged: 1020,
  /** For NOWAIT, MySQL. MariaDB says `lockWaitTimeout`. */
  lockNowait: 3572,
} as const

/** Procedures, tables, columns: not there, or no longer. */
const MISSING: readonly number[] = [ERRNO.unknownProcedure, ERRNO.unknownTable, ERRNO.unknownColumn]
export const READ_ONLY: readonly number[] = [ERRNO.readOnlyServer, ERRNO.readOnlyTransaction, ERRNO.readOnlyMode]
export const FORBIDDEN: readonly number[] = [
  ERRNO.accessDeniedToDatabase,
  ERRNO.tableAccessDenied,
  ERRNO.columnAccessDenied,
  ERRNO.privilegeNeeded,
  ERRNO.procedureAccessDenied,
  ERRNO.binaryLogPrivilege,
]
const CONNECTION_REFUSED: readonly number[] = [
  ERRNO.accessDenied,
  ERRNO.noDatabase,
  ERRNO.unknownDatabase,
  ERRNO.hostNotAllowed,
  ERRNO.oldAuthentication,
  ERRNO.unknownPlugin,
  ERRNO.authenticationRefused,
  ERRNO.passwordMustChange,
  ERRNO.passwordExpired,
]
const TOO_MANY_CONNECTIONS: readonly number[] = [
  ERRNO.tooManyConnections,
  ERRNO.tooManyConnectionsOfUser,
  ERRNO.userLimitReached,
]
/**
 * There are too many prepared statements; this one cannot be prepared; it is not there any more; its tables change
 * faster than the server prepares it anew.
 */
const UNPREPARED: readonly number[] = [
  ERRNO.tooManyPrepared,
  ERRNO.notPreparable,
  ERRNO.unknownPrepared,
  ERRNO.prepareRepeatedly,
]

/** The whole call was rolled back, or refused before it began. */
const ROLLED_BACK: ReadonlySet<number> = new Set([
  ERRNO.deadlock,
  ERRNO.lockWaitTimeout,
  ERRNO.subqueryRows,
  ERRNO.syntax,
  ERRNO.statementBinaryLog,
  ...MISSING,
  ...READ_ONLY,
  ...FORBIDDEN,
  ...CONNECTION_REFUSED,
  ...TOO_MANY_CONNECTIONS,
  ...UNPREPARED,
])

/** Time does not mend it. */
const LASTING: ReadonlySet<number> = new Set([
  ERRNO.syntax,
  ERRNO.statementBinaryLog,
  ...MISSING,
  ...FORBIDDEN,
  ...CONNECTION_REFUSED,
])

/** What mysql2 calls an error of the TLS handshake, whatever Node has called it. */
const HANDSHAKE_FAILED = /^HANDSHAKE_SSL_ERROR/

/**
 * The number of an error that the server answered with; undefined for an error of the client. Servers number theirs
 * from 1000 on, but for 2000 to 2999, which are those of clients; Node's own are below 0. The SQLSTATE is not asked
 * for: what wraps a client may leave it out.
 */
export function errnoOf(error: unknown): number | undefined {
  const { errno } = (error ?? {}) as { errno?: unknown }
  return typeof errno === 'number' && errno >= 1000 && Math.floor(errno / 1000) !== 2 ? errno : undefined
}

export function isMissing(error: unknown): boolean {
  return MISSING.includes(errnoOf(error) ?? 0)
}

/** Whether the statement as text may do better than the prepared one. */
export function isUnprepared(error: unknown): boolean {
  return UNPREPARED.includes(errnoOf(error) ?? 0)
}

/** Whether there are more connections than the server, or this user, may have. */
export function isTooManyConnections(error: unknown): boolean {
  return TOO_MANY_CONNECTIONS.includes(errnoOf(error) ?? 0)
}

/** Whether nothing of ours is open on the connection after this error. */
export function isRolledBack(error: unknown): boolean {
  return ROLLED_BACK.has(errnoOf(error) ?? 0)
}

/** Whether trying again cannot help, whenever it is done. */
export function isLasting(error: unknown): boolean {
  const errno = errnoOf(error)
  return errno === undefined ? isUntrusted(error, HANDSHAKE_FAILED) : LASTING.has(errno)
}
