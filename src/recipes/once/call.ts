/** One call of `run()`, its options read. */
import type { LineLock } from '../../core/lock.ts'
import type { Crashed } from './options.ts'

/** What its caller wants. */
export interface OnceCall {
  /** As the user has given it. */
  readonly key: string
  readonly lock: LineLock
  readonly fingerprint: string | undefined
  readonly waitMs: number
  readonly crashed: Crashed
  readonly signal: AbortSignal | undefined
}
