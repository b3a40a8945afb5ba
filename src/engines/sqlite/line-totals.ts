/**
 * A line without its entries: how many there are, and what the holders weigh together. That is enough to say whether
 * the next entry may hold, without a walk of the line. The rule itself is told in core/line.ts.
 */
import type { Weighted } from '../../core/line.ts'
import { HELD } from './sql/schema.ts'
import type { LineRow, SqliteStatements } from './sql/statements.ts'

/** The limit of a line without holders. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER

export class LineTotals {
  readonly key: string
  held = 0
  waiting = 0
  /** What is in the file differs from this. */
  changed = false
  #weight = 0
  #limit = NO_LIMIT
  #atLimit = 0
  #stored = false

  constructor(key: string, row?: LineRow) {
    this.key = key
    if (row === undefined) return
    this.held = row.held
    this.waiting = row.waiting
    this.#weight = row.weight
    this.#limit = row.limit
    this.#atLimit = row.at_limit
    this.#stored = true
  }

  /** The totals of a line as it is in the file, from its row or its only entry. */
  static read(key: string, sql: SqliteStatements): LineTotals {
    const entries = sql.peek.all(key)
    if (entries.length > 1) {
      const stored = LineTotals.stored(key, sql)
      if (stored !== undefined) return stored
      throw new Error(`the line of '${key}' has several entries but no row in holdfast_line`)
    }
    const totals = new LineTotals(key)
    const [only] = entries
    if (only?.state === HELD) totals.hold(only)
    else if (only !== undefined) totals.waiting = 1
    totals.changed = false
    return totals
  }

  /** Undefined: the line has one entry or none. */
  static stored(key: string, sql: SqliteStatements): LineTotals | undefined {
    const [row] = sql.line.all(key)
    return row === undefined ? undefined : new LineTotals(key, row)
  }

  get size(): number {
    return this.held + this.waiting
  }

  /** Whether this entry, if it is the first that waits, may hold beside the holders. */
  admits(entry: Weighted): boolean {
    return this.#weight + entry.weight <= Math.min(this.#limit, entry.limit)
  }

  wait(): void {
    this.waiting += 1
    this.changed = true
  }

  hold(entry: Weighted): void {
    this.held += 1
    this.#weight += entry.weight
    this.changed = true
    if (entry.limit > this.#limit) return
    this.#atLimit = entry.limit === this.#limit ? this.#atLimit + 1 : 1
    this.#limit = entry.limit
  }

  /** This entry has gone from the line; its row in the file is gone already. */
  without(entry: Weighted & { readonly state: number }, sql: SqliteStatements): void {
    this.changed = true
    if (entry.state !== HELD) {
      this.waiting -= 1
      return
    }
    this.held -= 1
    this.#weight -= entry.weight
    if (entry.limit === this.#limit) this.#atLimit -= 1
    if (this.#atLimit > 0) return
    const [smallest] = this.held === 0 ? [] : sql.smallestLimit.all(this.key)
    this.#limit = smallest?.limit ?? NO_LIMIT
    this.#atLimit = smallest?.count ?? 0
  }

  /** Into the file: a row for two entries or more, none for fewer. */
  write(sql: SqliteStatements): void {
    if (this.size > 1) sql.putLine.run(this.key, this.held, this.#weight, this.#limit, this.#atLimit, this.waiting)
    else if (this.#stored) sql.removeLine.run(this.key)
    this.#stored = this.size > 1
    this.changed = false
  }
}
