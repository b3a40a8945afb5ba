/**
 * What SQLite says, and what it means for a user: every failure names the file and what to do about it.
 *
 * The outcome is `unknown` only where a commit failed in the disk's own write or sync: its frames may be in the log,
 * and a process that opens the file after a crash of all the others could find them. Everywhere else the transaction
 * was rolled back, and nothing of it was applied.
 */
import { EngineError } from '../../core/errors.ts'
import { type CallFacts, type EngineCall, engineErrors } from '../../core/failed-call.ts'
import { thrownText } from '../../core/thrown.ts'

/** Primary result codes (https://sqlite.org/rescode.html). */
export const BUSY = 5
const PERM = 3
const LOCKED = 6
const READONLY = 8
const IOERR = 10
const CORRUPT = 11
const FULL = 13
const CANTOPEN = 14
const PROTOCOL = 15
const NOTADB = 26

const NAMES: Readonly<Record<string, number>> = {
  PERM,
  BUSY,
  LOCKED,
  READONLY,
  IOERR,
  CORRUPT,
  FULL,
  CANTOPEN,
  PROTOCOL,
  NOTADB,
}

/** SQLite's own fixed words for its codes: @photostructure/sqlite 1.2 gives no code with an error of `all()`. */
const WORDS: Readonly<Record<string, number>> = {
  'access permission denied': PERM,
  'database is locked': BUSY,
  'database table is locked': LOCKED,
  'attempt to write a readonly database': READONLY,
  'disk I/O error': IOERR,
  'database disk image is malformed': CORRUPT,
  'database or disk is full': FULL,
  'unable to open database file': CANTOPEN,
  'locking protocol': PROTOCOL,
  'file is not a database': NOTADB,
}

/** The primary result code, however the driver spells it; undefined if the error is not from SQLite. */
export function codeOf(error: unknown): number | undefined {
  if (!(error instanceof Error)) return undefined
  const { errcode, code } = error as { errcode?: unknown; code?: unknown }
  if (typeof errcode === 'number') return errcode & 0xff
  if (typeof code === 'string' && code.startsWith('SQLITE_')) return NAMES[code.split('_')[1] as string]
  return WORDS[error.message] ?? (error.message.startsWith('unable to open database: ') ? CANTOPEN : undefined)
}

/** Another process is writing, or setting the file up: try the same again in a moment. */
export function isBusy(error: unknown): boolean {
  const code = codeOf(error)
  return code === BUSY || code === LOCKED || code === PROTOCOL
}

/**
 * Whether the connection is worth keeping after this: a full disk has done it no harm, and a refusal of ours would only
 * be repeated.
 */
export function isHarmless(error: unknown): boolean {
  return error instanceof EngineError || codeOf(error) === FULL
}

interface Advice {
  readonly says: string
  readonly transient: boolean
}

const readOnly: Advice = {
  says: 'cannot be written: give this user write permission to the file and to its folder, or name another file',
  transient: false,
}

const damaged: Advice = {
  says:
    'is damaged or is no SQLite database: stop the processes that use it and move it away (with its -wal and -shm); ' +
    'a new one is made, and tokens go on from the clock',
  transient: false,
}

const ADVICE: Readonly<Record<number, Advice>> = {
  [BUSY]: { says: 'is locked by another process that does not finish; is one of them stopped?', transient: true },
  [PERM]: readOnly,
  [READONLY]: readOnly,
  [IOERR]: {
    says: 'could not be read or written (disk I/O error): is the disk failing or over quota, or was the file deleted while in use?',
    transient: true,
  },
  [CORRUPT]: damaged,
  [FULL]: { says: 'cannot grow: the disk is full. Nothing was granted; free some space', transient: true },
  [CANTOPEN]: {
    says: 'cannot be opened: does its folder exist, and may this user read and write there?',
    transient: true,
  },
  [NOTADB]: damaged,
}

/** What is known of a failure besides the error: which file, and how far the transaction had come. */
export interface SqliteFacts extends CallFacts {
  readonly file: string
  readonly during: 'open' | 'work' | 'commit'
}

type AsSqliteError = (call: EngineCall, error: unknown, facts: SqliteFacts) => EngineError

/** What the driver threw, as the core wants it. */
export const asEngineError: AsSqliteError = engineErrors<SqliteFacts>('sqlite', (error, facts) => {
  const { file, during } = facts as SqliteFacts
  const code = codeOf(error)
  const { says, transient } = (code === undefined ? undefined : ADVICE[code]) ?? {
    says: `failed: ${thrownText(error)}`,
    transient: true,
  }
  const outcome = during === 'commit' && code === IOERR ? 'unknown' : 'not-applied'
  return { message: `'${file}' ${says}`, outcome, transient }
})

/** An error of our own that says that nothing can be done with this file here. */
export function refusal(message: string, cause?: unknown): EngineError {
  return new EngineError('sqlite', message, {
    outcome: 'not-applied',
    transient: false,
    ...(cause === undefined ? {} : { cause }),
  })
}
