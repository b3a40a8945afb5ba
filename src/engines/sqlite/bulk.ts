/**
 * A batch as one statement: what makes a hundred callers cost little more than ten.
 *
 * The usual batch enters lines that are empty, or leaves lines in which it was alone. Then no other entry has to be
 * granted or told anything, and one statement does for all of it what would take two for each. If that is not so for a
 * single one of them, nothing is changed, and the batch is worked through one by one.
 */
import type { Claim, EntryName, Place } from '../../core/engine.ts'
import type { SqliteStatements } from './sql/statements.ts'

/** Below this, one by one is as fast. */
const WORTHWHILE = 4
/** After a batch that was not of the usual kind, so many batches are not tried this way. */
const PAUSE = 16

/** What the entries of a batch have in common. */
export interface BulkEnter {
  readonly engineId: number
  readonly now: number
  readonly until: number
  /** The token of the first; the others follow one by one. */
  readonly token: number
}

export class BulkStatements {
  #skip = 0

  /** Whether it is worth a try: enough of them, and each of a line of its own. */
  isWorthTrying(items: readonly Pick<Place, 'key'>[]): boolean {
    if (items.length < WORTHWHILE) return false
    if (this.#skip > 0) {
      this.#skip -= 1
      return false
    }
    return new Set(items.map(({ key }) => key)).size === items.length
  }

  /** Whether one statement can say it all: only keys and ids differ. */
  areAlike([first, ...others]: readonly Claim[]): boolean {
    return others.every(
      ({ weight, limit, ttlMs, holder }) =>
        weight === first?.weight && limit === first.limit && ttlMs === first.ttlMs && holder === first.holder,
    )
  }

  /** Let all of these claims, which are alike, hold. False: nothing was done. */
  enter(sql: SqliteStatements, claims: readonly Claim[], { engineId, now, until, token }: BulkEnter): boolean {
    const [{ weight, limit, ttlMs, holder }] = claims as readonly [Claim]
    return this.#try(sql, claims, (places) =>
      sql.insertAll.run(token, weight, limit, ttlMs, until, now, now, engineId, holder, places),
    )
  }

  /** Take all of them out. False: nothing was done. */
  leave(sql: SqliteStatements, places: readonly EntryName[]): boolean {
    return this.#try(sql, places, (list) => sql.removeAll.run(list))
  }

  #try(sql: SqliteStatements, items: readonly EntryName[], change: (places: string) => number): boolean {
    const places = JSON.stringify(items.map(({ key, id }) => [key, id]))
    // SQLite reads some escapes as JavaScript does not write them, NUL among them.
    if (places.includes('\\')) return false
    sql.savepoint.run()
    const done = change(places) === items.length
    if (!done) sql.rollbackToSavepoint.run()
    sql.release.run()
    if (!done) this.#skip = PAUSE
    return done
  }
}
