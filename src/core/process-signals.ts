/**
 * SIGTERM and SIGINT, for locks that were told to heed them.
 *
 * A program that listens to such a signal does not end by it any more. So once everything is drained, the signal is
 * raised again, and ends the process as if no listener had been there. If the program itself, or another library,
 * listens to the signal as well, it has heard it at the same time as we have, and when to end is up to it.
 */

/** What a supervisor sends to end a process, and what Ctrl-C sends. */
const SIGNALS = ['SIGTERM', 'SIGINT'] as const
type Heeded = (typeof SIGNALS)[number]

/** One for each locks object that heeds signals. */
const drains = new Set<() => Promise<void>>()
let ending = false

/** Call `drain` when the process is told to end. The answer takes it back. */
export function drainOnSignals(drain: () => Promise<void>): () => void {
  if (drains.size === 0 && !ending) for (const signal of SIGNALS) process.on(signal, heard)
  drains.add(drain)
  return () => {
    drains.delete(drain)
    // While the process is ending, a second Ctrl-C must find a listener: it would end the process in the middle of it.
    if (!ending) stopListening()
  }
}

function heard(signal: Heeded): void {
  // Told again while it is ending: npm, for one, passes on a Ctrl-C that the terminal has sent to all of its processes.
  if (ending) return
  ending = true
  const begun = [...drains]
  void Promise.allSettled(begun.map((drain) => drain())).then(() => {
    ending = false
    for (const drain of begun) drains.delete(drain)
    const others = process.listenerCount(signal) > 1
    stopListening()
    if (!others) process.kill(process.pid, signal)
  })
}

/** Unless there still are locks that heed signals: they were opened while others were drained. */
function stopListening(): void {
  if (drains.size === 0) for (const signal of SIGNALS) process.off(signal, heard)
}
