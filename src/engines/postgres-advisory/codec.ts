/**
 * Requests and replies: what goes to the server as JSON, and rows of the table as the contract has them. The statements
 * are in sql.ts.
 */
import { type LineEntry, type LineSummary, UNLIMITED } from '../../core/engine.ts'
import { SESSION_TTL_MS, type SessionRows } from './session.ts'

export const LINE_BOUND = 10_000

/** What ATTEMPT is asked about one key. */
export interface KeyAttempt {
  readonly key: string
  /** The number of the lock, and that of the flag. */
  readonly number: string
  readonly flag: string
  readonly shared: boolean
  /** Try the lock. Otherwise waiters are only shown. */
  readonly asks: boolean
  /** Our session has the lock already, shared. */
  readonly have: boolean
  /** An entry of this process goes on waiting if the lock is not to be had: take the flag then. */
  readonly waits: boolean
  /** Our session has the flag already. */
  readonly flagged: boolean
  readonly entries: readonly EntryAttempt[]
}

export interface EntryAttempt {
  readonly id: string
  readonly holder: string
  readonly ttlMs: number
  readonly ageMs: number
  readonly shared: boolean
  /** It holds if the lock is had. */
  readonly asks: boolean
  readonly wait: boolean
  /** The server has not been told of it. */
  readonly fresh: boolean
}

/** What RELEASE is asked about one key. */
export interface KeyRelease {
  readonly key: string
  readonly number: string
  readonly flag: string
  readonly shared: boolean
  readonly unlock: boolean
  readonly unflag: boolean
}

/** What ATTEMPT answers about one entry. */
export interface AttemptAnswer {
  readonly key: string
  readonly id: string
  /** The session has taken the flag on the way. */
  readonly flagged: boolean
  /** Of an entry that holds now. */
  readonly token: bigint | undefined
}

export function attemptAnswersOf(rows: SessionRows): readonly AttemptAnswer[] {
  return rows.map(({ key, id, outcome, token }) => ({
    key: String(key),
    id: String(id),
    flagged: String(outcome).endsWith('Flagged'),
    token: token === null ? undefined : BigInt(token as string),
  }))
}

/** The keys of which RELEASE has told waiters of other processes. */
export function toldKeysOf(rows: SessionRows): ReadonlySet<string> {
  return new Set(rows.filter(({ told }) => told === true).map(({ key }) => String(key)))
}

/** What an entry has left is what its session would have, if it fell silent now. */
export function lineEntryOf(row: SessionRows[number]): LineEntry {
  const ttlMs = Number(row.ttl_ms)
  return {
    id: String(row.id),
    holder: String(row.holder),
    state: row.token === null ? 'waiting' : 'held',
    token: row.token === null ? null : BigInt(row.token as string),
    weight: 1,
    limit: row.shared === true ? UNLIMITED : 1,
    ttlMs,
    remainingMs: Math.min(ttlMs, SESSION_TTL_MS),
    ageMs: Number(row.age),
    heldMs: row.held === null ? null : Number(row.held),
  }
}

export function summaryOf(row: SessionRows[number]): LineSummary {
  return { key: String(row.key), held: Number(row.held), waiting: Number(row.waiting) }
}
