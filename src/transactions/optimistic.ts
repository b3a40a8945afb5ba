/**
 * Changing a row without locking it: read it, decide, and write only if it was not changed in between; else read again.
 * Best where two writers seldom meet: nothing is held while the caller thinks, not even a connection.
 *
 * The tries are bounded, and between them passes a random time that grows, so that writers that collided do not
 * collide again. Reading and writing are the caller's, or those of a table (optimistic-row.ts).
 */

import { type Chance, type Clock, systemChance, systemClock } from '../core/clock.ts'
import { ConflictError } from '../core/errors.ts'
import { onAbort } from '../core/on-abort.ts'

/** How often to try again, and until when. */
export interface RetryOptions {
  /** How often to try again after another writer was faster: 10. Then `ConflictError`. */
  readonly retries?: number
  /** Ends the attempt between two tries, with the signal's own reason. */
  readonly signal?: AbortSignal
  /** For tests: where time comes from. */
  readonly clock?: Clock
  /** For tests: where jitter comes from. */
  readonly chance?: Chance
}

/** What to read, how to change it, and how to write it unless another writer was faster. */
export interface OptimisticOptions<Before, After = Before> extends RetryOptions {
  /** What is there now; undefined if nothing is. Called anew for each try. */
  read(): Promise<Before | undefined>
  /** What shall be there, or undefined to leave it. May be called several times: no side effects. */
  change(before: Before): After | undefined | Promise<After | undefined>
  /** Write it if what is there is still `before`, in one step; answer whether it was. */
  write(after: After, before: Before): Promise<boolean>
  /** What this is about, for the error. */
  readonly target?: string
}

/** What came of it, and after how many tries. */
export type OptimisticResult<Before, After = Before> =
  | { readonly state: 'written'; readonly before: Before; readonly after: After; readonly tries: number }
  /** `change` answered undefined: nothing was written. */
  | { readonly state: 'unchanged'; readonly before: Before; readonly tries: number }
  /** There is nothing to change. */
  | { readonly state: 'missing'; readonly tries: number }

const USUAL_RETRIES = 10
const FIRST_PAUSE_MS = 2
const LONGEST_PAUSE_MS = 100

export async function tryOptimistically<Before, After>(
  options: OptimisticOptions<Before, After>,
): Promise<OptimisticResult<Before, After>> {
  const { signal, target = 'what was read', chance = systemChance } = options
  const most = checkedRetries(options.retries) + 1
  for (let tries = 1; ; tries += 1) {
    signal?.throwIfAborted()
    const before = await options.read()
    if (before === undefined) return { state: 'missing', tries }
    const after = await options.change(before)
    if (after === undefined) return { state: 'unchanged', before, tries }
    if (await options.write(after, before)) return { state: 'written', before, after, tries }
    if (tries === most) throw new ConflictError(target, tries, 'others changed it each time')
    await pause(chance.fraction() * Math.min(FIRST_PAUSE_MS * 2 ** (tries - 1), LONGEST_PAUSE_MS), options)
  }
}

function checkedRetries(retries = USUAL_RETRIES): number {
  if (Number.isSafeInteger(retries) && retries >= 0) return retries
  throw new RangeError(`retries must be a whole number, 0 or more; got ${retries}`)
}

/** Our timers keep no process alive, and the caller awaits this one. */
async function pause(pauseMs: number, { clock = systemClock, signal }: RetryOptions): Promise<void> {
  const alive = clock.stayAlive()
  await new Promise<void>((resolve) => {
    const timer = clock.timer(pauseMs, () => {
      forget()
      resolve()
    })
    const forget = onAbort(signal, () => {
      timer.cancel()
      resolve()
    })
  })
  alive.cancel()
}
