/**
 * Waiting for a promise, but not for ever: every call to an engine has a deadline of ours, whatever its client's own
 * time-outs do.
 */
import type { Clock } from './clock.ts'
import { onAbort } from './on-abort.ts'

/** What `promise` resolves to, or `fallback` if it rejects, takes longer than `ms`, or `ending` aborts. */
export function fallbackAfter<Value>(
  clock: Clock,
  ms: number,
  promise: Promise<Value>,
  fallback: Value,
  ending?: AbortSignal,
): Promise<Value> {
  return rejectAfter(clock, ms, promise, () => new Error('late'), ending).catch(() => fallback)
}

/** Settles as `promise` does. If that takes longer than `ms`, it resolves, and `promise` goes on behind. */
export async function resolveAfter(clock: Clock, ms: number, promise: PromiseLike<void>): Promise<void> {
  const late = new Error('late')
  try {
    await rejectAfter(clock, ms, Promise.resolve(promise), () => late)
  } catch (error) {
    if (error !== late) throw error
  }
}

/**
 * What `promise` resolves to; rejects with `late()` if that takes longer than `ms`, and with the reason of `ending`
 * when that aborts. Keeps the process alive meanwhile.
 */
export function rejectAfter<Value>(
  clock: Clock,
  ms: number,
  promise: Promise<Value>,
  late: () => Error,
  ending?: AbortSignal,
): Promise<Value> {
  const alive = clock.stayAlive()
  return new Promise<Value>((resolve, reject) => {
    const end = (settle: () => void): void => {
      timer.cancel()
      alive.cancel()
      forget()
      settle()
    }
    const timer = clock.timer(ms, () => end(() => reject(late())))
    const forget = onAbort(ending, () => end(() => reject(ending?.reason)))
    if (ending?.aborted) end(() => reject(ending.reason))
    promise.then(
      (value) => end(() => resolve(value)),
      (error: unknown) => end(() => reject(error)),
    )
  })
}
