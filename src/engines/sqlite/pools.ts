/** Pools inside one transaction: the rows of each in tables of the file, for the rule in core/pool-rule.ts. */

import { type PoolHold, type PoolItem, type PoolRows, poolAnswer } from '../../core/pool-rule.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import { linesOfText, textOfLines } from '../shared/pool-codec.ts'
import type { PoolHoldRow, PoolItemRow, PoolStatements } from './sql/pools.ts'

const STATES = ['held', 'sold', 'changed'] as const

export interface PoolsContext {
  readonly sql: PoolStatements
  /** By the host's monotonic clock. */
  readonly now: number
  /** By its wall clock. */
  readonly wallMs: number
  readonly epoch: number
}

/** All steps of one call. */
export function poolAnswers(steps: readonly PoolStep[], context: PoolsContext): PoolAnswer[] {
  const pools = new Map<string, SqlitePool>()
  return steps.map((step) => {
    const pool = pools.get(step.key) ?? new SqlitePool(step.key, context)
    pools.set(step.key, pool)
    return poolAnswer(pool, step, context.now)
  })
}

class SqlitePool implements PoolRows {
  readonly #key: string
  readonly #sql: PoolStatements
  readonly #now: number
  readonly #wallMs: number

  constructor(key: string, { sql, now, wallMs, epoch }: PoolsContext) {
    this.#key = key
    this.#sql = sql
    this.#now = now
    this.#wallMs = wallMs
    const [pool] = sql.pool.all(key)
    if (pool?.epoch === epoch) return
    sql.savePool.run(key, epoch)
    if (pool === undefined) return
    // The machine was restarted: all of its processes have died, the first in line included.
    sql.setTimes.run(now, wallMs, key)
    sql.forgetWants.run(key)
  }

  item(name: string): PoolItem | undefined {
    const [row] = this.#sql.item.all(this.#key, name)
    return row === undefined ? undefined : itemOf(row)
  }

  saveItem({ item, stock, sold, held, wantedBy, wantedUntil }: PoolItem): void {
    this.#sql.saveItem.run(this.#key, item, stock, sold, held, wantedBy, wantedUntil)
  }

  items(): Iterable<PoolItem> {
    return this.#sql.items.all(this.#key).map(itemOf)
  }

  hold(id: string): PoolHold | undefined {
    const [row] = this.#sql.hold.all(this.#key, id)
    return row === undefined ? undefined : holdOf(row)
  }

  saveHold({ id, state, lines, at }: PoolHold): void {
    const wallMs = this.#wallMs + (at - this.#now)
    this.#sql.saveHold.run(this.#key, id, STATES.indexOf(state), textOfLines(lines), at, wallMs)
  }

  removeHold({ id }: PoolHold): void {
    this.#sql.removeHold.run(this.#key, id)
  }

  lapsed(now: number, atMost: number): readonly PoolHold[] {
    return this.#sql.lapsed.all(this.#key, now, atMost).map(holdOf)
  }

  forgettable(now: number, atMost: number): readonly PoolHold[] {
    return this.#sql.forgettable.all(this.#key, now, atMost).map(holdOf)
  }

  nextLapse(): number | undefined {
    return this.#sql.nextLapse.all(this.#key)[0]?.at
  }

  heldCount(): number {
    return this.#sql.heldCount.all(this.#key)[0]?.count ?? 0
  }
}

function itemOf({ item, stock, sold, held, wanted_by, wanted_until }: PoolItemRow): PoolItem {
  return { item, stock, sold, held, wantedBy: wanted_by, wantedUntil: wanted_until }
}

function holdOf({ id, state, lines, at }: PoolHoldRow): PoolHold {
  return { id, state: STATES[state] as PoolHold['state'], lines: linesOfText(lines), at }
}
