/** How violations are told: times, leases and attempts, in the same words in all checks. */
import type { Attempt, Holding } from '../history.ts'

/** A time, as in the log of a run. */
export function time(ms: number): string {
  return ms.toFixed(3)
}

export function named({ key, token, process }: Holding): string {
  return `p${process}'s lease of '${key}' (token ${token})`
}

/** What a process has asked for, and when. */
export function asked({ process, what, keys, at }: Attempt): string {
  return `p${process}: ${what} of ${keys.join(' + ')}, asked at ${time(at)}`
}
