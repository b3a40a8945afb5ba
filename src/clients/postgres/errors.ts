/**
 * What went wrong, and what that means: whether anything can have been applied, and whether trying again can help.
 *
 * An error that the server answers with has a code of five characters
 * (https://www.postgresql.org/docs/current/errcodes-appendix.html), and nearly always means that the transaction was
 * rolled back. An error of the client (a lost connection, our own deadline) has none, and then nobody knows what the
 * server did, unless nothing had been sent.
 */

import { type CallOutcome, EngineError } from '../../core/errors.ts'
import { NotSent } from '../shared/driver-errors.ts'

export const ENGINE = 'postgres'

/** As we raise them in sql/. */
const STRICT_ISOLATION = 'HF001'
const NEWER_FORMAT = 'HF002'
const OTHER_ENCODING = 'HF003'

export const LOCKED = '55P03'

/** Functions, tables or the schema are not there. */
const MISSING = new Set(['42883', '42P01', '3F000'])

const ADVICE: Readonly<Record<string, string>> = {
  [LOCKED]: 'somebody has locked a row of ours and does not let go of it',
  [STRICT_ISOLATION]: "give Holdfast connections whose default_transaction_isolation is 'read committed'",
  [NEWER_FORMAT]: 'a newer Holdfast made these tables: update this one',
  [OTHER_ENCODING]: 'Holdfast needs a database in UTF8',
  25006: 'this is a replica, or a server that refuses writes: connect to the primary',
  42501: 'this user may not: let somebody who may run what `holdfast migrate --print` prints, with its GRANTs',
}

/** Time does not mend it: wrong names, passwords and permissions. */
const LASTING = /^(?:HF|28|3D|42|22|0A)/
/** The server, or our connection to it, came to an end; the transaction may have been over by then. */
const DOUBTFUL = /^(?:08|57P|58|XX|F0)/
/** Node's codes for certificates that do not convince, and a host that nobody knows. */
const UNTRUSTED = /^(?:CERT_|ERR_TLS_CERT|DEPTH_ZERO_|SELF_SIGNED_|UNABLE_TO_)/

/** The code of an error that the server answered with; undefined for an error of the client. */
export function codeOf(error: unknown): string | undefined {
  const { code } = (error ?? {}) as { code?: unknown }
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) && !/^E[A-Z]+$/.test(code) ? code : undefined
}

export function isMissing(error: unknown): boolean {
  return MISSING.has(codeOf(error) ?? '')
}

export function isLocked(error: unknown): boolean {
  return error instanceof EngineError && codeOf(error.cause) === LOCKED
}

/** What the client threw, as the core wants it. `known`: what is known of the outcome, whatever the error says. */
export function fault(error: unknown, known?: CallOutcome): EngineError {
  if (error instanceof EngineError) return error
  const said = error instanceof NotSent ? error.cause : error
  const code = codeOf(said)
  const message = said instanceof Error ? said.message : String(said)
  const advice = code === undefined ? undefined : ADVICE[code]
  const sent = !(error instanceof NotSent)
  const outcome = sent && (code === undefined || DOUBTFUL.test(code)) ? 'unknown' : 'not-applied'
  const lasting =
    code === undefined ? UNTRUSTED.test(String((said as NodeJS.ErrnoException)?.code)) : LASTING.test(code)
  const full = `${sent ? '' : 'not connected: '}${message}${advice === undefined ? '' : `; ${advice}`}`
  return new EngineError(ENGINE, full, { outcome: known ?? outcome, transient: !lasting, cause: said })
}
