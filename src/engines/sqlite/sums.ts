/**
 * A line without its entries: how many there are, and what those who hold weigh. Enough to say whether the next one may
 * hold, without a walk. The rule itself is told in core/line.ts.
 */
import type { Weighted } from '../../core/line.ts'
import { HELD } from './schema.ts'
import type { LineRow, Statements } from './statements.ts'

/** No limit yet, because nobody holds. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER

export class Sums {
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

  /** The sums of a line as it is in the file. */
  static read(key: string, sql: Statements): Sums {
    const entries = sql.peek.all(key)
    if (entries.length > 1) {
      const stored = Sums.stored(key, sql)
      if (stored !== undefined) return stored
      throw new Error(`the line of '${key}' has entries but no sums`)
    }
    const sums = new Sums(key)
    const [only] = entries
    if (only?.state === HELD) sums.hold(only)
    else if (only !== undefined) sums.waiting = 1
    sums.changed = false
    return sums
  }

  /** Undefined: the line has one entry or none. */
  static stored(key: string, sql: Statements): Sums | undefined {
    const [row] = sql.line.all(key)
    return row === undefined ? undefined : new Sums(key, row)
  }

  get size(): number {
    return this.held + this.waiting
  }

  /** Whether this one, being the first that waits, may hold beside everyone who does. */
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

  /** Somebody has gone; its row in the file is gone already. */
  without(entry: Weighted & { readonly state: number }, sql: Statements): void {
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
  write(sql: Statements): void {
    if (this.size > 1) sql.putLine.run(this.key, this.held, this.#weight, this.#limit, this.#atLimit, this.waiting)
    else if (this.#stored) sql.removeLine.run(this.key)
    this.#stored = this.size > 1
    this.changed = false
  }
}
