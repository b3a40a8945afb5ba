/** Durations as people write them: milliseconds, or a number with its unit. */

import { quoted } from './quoted.ts'

/** `1500`, `'250ms'`, `'30s'`, `'5m'`, `'1h'`, `'0.5s'`. */
export type Duration = number | `${number}${'ms' | 's' | 'm' | 'h'}`

const UNIT_MS: Readonly<Record<string, number>> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }

/** Milliseconds, possibly with a fraction. `what` names the argument in the error. */
export function parseDuration(duration: Duration, what: string): number {
  if (typeof duration === 'number') {
    if (Number.isFinite(duration) && duration >= 0) return duration
    throw new RangeError(`${what} must be a finite number of milliseconds, 0 or more; got ${duration}`)
  }
  const match = typeof duration === 'string' ? /^(\d+(?:\.\d+)?)(ms|s|m|h)$/.exec(duration) : null
  if (match === null) {
    throw new TypeError(
      `${what} must be milliseconds or a string like '250ms', '30s', '5m' or '1h'; got ${quoted(duration)}`,
    )
  }
  return Number(match[1]) * (UNIT_MS[match[2] as string] as number)
}

/**
 * The shortest spelling that says it: `1.5s`, `250ms`, `2m`. The bounds are where rounding carries into the next unit.
 */
export function formatDuration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)}ms`
  if (ms < 59_950) return `${Math.round(ms / 100) / 10}s`
  if (ms < 3_597_000) return `${Math.round(ms / 6000) / 10}m`
  return `${Math.round(ms / 360_000) / 10}h`
}
