/** Waiting for a majority, and a moment more for the others. */
import type { Clock, Timer } from '../../core/clock.ts'

/**
 * Resolves when `wanted` of these are fulfilled and the others have had a moment more, or when all are settled; with
 * how many are fulfilled. Never rejects.
 */
export function enough(
  promises: readonly Promise<unknown>[],
  wanted: number,
  clock: Clock,
  momentMs: number,
): Promise<number> {
  return new Promise((resolve) => {
    let [fulfilled, settled] = [0, 0]
    let moment: Timer | undefined
    const look = (): void => {
      settled += 1
      if (fulfilled >= wanted) moment ??= clock.timer(momentMs, () => resolve(fulfilled))
      if (settled < promises.length) return
      moment?.cancel()
      resolve(fulfilled)
    }
    for (const promise of promises) {
      promise.then(() => {
        fulfilled += 1
        look()
      }, look)
    }
  })
}
