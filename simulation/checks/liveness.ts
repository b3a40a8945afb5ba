/** What is asked for comes, and in time. */
import type { Check } from '../checks.ts'
import type { History } from '../history.ts'
import { stayOf, staysByToken } from './safety.ts'
import { asked, named, time } from './words.ts'

export const liveness: Readonly<Record<string, Check>> = {
  'no lost wake-up': lostWakeUp,
  recovery,
  patience,
  'given up in time': givenUpInTime,
}

/**
 * No call is waited for longer than the core's own deadline, from its send, as long as its process runs. Only calls
 * that take a signal tell when they were given up.
 */
function* givenUpInTime(history: History): Iterable<string> {
  const { callTimeoutMs } = history.terms
  for (const { process, verb, sentAt, givenUpAt } of history.calls) {
    if (givenUpAt === undefined || givenUpAt <= sentAt + 1.01 * callTimeoutMs + 3) continue
    if (!history.stopped(process, sentAt, givenUpAt))
      yield `p${process}: ${verb}, sent at ${time(sentAt)}, was given up at ${time(givenUpAt)}; ` +
        `${callTimeoutMs.toFixed(1)} ms after the send would do`
  }
}

/** A round trip or two, with a renewal before it: what an untroubled grant may take to be known. */
function promptMs({ terms }: History): number {
  return 6 * terms.delayMs + 5
}

/**
 * A waiter that is let hold knows it at once where the engine sends news, and with its next renewal where it does not;
 * unless its process or the server had trouble.
 */
function* lostWakeUp(history: History): Iterable<string> {
  const stays = staysByToken(history)
  const { terms } = history
  for (const holding of history.holdings) {
    const stay = stayOf(stays, holding)
    if (!holding.alone || stay?.grantedAt === undefined || stay.grantedAt === stay.enteredAt) continue
    const boundMs = promptMs(history) + (terms.news === 'none' ? (holding.ttlMs / 3) * 1.01 : 0)
    const tookMs = holding.grantedAt - stay.grantedAt
    const since = stay.grantedAt - terms.ttlMs - terms.callTimeoutMs
    if (tookMs > boundMs && !history.troubled(holding.process, since, holding.grantedAt)) {
      yield `${named(holding)} was granted at ${time(stay.grantedAt)} and known ${tookMs.toFixed(1)} ms later; ` +
        `${boundMs.toFixed(1)} ms would do`
    }
  }
}

/** How long after the last fault everything asked may still be open. */
export function recoveryMs({ terms, attempts, calmAt }: History): number {
  const open = attempts.filter(({ settledAt }) => settledAt === undefined || settledAt > calmAt).length
  // What was lost expires, what hangs times out, what sleeps wakes; and then they have it one after the other.
  return 4 * terms.ttlMs + 3 * terms.callTimeoutMs + (open + 1) * (terms.ttlMs + 20 * terms.delayMs)
}

/** After the faults have stopped, everything asked is granted or given up, soon. Only the dead do not count. */
function* recovery(history: History): Iterable<string> {
  const dead = new Set(history.faults.filter(({ kind }) => kind === 'crash').map(({ process }) => process))
  const boundMs = recoveryMs(history)
  for (const attempt of history.attempts) {
    const { process, at, settledAt } = attempt
    if (dead.has(process)) continue
    const by = Math.max(at, history.calmAt) + boundMs
    if (settledAt === undefined) yield `${asked(attempt)}, never came to an end`
    else if (settledAt > by)
      yield `${asked(attempt)}, came to an end at ${time(settledAt)}; all was calm at ${time(history.calmAt)}`
  }
}

/** How long a wait that ran out may take to learn who was in the way (NAMING_MS in src/core/acquire.ts). */
const NAMING_MS = 250

/** A caller that waits with limited patience has an answer when it runs out, if its process runs. */
function* patience(history: History): Iterable<string> {
  for (const attempt of history.attempts) {
    const { process, what, at, waitMs, settledAt } = attempt
    if (settledAt === undefined || waitMs === 0 || what.startsWith('all')) continue
    const lateMs = settledAt - at - waitMs * 1.01 - NAMING_MS * 1.01 - 5
    if (lateMs > 0 && !history.stopped(process, at, settledAt))
      yield `${asked(attempt)} with ${waitMs.toFixed(1)} ms of patience, came to an end at ${time(settledAt)}`
  }
}
