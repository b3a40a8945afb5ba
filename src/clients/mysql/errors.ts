/**
 * What went wrong, and what that means: whether anything can have been applied, and whether trying again can help.
 *
 * An error that the server answers with has a number (https://mariadb.com/kb/en/mariadb-error-code-reference/). Our
 * procedures roll back when they fail, but one that is killed between two statements, or after its commit, does not say
 * so: only of the numbers below is it known that nothing was applied. An error of the client (a lost connection, our
 * own deadline) has no number, and then nobody knows what the server did, unless nothing had been sent.
 */

import { type CallOutcome, EngineError } from '../../core/errors.ts'
import { NotSent } from '../shared/driver-errors.ts'

export const ENGINE = 'mysql'

const DEADLOCK = 1213
const LOCK_WAIT = 1205
const INTERRUPTED = 1317
const SYNTAX = 1064
/** What our own statements fail with where they cannot do all that is asked: see several.ts. */
const REFUSED = 1242

/** Procedures, tables, columns: not there, or no longer. */
const MISSING = new Set([1305, 1146, 1054])
const READ_ONLY_SESSION = 1792
const READ_ONLY = [1290, READ_ONLY_SESSION, 1836]
const FORBIDDEN = [1044, 1142, 1143, 1227, 1370, 1419]
const WRONG_WAY_IN = [1045, 1046, 1049, 1130, 1251, 1524, 1698, 1820, 1862]
const CROWDED = [1040, 1203, 1226]
const STATEMENT_LOG = 1665
/**
 * There are too many prepared statements; this one cannot be prepared; it is not there any more; its tables change
 * faster than the server prepares it anew.
 */
const UNPREPARED = [1461, 1295, 1243, 1615]

/** The whole call was rolled back, or refused before it began. */
const ROLLED_BACK = new Set([
  DEADLOCK,
  LOCK_WAIT,
  REFUSED,
  SYNTAX,
  STATEMENT_LOG,
  ...MISSING,
  ...READ_ONLY,
  ...FORBIDDEN,
  ...WRONG_WAY_IN,
  ...CROWDED,
  ...UNPREPARED,
])

/** Time does not mend it. */
const LASTING = new Set([SYNTAX, STATEMENT_LOG, ...MISSING, ...FORBIDDEN, ...WRONG_WAY_IN])

const PERMISSIONS =
  'this user may not: let somebody who may run what `holdfast migrate --print` prints, with its GRANTs'
const ADVICE: Readonly<Record<number, string>> = {
  [LOCK_WAIT]: 'somebody has locked a row of ours and does not let go of it',
  [STATEMENT_LOG]: 'set binlog_format to ROW or MIXED',
  ...Object.fromEntries(FORBIDDEN.map((errno) => [errno, PERMISSIONS])),
  ...Object.fromEntries(
    READ_ONLY.map((errno) => [errno, 'this is a replica, or a server that refuses writes: connect to the primary']),
  ),
}

/** Node's codes for certificates that do not convince. */
const UNTRUSTED = /^(?:CERT_|ERR_TLS_CERT|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_|HANDSHAKE_SSL_ERROR)/

/** The number of an error that the server answered with; undefined for an error of the client. */
export function errnoOf(error: unknown): number | undefined {
  const { errno, sqlState } = (error ?? {}) as { errno?: unknown; sqlState?: unknown }
  return typeof errno === 'number' && typeof sqlState === 'string' ? errno : undefined
}

export function isMissing(error: unknown): boolean {
  return MISSING.has(errnoOf(error) ?? 0)
}

export function isDeadlock(error: unknown): boolean {
  return errnoOf(error) === DEADLOCK
}

/** Somebody has one of the rows, and kept it for longer than we waited. */
export function isLocked(error: unknown): boolean {
  return errnoOf(error instanceof EngineError ? error.cause : error) === LOCK_WAIT
}

/** The statement as text may do better. */
export function isUnprepared(error: unknown): boolean {
  return UNPREPARED.includes(errnoOf(error) ?? 0)
}

/** A statement of ours undid itself. */
export function isRefused(error: unknown): boolean {
  return errnoOf(error instanceof EngineError ? error.cause : error) === REFUSED
}

/** The server does not understand: it is MySQL, and not MariaDB. */
export function isForeign(error: unknown): boolean {
  return errnoOf(error instanceof EngineError ? error.cause : error) === SYNTAX
}

/** The connection, not the server, is set to read only; our procedures do not mind. */
export function isReadOnlySession(error: unknown): boolean {
  return errnoOf(error instanceof EngineError ? error.cause : error) === READ_ONLY_SESSION
}

/** The sleep of a listener was ended. */
export function isInterrupted(error: unknown): boolean {
  return errnoOf(error) === INTERRUPTED
}

/** There are more connections than the server, or this user, may have. */
export function isCrowded(error: unknown): boolean {
  return CROWDED.includes(errnoOf(error instanceof NotSent ? error.cause : error) ?? 0)
}

/** After this error nothing of ours is open on its connection. */
export function isRolledBack(error: unknown): boolean {
  return ROLLED_BACK.has(errnoOf(error) ?? 0)
}

/** What the client threw, as the core wants it. `known`: what is known of the outcome, whatever the error says. */
export function fault(error: unknown, known?: CallOutcome): EngineError {
  if (error instanceof EngineError) return error
  const said = error instanceof NotSent ? error.cause : error
  const errno = errnoOf(said)
  const message = said instanceof Error ? said.message : String(said)
  const advice = errno === undefined ? undefined : ADVICE[errno]
  const sent = !(error instanceof NotSent)
  const outcome = sent && !isRolledBack(said) ? 'unknown' : 'not-applied'
  const lasting =
    errno === undefined ? UNTRUSTED.test(String((said as NodeJS.ErrnoException)?.code)) : LASTING.has(errno)
  const full = `${sent ? '' : 'not connected: '}${message}${advice === undefined ? '' : `; ${advice}`}`
  return new EngineError(ENGINE, full, { outcome: known ?? outcome, transient: !lasting, cause: said })
}

/** The same failure, of something of which another part may have been applied. */
export function doubtful(error: unknown): EngineError {
  const { message, transient, cause } = fault(error)
  return new EngineError(ENGINE, message.replace(`${ENGINE}: `, ''), { outcome: 'unknown', transient, cause })
}

/** What became of an item whose line somebody has locked. */
export function lineLocked(key: string): EngineError {
  return new EngineError(ENGINE, `the line of '${key}' is locked: ${ADVICE[LOCK_WAIT]}`, { outcome: 'not-applied' })
}
