/** Asking a store again what failed: for all who ask one. */
import { EngineError } from '../core/errors.ts'
import { pauseAwaited } from '../core/keep-alive.ts'
import type { Keeper } from '../core/keeper.ts'

const SHORTEST_PAUSE_MS = 5
const LONGEST_PAUSE_MS = 500

/**
 * Ask again what failed, for as long as one call may take, or for `limitMs`. `mayRepeat` decides whether that is
 * harmless. A call that has taken all of that time is not repeated.
 */
export async function repeatCall<Answer>(
  keeper: Keeper,
  ask: () => Promise<Answer>,
  mayRepeat: (error: EngineError) => boolean,
  limitMs: number = keeper.callTimeoutMs,
): Promise<Answer> {
  const giveUpAt = keeper.clock.now() + limitMs
  try {
    return await ask()
  } catch (error) {
    return repeatFailed(keeper, error, ask, mayRepeat, giveUpAt)
  }
}

/** The same after a first call, which has failed with `error`. */
export async function repeatFailed<Answer>(
  { clock, chance }: Keeper,
  error: unknown,
  ask: () => Promise<Answer>,
  mayRepeat: (error: EngineError) => boolean,
  giveUpAt: number,
): Promise<Answer> {
  let last = error
  let doubt: EngineError | undefined
  for (let pauseMs = SHORTEST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    if (!(last instanceof EngineError)) throw last
    if (last.outcome === 'unknown') doubt = last
    const again = mayRepeat(last) && last.transient && clock.now() + pauseMs < giveUpAt
    // What was asked first may have been applied, whatever became of the last try.
    if (!again) throw doubt ?? last
    const afterMs = pauseMs * (0.5 + chance.fraction() / 2)
    await pauseAwaited(clock, afterMs)
    try {
      return await ask()
    } catch (failure) {
      last = failure
    }
  }
}
