/**
 * A drain grants nothing new, and leaves holders in peace for as long as it has said. Those that it tells to stop have
 * a moment for that, and may let their key stay busy.
 */
import type { Check } from '../checks.ts'
import type { Call, History, Holding } from '../history.ts'
import { callsById } from './calls.ts'
import { stayOf, staysByToken } from './safety.ts'
import { named, time } from './words.ts'

export const drain: Readonly<Record<string, Check>> = {
  'granted while draining': granted,
  'ended before the grace was over': disturbed,
  'given away in the last moment': givenAway,
  'not kept busy at the end of a drain': notKept,
}

/** Clocks of processes run a little fast or slow, and a timer fires a little early. */
const RATE = 0.01
const TIMER_MS = 3
/** How long those that are told have to tidy up. */
const MOMENT_MS = 500

function* granted({ drains, holdings }: History): Iterable<string> {
  for (const { process, at } of drains)
    for (const holding of holdings)
      if (holding.process === process && holding.grantedAt > at)
        yield `${named(holding)} was granted at ${time(holding.grantedAt)}, though its process drains since ${time(at)}`
}

function* disturbed({ drains, holdings }: History): Iterable<string> {
  for (const { process, at, graceMs } of drains) {
    const until = at + graceMs * (1 - RATE) - TIMER_MS
    for (const holding of holdings) {
      if (holding.process !== process || holding.lostWhy !== 'closed') continue
      const lostAt = holding.lostAt ?? holding.doubtedAt ?? Number.POSITIVE_INFINITY
      if (lostAt < until)
        yield `${named(holding)} was told to end at ${time(lostAt)}; its process had until ${time(until)} to drain`
    }
  }
}

/** What a drain has told to stop, and that hears so at once, with the calls about its entry. */
function* told(history: History): Iterable<{ holding: Holding; toldAt: number; id: string; calls: readonly Call[] }> {
  if (history.drains.length === 0) return
  const byId = callsById(history)
  const stays = staysByToken(history)
  for (const { process, at } of history.drains) {
    for (const holding of history.holdings) {
      const { lostAt: toldAt, lostWhy } = holding
      if (holding.process !== process || lostWhy !== 'closed' || toldAt === undefined || toldAt < at) continue
      const { id } = stayOf(stays, holding) ?? {}
      if (id !== undefined) yield { holding, toldAt, id, calls: byId.get(id) ?? [] }
    }
  }
}

/** Work that is told tidies up before its lock is given back: for half a second, or until its ttl is over. */
function* givenAway(history: History): Iterable<string> {
  for (const { holding, toldAt, calls } of told(history)) {
    const { endedAt = Number.POSITIVE_INFINITY, ttlMs } = holding
    const asks = calls.filter(({ verb, sentAt }) => verb !== 'leave' && sentAt <= toldAt)
    const overAt = Math.max(...asks.map(({ sentAt }) => sentAt)) + ttlMs
    const momentMs = Math.min(overAt - toldAt - ttlMs * RATE, MOMENT_MS * (1 - RATE))
    const until = Math.min(endedAt, toldAt + momentMs - TIMER_MS)
    const leave = calls.find(({ verb, sentAt }) => verb === 'leave' && sentAt >= toldAt && sentAt < until)
    if (leave !== undefined)
      yield `${named(holding)} was told to end at ${time(toldAt)}, and given back at ${time(leave.sentAt)}, before it had`
  }
}

/** A holder that is told, and gives its key back for later, is heard: the server is asked to let it stand. */
function* notKept(history: History): Iterable<string> {
  for (const { holding, toldAt, id, calls } of told(history)) {
    const { process, keeping, endedAt, ttlMs } = holding
    if (!keeping || endedAt !== toldAt) continue
    const { callTimeoutMs } = history.terms
    const troubles = [...history.troubles(process, toldAt - ttlMs - callTimeoutMs, toldAt + callTimeoutMs)]
    if (troubles.some(({ kind }) => kind !== 'close')) continue
    const asked = calls.some(({ items }) => items.some((item) => item.id === id && item.outlives === true))
    if (!asked) yield `${named(holding)} was to keep the key busy after ${time(toldAt)}, and no server was asked to`
  }
}
