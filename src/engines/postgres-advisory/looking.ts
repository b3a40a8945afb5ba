/** Rows of the table, as people see them. */
import { type LineEntry, type LineSummary, UNLIMITED } from '../../core/engine.ts'
import { SESSION_TTL_MS } from './session.ts'

type Row = Readonly<Record<string, unknown>>

/** What an entry has left is what its session would have, if it fell silent now. */
export function viewOf(row: Row): LineEntry {
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

export function summaryOf(row: Row): LineSummary {
  return { key: String(row.key), held: Number(row.held), waiting: Number(row.waiting) }
}
