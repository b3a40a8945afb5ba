/** The two verbs that only look. They run in a transaction like the others, after it has removed what has expired. */
import type { Line, LineSummary } from '../../core/engine.ts'
import type { Scene } from './scene.ts'
import { HELD } from './schema.ts'

export function inspect({ sql, now }: Scene, key: string): Line {
  const entries = sql.wholeLine.all(key).map((row) => ({
    id: row.id,
    holder: row.holder,
    state: row.state === HELD ? ('held' as const) : ('waiting' as const),
    token: BigInt(row.token),
    weight: row.weight,
    limit: row.limit,
    ttlMs: row.ttl_ms,
    remainingMs: row.expires_at - now,
    ageMs: now - row.entered_at,
    heldMs: row.held_at === null ? null : now - row.held_at,
  }))
  return { key, entries }
}

/**
 * Up to `count` lines, in the bytewise order of their keys, from `from` on; not the one of `except`, which was the last
 * of the page before.
 */
export function page({ sql }: Scene, from: string, except: string, count: number): LineSummary[] {
  return sql.lines.all(from, except, count).map(({ key, held, waiting }) => ({ key, held, waiting }))
}
