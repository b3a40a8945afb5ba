/** The pools of a memory server. */
import { MemoryPool } from '../../core/memory-pool.ts'
import { type PoolRows, poolAnswer } from '../../core/pool-rule.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'

export class MemoryPools {
  readonly #pools = new Map<string, MemoryPool>()
  readonly #rowsOf: (pool: PoolRows) => PoolRows

  /** For tests: what stands before the rows of each pool. */
  constructor(rowsOf: (pool: PoolRows) => PoolRows = (pool) => pool) {
    this.#rowsOf = rowsOf
  }

  get size(): number {
    return this.#pools.size
  }

  step(step: PoolStep, now: number): PoolAnswer {
    const pool = this.#pools.get(step.key) ?? new MemoryPool()
    const answer = poolAnswer(this.#rowsOf(pool), step, now)
    if (!pool.isEmpty) this.#pools.set(step.key, pool)
    return answer
  }
}
