/**
 * A row that somebody has locked for good (a transaction by hand, a backend that stands still) fails the whole batch
 * that touches it. Then the others go without it.
 */

import { isLocked } from '../../clients/postgres/errors.ts'
import type { EngineError } from '../../core/errors.ts'

export interface Around<One, Answer> {
  readonly call: (items: readonly One[]) => Promise<readonly Answer[]>
  /** Which of these keys are locked, right now. */
  readonly stuck: (items: readonly One[]) => Promise<ReadonlySet<string>>
  /**
   * What to answer for those. Undefined: an answer cannot say so, and the call fails all the same, but the others are
   * done.
   */
  readonly refused: ((error: EngineError) => Answer) | undefined
}

export async function aroundStuck<One extends { readonly key: string }, Answer>(
  items: readonly One[],
  { call, stuck: find, refused }: Around<One, Answer>,
): Promise<readonly Answer[]> {
  try {
    return await call(items)
  } catch (error) {
    if (!isLocked(error) || items.length === 1) throw error
    const stuck = await find(items)
    const free = items.filter(({ key }) => !stuck.has(key))
    const answers = free.length === 0 ? [] : await call(free)
    if (stuck.size === 0) return answers
    if (refused === undefined) throw error
    let next = 0
    return items.map(({ key }) => {
      if (stuck.has(key)) return refused(error as EngineError)
      next += 1
      return answers[next - 1] as Answer
    })
  }
}
