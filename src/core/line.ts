/**
 * The line: the one rule behind every primitive. Pure: no clock, no engine, no I/O.
 *
 * > Walk from the front. An entry **holds** while the sum of weights up to and including it is no more than the
 * > smallest limit up to and including it. The entries behind wait.
 *
 *     mutex, write lock   weight 1        limit 1
 *     semaphore of n      weight 1..n     limit n
 *     read lock           weight 1        limit UNLIMITED
 *
 * What follows, and what the property tests check: the holders are always a prefix of the line; a holder goes on
 * holding when others leave; no entry overtakes another, so readers cannot starve a writer; two callers who disagree on
 * a limit get the stricter one.
 */

/** What the rule needs to know of an entry. */
export interface Weighted {
  readonly weight: number
  readonly limit: number
}

/** How many entries, from the front, hold. */
export function heldCount(line: Iterable<Weighted>): number {
  let weight = 0
  let limit = Number.POSITIVE_INFINITY
  let count = 0
  for (const entry of line) {
    weight += entry.weight
    limit = Math.min(limit, entry.limit)
    if (weight > limit) break
    count += 1
  }
  return count
}

/**
 * The held prefix of one line, kept up to date as entries come and go, so that granting costs nothing per waiter: an
 * engine asks `admits(next)` for the first waiter only.
 */
export class HeldPrefix {
  count = 0
  #weight = 0
  #limit: number = Number.POSITIVE_INFINITY
  /**
   * How many have which limit. Distinct limits are few (1, n, UNLIMITED), so the smallest is found by looking at all.
   * One holder needs none of it.
   */
  #limits: Map<number, number> | undefined

  /** Whether the first waiter may hold beside all holders. */
  admits(entry: Weighted): boolean {
    return this.#weight + entry.weight <= Math.min(this.#limit, entry.limit)
  }

  add(entry: Weighted): void {
    if (this.count === 1) this.#limits ??= new Map([[this.#limit, 1]])
    this.count += 1
    this.#weight += entry.weight
    this.#limit = Math.min(this.#limit, entry.limit)
    this.#limits?.set(entry.limit, (this.#limits.get(entry.limit) ?? 0) + 1)
  }

  remove(entry: Weighted): void {
    this.count -= 1
    this.#weight -= entry.weight
    if (this.count === 0) {
      this.#limits = undefined
      this.#limit = Number.POSITIVE_INFINITY
      return
    }
    const left = (this.#limits?.get(entry.limit) ?? 0) - 1
    if (left > 0) {
      this.#limits?.set(entry.limit, left)
    } else {
      this.#limits?.delete(entry.limit)
      this.#limit = Math.min(...(this.#limits?.keys() ?? []))
    }
  }
}

/** Whether others can hold beside it: by the rule, an entry that takes the whole limit is alone. */
export function isShared({ weight, limit }: Weighted): boolean {
  return weight < limit
}
