/** What callers are told of an attempt that failed is true. */
import { ClosedError, EngineError } from '../../src/core/errors.ts'
import type { Check } from '../checks.ts'
import type { History } from '../history.ts'

export const refusal: Readonly<Record<string, Check>> = {
  'refused as if nothing was applied': refusedAsNotApplied,
}

/**
 * A refusal says that nothing was applied only if the server has not let the entry in. What a duplicated request brings
 * in is not the caller's. A close takes out of the line what it refuses; and an entry that expired in line, and of
 * which the process has heard so, was followed by another one, which the refusal is about.
 */
function* refusedAsNotApplied({ attempts, stays, calls }: History): Iterable<string> {
  for (const { process, what, keys, id, settledAt = 0, error } of attempts) {
    if (id === undefined || !(error instanceof EngineError) || error instanceof ClosedError) continue
    if (error.outcome !== 'not-applied' || calls.some((call) => call.gone.includes(id))) continue
    const stay = stays.find((one) => one.id === id && !one.echo)
    if (stay !== undefined)
      yield `p${process}: ${what} of ${keys.join(' + ')} was refused at ${settledAt.toFixed(3)} as not applied, and was let in at ${stay.enteredAt.toFixed(3)}: ${error.message}`
  }
}
