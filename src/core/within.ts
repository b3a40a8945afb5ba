/** Waiting for a promise, but not for ever. */
import type { Clock } from './clock.ts'

/** What `promise` resolves to, or `fallback` if it rejects or takes longer than `ms`. Never rejects. */
export function within<Value>(clock: Clock, ms: number, promise: Promise<Value>, fallback: Value): Promise<Value> {
  return new Promise((resolve) => {
    const timer = clock.timer(ms, () => resolve(fallback))
    const end = (value: Value): void => {
      timer.cancel()
      resolve(value)
    }
    promise.then(end, () => end(fallback))
  })
}
