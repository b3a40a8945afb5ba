/**
 * Hearing of a cancellation, with one listener for each signal, however many wait under it. Node warns of a leak at the
 * eleventh listener, and a server that gives one signal to a hundred acquires has none.
 */

const hearers = new WeakMap<AbortSignal, Set<() => void>>()

/** Call `hear` once when `signal` aborts. Returns what takes it back. No effect without a signal. */
export function onAbort(signal: AbortSignal | undefined, hear: () => void): () => void {
  if (signal === undefined) return () => {}
  let set = hearers.get(signal)
  if (set === undefined) {
    set = new Set()
    hearers.set(signal, set)
    signal.addEventListener('abort', heardAbort)
  }
  const all = set.add(hear)
  return () => {
    if (!all.delete(hear) || all.size > 0 || hearers.get(signal) !== all) return
    hearers.delete(signal)
    signal.removeEventListener('abort', heardAbort)
  }
}

/**
 * A signal that aborts with the first of `signals`, until `stop` is called. Where the wait has an end, it is used
 * instead of `AbortSignal.any`: that one leaves something behind on a signal that outlives the wait.
 */
export function joinSignals(signals: readonly (AbortSignal | undefined)[]): { signal: AbortSignal; stop: () => void } {
  const controller = new AbortController()
  const forget: (() => void)[] = []
  for (const signal of signals) {
    if (signal?.aborted) controller.abort(signal.reason)
    forget.push(onAbort(signal, () => controller.abort(signal?.reason)))
  }
  return {
    signal: controller.signal,
    stop: () => {
      for (const each of forget) each()
    },
  }
}

function heardAbort(event: Event): void {
  const signal = event.target as AbortSignal
  const all = hearers.get(signal) ?? []
  hearers.delete(signal)
  signal.removeEventListener('abort', heardAbort)
  for (const hear of all) hear()
}
