/** Nothing is lost or refused without a cause. */
import type { Check } from '../checks.ts'
import type { Attempt, Call, FaultKind, History, Holding } from '../history.ts'
import { callsById, latestEndAwake, stopsOf, timeOutside, toldBy } from './calls.ts'
import { stayOf, staysByToken } from './safety.ts'
import { asked, named, time } from './words.ts'

export const needlessness: Readonly<Record<string, Check>> = {
  'needless loss': needlessLoss,
  'needless refusal': needlessRefusal,
  'kept busy': keptBusy,
}

/** One of these alone costs no lease: there is time for a second try. */
const SINGLE: ReadonlySet<FaultKind> = new Set([
  'lost request',
  'lost reply',
  'refused call',
  'failed item',
  'lost news',
  'duplicated request',
  'duplicated news',
])

/** A lease is lost only if something went wrong around it, and more than one message. */
function* needlessLoss(history: History): Iterable<string> {
  const { callTimeoutMs } = history.terms
  for (const holding of history.holdings) {
    const at = holding.lostAt ?? holding.doubtedAt
    if (at === undefined || (holding.endedAt ?? Number.POSITIVE_INFINITY) < at) continue
    // That it had to be is a check of its own.
    if (holding.lostWhy === 'maxHold') continue
    if (holding.lostWhy === 'closed' && history.troubled(holding.process, holding.grantedAt, at)) continue
    // A holder that does not listen learns of it late: it happened some time after the last look.
    const since = (holding.lostAt ?? holding.believedAt) - ttlOf(history, holding) - callTimeoutMs
    const troubles = [...history.troubles(holding.process, since, at)]
    const [only] = troubles
    if (only === undefined)
      yield `${named(holding)} was lost at ${time(at)} (${holding.lostWhy}), and nothing was wrong`
    else if (troubles.length === 1 && SINGLE.has(only.kind))
      yield `${named(holding)} was lost at ${time(at)} (${holding.lostWhy}), for one ${only.kind}`
  }
}

/** Several keys are lost together: for as long as the longest ttl among them, one of them may have been gone. */
function ttlOf({ holdings }: History, { alone, ttlMs, process, grantedAt }: Holding): number {
  if (alone) return ttlMs
  const parts = holdings.filter((other) => other.process === process && other.grantedAt === grantedAt)
  return Math.max(...parts.map((part) => part.ttlMs))
}

/**
 * An attempt is refused only if the server could not be asked: where it has said where the entry stands, only after
 * half a ttl without another answer; where it has said nothing, only if what was sent has failed or was on its way, or
 * nothing could be sent. And an attempt ends as lost only if a person evicted its entry.
 */
function* needlessRefusal(history: History): Iterable<string> {
  const refused = history.attempts.filter(({ outcome }) => outcome === 'refused' || outcome === 'lost')
  if (refused.length === 0) return
  const byId = callsById(history)
  for (const attempt of refused) {
    const { process, settledAt = 0, error } = attempt
    if (closed(history, process, settledAt)) continue
    const wrong = whatIsWrong(history, attempt, settledAt, byId)
    if (wrong !== undefined) yield `${asked(attempt)}, was refused at ${time(settledAt)}, ${wrong}: ${String(error)}`
  }
}

function closed({ faults }: History, process: number, at: number): boolean {
  return faults.some((fault) => fault.kind === 'close' && fault.process === process && fault.from <= at)
}

/** What does not fit to the refusal of `attempt`, if anything. */
function whatIsWrong(
  history: History,
  { process, keys, id, ttlMs, at, waitMs, outcome }: Attempt,
  settledAt: number,
  byId: ReadonlyMap<string, readonly Call[]>,
): string | undefined {
  const { terms } = history
  const calls = (id === undefined ? [] : (byId.get(id) ?? [])).filter(
    ({ verb, sentAt }) => verb !== 'leave' && sentAt <= settledAt,
  )
  // Several keys, or an entry that expired in line and was followed by another one.
  if (id === undefined || calls.some((call) => call.gone.includes(id)))
    return history.troubled(process, at - terms.ttlMs - terms.callTimeoutMs, settledAt)
      ? undefined
      : 'and nothing was wrong'
  const evicted = history.stays.some((stay) => stay.process === process && keys.includes(stay.key) && stay.condemned)
  if (outcome === 'lost') return evicted ? undefined : 'and no entry of it was evicted'
  // After a stop, what is due by a timer comes before what has arrived meanwhile, in the same instant.
  const told = calls.findLast((call) => toldBy(call, id, settledAt) && call.heardAt !== settledAt)
  if (told !== undefined)
    return settledAt - told.sentAt > ttlMs * OUTAGE_SHARE ? undefined : 'a moment after the server had answered'
  const last = calls.at(-1)
  if (last === undefined) return couldNotSend(history, process, at, settledAt) ? undefined : 'and was not even sent'
  if (last.heardAt !== undefined && last.heardAt <= settledAt) {
    // It failed. A try has only that one; a wait goes on.
    return waitMs === 0 || settledAt - at > Math.min(waitMs * 0.99, ttlMs * OUTAGE_SHARE) - TIMER_MS
      ? undefined
      : 'before its time was over'
  }
  // On its way. It may have taken too long; or the wait was over before an answer could come.
  const onItsWayMs = settledAt - last.sentAt
  // The time-out of a call that had to wait for the subscription began with that wait.
  const begunAt = last.subscribedFirst ? last.sentAt - terms.callTimeoutMs : last.sentAt
  if (onItsWayMs <= 2 * terms.delayMs + TIMER_MS || history.troubled(process, begunAt, settledAt)) return undefined
  return `${onItsWayMs.toFixed(1)} ms after it was sent, and nothing was wrong`
}

/** For how long the server must have been out of reach, at least, before a wait is refused, as a share of the ttl. */
const OUTAGE_SHARE = 0.49
const TIMER_MS = 3

/** Whether nothing could be sent until `settledAt`: no subscription, no running process, or calls on their way. */
function couldNotSend(history: History, process: number, at: number, settledAt: number): boolean {
  if (history.sendsFrom(process) >= at) return true
  const calls = history.calls.filter(({ process: sender, verb }) => sender === process && verb === 'enter')
  const spans = calls.map((call) => ({ from: call.sentAt, to: latestEndAwake(history, call, at) }))
  return timeOutside([...stopsOf(history, process), ...spans], at, settledAt) < TIMER_MS
}

/** A key that the server has promised to keep busy after the release is not given away before. */
function* keptBusy(history: History): Iterable<string> {
  if (history.had('server clock jump', 'server amnesia', 'eviction')) return
  const stays = staysByToken(history)
  for (const holding of history.holdings) {
    const { keptMs, endedAt } = holding
    if (keptMs === undefined || endedAt === undefined) continue
    // The server's clock may run fast.
    const until = endedAt + keptMs * 0.99
    const { goneAt } = stayOf(stays, holding) ?? {}
    if (goneAt !== undefined && goneAt < until)
      yield `${named(holding)} was to keep the key busy until ${time(until)}, and it was free at ${time(goneAt)}`
  }
}
