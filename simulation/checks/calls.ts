/**
 * When the calls of the core were over, from its own point of view. It is told of an answer, or of a failure; or it
 * gives up, at a deadline of its own that only a signal shows. So there are two bounds: before the one, the call is on
 * its way for certain; after the other, it certainly is not.
 */
import { type Call, type History, STOPS } from '../history.ts'

/** Timers of Node fire a fraction early, or a little late; and clocks run differently. */
const RATE = 0.01
const TIMER_MS = 3
/** By how much the clock of a process is ahead after a sleep, at most: it counts rather too much than too little. */
const SLEEP_MS = 25

/** A renewal that is urgent is given up early: after this share of the ttl, at the earliest. */
const URGENT_SHARE = 1 / 50

/** Until then, at least, the call is on its way. */
export function earliestEnd(history: History, call: Call): number {
  const { heardAt = Number.POSITIVE_INFINITY, givenUpAt, sentAt } = call
  if (givenUpAt !== undefined) return Math.min(heardAt, givenUpAt)
  // The core counts from a moment that is not seen.
  if (call.subscribedFirst) return sentAt
  const end = sentAt + timeoutMs(history, call, URGENT_SHARE) * (1 - RATE) - TIMER_MS
  return Math.min(heardAt, end - aheadMs(history, call.process, sentAt, end))
}

/** From then on, at the latest, the core does not wait for it any more, if its process runs. */
function latestEnd(history: History, call: Call): number {
  const { heardAt = Number.POSITIVE_INFINITY, givenUpAt = Number.POSITIVE_INFINITY, sentAt } = call
  return Math.min(heardAt, givenUpAt, sentAt + timeoutMs(history, call, 1 / 3) * (1 + RATE) + TIMER_MS)
}

/**
 * The same for what has been waiting for it since `since`, and learns of it by a timer alone: none runs while the
 * machine sleeps. What is asked after the sleep makes the core look.
 */
export function latestEndAwake(history: History, call: Call, since: number): number {
  const end = latestEnd(history, call)
  if (end === call.heardAt || end === call.givenUpAt) return end
  let sleptMs = 0
  // A timer that one sleep has made late may be met by the next one.
  for (let before = -1; sleptMs > before; ) {
    before = sleptMs
    const sleeps = sleepsOf(history, call.process, Math.max(call.sentAt, since), end + sleptMs)
    sleptMs = sleeps.reduce((sum, { from, to }) => sum + to - from, 0)
  }
  return Math.min(end + sleptMs, call.heardAt ?? Number.POSITIVE_INFINITY)
}

function timeoutMs({ terms }: History, { verb, items }: Call, renewalShare: number): number {
  const ttls = items.map(({ ttlMs = 0 }) => ttlMs)
  if (verb === 'enter') return Math.min(terms.callTimeoutMs, Math.max(...ttls))
  return verb === 'renew' ? Math.min(terms.callTimeoutMs, Math.min(...ttls) * renewalShare) : terms.callTimeoutMs
}

/** The calls about each id, in the order of their sends. */
export function callsById(history: History): ReadonlyMap<string, readonly Call[]> {
  const byId = new Map<string, Call[]>()
  for (const call of history.calls) {
    for (const { id } of call.items) {
      const calls = byId.get(id)
      if (calls === undefined) byId.set(id, [call])
      else calls.push(call)
    }
  }
  return byId
}

/** Whether the process was told, by `at`, where the entry stands. */
export function toldBy({ items, answers, heardAt = Number.POSITIVE_INFINITY }: Call, id: string, at: number): boolean {
  if (answers === undefined || heardAt > at) return false
  const answer = answers[items.findIndex((item) => item.id === id)]
  return answer !== undefined && (typeof answer === 'boolean' || answer.state !== 'failed')
}

function toldWaiting({ items, answers }: Call, id: string): boolean {
  const answer = answers?.[items.findIndex((item) => item.id === id)]
  return typeof answer === 'object' && answer.state === 'waiting'
}

/** The moment from which the core counts the ttl of an entry, if this call is answered; or an earlier one. */
export function countedFrom({ askedAt }: History, { sentAt, subscribedFirst }: Call, id: string): number {
  return subscribedFirst ? (askedAt.get(id) ?? sentAt) : sentAt
}

/** What clocks and timers may take from a deadline: a share of the ttl, and some time. */
const DEADLINE_SHARE = 0.03
const DEADLINE_MS = 5

/**
 * Until when the core believes in an entry of which it has heard by `at`, by its own reckoning. What is answered after
 * the deadline is too late, and right before it may be. That it waits is no news for one that is known to hold since
 * `heldFrom`. Infinity: it has heard nothing.
 */
export function ownDeadline(
  history: History,
  asks: readonly Call[],
  id: string,
  ttlMs: number,
  at: number,
  heldFrom: number = Number.POSITIVE_INFINITY,
): number {
  let deadline = Number.POSITIVE_INFINITY
  for (const call of asks) {
    if (!toldBy(call, id, Math.min(at, deadline - ttlMs * DEADLINE_SHARE - DEADLINE_MS))) continue
    if (toldWaiting(call, id) && (call.heardAt ?? 0) > heldFrom) continue
    deadline = countedFrom(history, call, id) + ttlMs
  }
  return deadline
}

/** By how much more than the time between `from` and `to` the clock of the process may have counted, for its sleeps. */
export function aheadMs(history: History, process: number, from: number, to: number): number {
  return sleepsOf(history, process, from, to).length * SLEEP_MS
}

function sleepsOf({ faults }: History, process: number, from: number, to: number): readonly Span[] {
  return faults.filter(
    (fault) => fault.kind === 'suspension' && fault.process === process && fault.from < to && fault.to > from,
  )
}

export interface Span {
  readonly from: number
  readonly to: number
}

/** When the process did not run. */
export function stopsOf({ faults }: History, process: number): readonly Span[] {
  return faults.filter((fault) => fault.process === process && STOPS.has(fault.kind))
}

/** How much of the time from `from` to `to` is in none of `spans`. */
export function timeOutside(spans: readonly Span[], from: number, to: number): number {
  let outsideMs = 0
  let at = from
  for (const span of spans.toSorted((a, b) => a.from - b.from)) {
    if (span.to <= at) continue
    if (span.from >= to) break
    outsideMs += Math.max(0, span.from - at)
    at = span.to
  }
  return outsideMs + Math.max(0, to - at)
}
