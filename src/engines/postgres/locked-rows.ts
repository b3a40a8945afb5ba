/**
 * A row that another transaction has locked for good (one that a person began by hand, a backend that stands still)
 * fails the whole batch that touches it. Then the other items of the batch go without it.
 */

import type { EngineError } from '../../core/errors.ts'
import { isRowLocked } from './errors.ts'

export interface BatchCall<One, Answer> {
  readonly call: (items: readonly One[]) => Promise<readonly Answer[]>
  /** The keys of these items whose rows are locked, right now. */
  readonly lockedKeys: (items: readonly One[]) => Promise<ReadonlySet<string>>
  /**
   * What to answer for an item whose row is locked. Undefined: an answer cannot say so. Then the call fails all the
   * same, but the other items are done.
   */
  readonly refused: ((error: EngineError) => Answer) | undefined
}

export async function aroundLockedRows<One extends { readonly key: string }, Answer>(
  items: readonly One[],
  { call, lockedKeys, refused }: BatchCall<One, Answer>,
): Promise<readonly Answer[]> {
  try {
    return await call(items)
  } catch (error) {
    if (!isRowLocked(error) || items.length === 1) throw error
    const locked = await lockedKeys(items)
    const free = items.filter(({ key }) => !locked.has(key))
    const answers = free.length === 0 ? [] : await call(free)
    if (locked.size === 0) return answers
    if (refused === undefined) throw error
    let next = 0
    return items.map(({ key }) => {
      if (locked.has(key)) return refused(error as EngineError)
      next += 1
      return answers[next - 1] as Answer
    })
  }
}
