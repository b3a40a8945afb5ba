/**
 * SIGTERM and SIGINT, for locks that were told to heed them.
 *
 * A program that listens to such a signal does not end by it any more. So once everything is drained, the signal is
 * raised again, and ends the process as if no listener had been there. A second signal does so at once: the user who
 * presses Ctrl-C again does not want to wait. If the program itself, or another library, listens to the signal as well,
 * it has heard it at the same time as we have, and when to end is up to it.
 */
import { writeSync } from 'node:fs'
import { systemClock } from './clock.ts'

/** What a supervisor sends to end a process, and what Ctrl-C sends. */
const SIGNALS = ['SIGTERM', 'SIGINT'] as const
type Heeded = (typeof SIGNALS)[number]

/**
 * What comes this soon after the first signal is the same one: npm, for one, passes on a Ctrl-C that the terminal has
 * sent to all of its processes.
 */
const SAME_SIGNAL_MS = 500
/** How many keys are named when the process ends before all is given back. */
const NAMED_KEYS = 5

/** One for each locks object that heeds signals. */
export interface SignalDrain {
  readonly drain: () => Promise<void>
  /** What has not been given back. */
  readonly heldKeys: () => readonly string[]
}

const drains = new Set<SignalDrain>()
/** When the first signal was heard, while its drains are under way. */
let endingSince: number | undefined

/** Call `drain` when the process is told to end. The answer takes it back. */
export function drainOnSignals(drain: SignalDrain): () => void {
  if (drains.size === 0 && endingSince === undefined) for (const signal of SIGNALS) process.on(signal, heard)
  drains.add(drain)
  return () => {
    drains.delete(drain)
    // While the process is ending, the same Ctrl-C that comes again must find a listener.
    if (endingSince === undefined) stopListening()
  }
}

function heard(signal: Heeded): void {
  const now = systemClock.now()
  if (endingSince === undefined) {
    endingSince = now
    void drainAll(signal)
  } else if (now - endingSince > SAME_SIGNAL_MS && !othersListen(signal)) {
    sayWhatIsLeft(signal)
    for (const each of SIGNALS) process.off(each, heard)
    process.kill(process.pid, signal)
  }
}

async function drainAll(signal: Heeded): Promise<void> {
  const begun = [...drains]
  await Promise.allSettled(begun.map(({ drain }) => drain()))
  endingSince = undefined
  for (const drain of begun) drains.delete(drain)
  const others = othersListen(signal)
  stopListening()
  if (!others) process.kill(process.pid, signal)
}

function othersListen(signal: Heeded): boolean {
  return process.listeners(signal).some((listener) => listener !== heard)
}

/** Unless there still are locks that heed signals: they were opened while others were drained. */
function stopListening(): void {
  if (drains.size === 0) for (const signal of SIGNALS) process.off(signal, heard)
}

/** At once, since nothing that is written later is written at all. */
function sayWhatIsLeft(signal: Heeded): void {
  const keys = [...drains].flatMap(({ heldKeys }) => heldKeys())
  if (keys.length === 0) return
  const named = keys.slice(0, NAMED_KEYS).map((key) => JSON.stringify(key))
  const more = keys.length > named.length ? ` and ${keys.length - named.length} more` : ''
  const left = `${named.join(', ')}${more}`
  try {
    writeSync(
      process.stderr.fd,
      `holdfast: ended by a second ${signal}; not given back, so that others wait until the ttl is over: ${left}\n`,
    )
  } catch {
    // Standard error is closed, or full: ending is what was asked for.
  }
}
