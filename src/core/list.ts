/** Listing lines. Each step has a limit of ours; all of it may take as long as it takes, while the engine gets on. */
import type { LineSummary } from './engine.ts'
import type { Keeper } from './keeper.ts'

/** The lines that have entries, whose key starts with `prefix`. */
export async function* listLines(keeper: Keeper, prefix: string): AsyncGenerator<LineSummary, void, void> {
  let progress = 0
  const lines = keeper.engine
    .list(prefix, () => {
      progress += 1
    })
    [Symbol.asyncIterator]()
  const next = async (): Promise<IteratorResult<LineSummary, unknown>> => {
    keeper.refuseIfClosed()
    const found = lines.next()
    // The locks may be closed before it is answered.
    found.catch(() => {})
    for (;;) {
      const before = progress
      try {
        return await keeper.call('list', () => found)
      } catch (error) {
        if (progress === before) throw error
      }
    }
  }
  try {
    for (;;) {
      const { value, done } = await next()
      if (done) return
      yield value as LineSummary
    }
  } finally {
    // Not awaited: it would queue behind a look that is never answered.
    void lines.return?.().catch(() => {})
  }
}
