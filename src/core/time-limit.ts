/**
 * Waiting for a promise, but not for ever: every call to an engine has a deadline of ours, whatever its client's own
 * time-outs do.
 */
import type { Clock } from './clock.ts'
import { EngineError } from './errors.ts'

/** What `promise` resolves to, or `fallback` if it rejects or takes longer than `ms`. Never rejects. */
export function fallbackAfter<Value>(
  clock: Clock,
  ms: number,
  promise: Promise<Value>,
  fallback: Value,
): Promise<Value> {
  return rejectAfter(clock, ms, promise, () => new Error('late')).catch(() => fallback)
}

/**
 * What `promise` resolves to; rejects with `late()` if that takes longer than `ms`. Keeps the process alive meanwhile.
 */
export function rejectAfter<Value>(
  clock: Clock,
  ms: number,
  promise: Promise<Value>,
  late: () => Error,
): Promise<Value> {
  const alive = clock.stayAlive()
  return new Promise<Value>((resolve, reject) => {
    const timer = clock.timer(ms, () => {
      alive.cancel()
      reject(late())
    })
    const end = (settle: () => void): void => {
      timer.cancel()
      alive.cancel()
      settle()
    }
    promise.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    )
  })
}

/**
 * The error of a look that was not answered in time. Looking changes nothing; for `evict` the outcome really is
 * unknown.
 */
export function noAnswer(engine: string, verb: string, ms: number): EngineError {
  return new EngineError(engine, `no answer to ${verb} within ${Math.round(ms)} ms`, { outcome: 'unknown' })
}
