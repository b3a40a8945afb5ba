/** What has a `maxHold` ends then: not later, not earlier, and without a second holder beside the first. */
import type { Check } from '../checks.ts'
import type { Call, History, Holding } from '../history.ts'
import { aheadMs, ownDeadline } from './calls.ts'
import { runningFrom, stayOf, staysByToken } from './safety.ts'
import { named, time } from './words.ts'

export const maxHold: Readonly<Record<string, Check>> = {
  'held past maxHold': heldTooLong,
  'ended before maxHold': endedTooEarly,
  'maxHold not signalled in time': lateSignal,
  'given away past maxHold': givenAway,
  'renewed past maxHold': renewed,
}

/** Clocks of processes run a little fast or slow, and a timer fires a little late. */
const RATE = 0.01
const TIMER_MS = 3

/** When the hold has to be over, at the latest; Infinity: it has no limit. */
function endsBy({ grantedAt, maxHoldMs }: Holding): number {
  return grantedAt + maxHoldMs * (1 + RATE) + TIMER_MS
}

function limited(history: History): readonly Holding[] {
  return history.holdings.filter(({ maxHoldMs }) => maxHoldMs < Number.POSITIVE_INFINITY)
}

function* heldTooLong(history: History): Iterable<string> {
  for (const holding of limited(history))
    if (holding.believedAt > endsBy(holding))
      yield `${named(holding)} was to end by ${time(endsBy(holding))}, and believes to hold at ${time(holding.believedAt)}`
}

function* endedTooEarly(history: History): Iterable<string> {
  for (const holding of history.holdings) {
    if (holding.lostWhy !== 'maxHold') continue
    const at = holding.lostAt ?? holding.doubtedAt ?? Number.POSITIVE_INFINITY
    const earliest = holding.grantedAt + holding.maxHoldMs * (1 - RATE) - TIMER_MS
    if (at < earliest) yield `${named(holding)} was ended by its maxHold at ${time(at)}; it had until ${time(earliest)}`
  }
}

/** A holder that listens is told at the end, or as soon as its process runs again. */
function* lateSignal(history: History): Iterable<string> {
  for (const holding of limited(history)) {
    if (!holding.listening) continue
    const due = runningFrom(history, holding, endsBy(holding))
    if (due === undefined || due > history.endedAt) continue
    const { endedAt = Number.POSITIVE_INFINITY, lostAt } = holding
    if (endedAt > due && (lostAt === undefined || lostAt > due) && alive(history, holding, due))
      yield `${named(holding)} was to hear of its end by ${time(due)} and did ${lostAt === undefined ? 'not' : `at ${time(lostAt)}`}`
  }
}

/**
 * As long as the holder has not stopped, the line is not left on its behalf before its ttl is over, as its process has
 * to count it. Closing leaves everything at once.
 */
function* givenAway(history: History): Iterable<string> {
  const stays = staysByToken(history)
  for (const holding of limited(history)) {
    const stay = stayOf(stays, holding)
    if (stay?.goneAt === undefined || stay.why !== 'left') continue
    const { goneAt, id } = stay
    if (goneAt >= (holding.endedAt ?? Number.POSITIVE_INFINITY) || !alive(history, holding, goneAt)) continue
    const { ttlMs, process, grantedAt } = holding
    const deadline = ownDeadline(history, requests(history, id), id, ttlMs, goneAt)
    const slackMs = ttlMs * RATE + TIMER_MS + aheadMs(history, process, grantedAt, goneAt)
    if (deadline < Number.POSITIVE_INFINITY && goneAt < deadline - slackMs)
      yield `${named(holding)} left the line at ${time(goneAt)}, while its holder could be working: it has until ${time(deadline)}`
  }
}

/** So that it expires even if its holder never stops. */
function* renewed(history: History): Iterable<string> {
  const stays = staysByToken(history)
  for (const holding of limited(history)) {
    const id = stayOf(stays, holding)?.id
    const by = endsBy(holding)
    if (id === undefined || holding.keeping) continue
    for (const { sentAt } of requests(history, id))
      if (sentAt > by && !history.stopped(holding.process, holding.grantedAt, sentAt))
        yield `${named(holding)} was to end by ${time(by)}, and was renewed at ${time(sentAt)}`
  }
}

function requests(history: History, id: string): readonly Call[] {
  return history.calls.filter(({ verb, items }) => verb !== 'leave' && items.some((item) => item.id === id))
}

/** Its process was neither dead nor closing its locks by then. */
function alive(history: History, { process }: Holding, at: number): boolean {
  const ended = history.faults.find((fault) => fault.process === process && /^(?:crash|close)$/.test(fault.kind))
  return ended === undefined || ended.from > at
}
