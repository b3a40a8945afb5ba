/** Nothing is left in a line to expire, as long as its process can do anything about it. */
import type { Check } from '../checks.ts'
import type { Call, History, Holding, Stay } from '../history.ts'
import {
  aheadMs,
  callsById,
  countedFrom,
  latestEndAwake,
  ownDeadline,
  type Span,
  stopsOf,
  timeOutside,
  toldBy,
} from './calls.ts'
import { stayOf, staysByToken } from './safety.ts'
import { time } from './words.ts'

export const expiry: Readonly<Record<string, Check>> = {
  'left to expire': leftToExpire,
  'evicted and still there': evictedAndThere,
}

/** How long after a call that failed the next one goes out, at most, as a share of the ttl. */
const RETRY_SHARE = 0.15
/** The same after one that was answered: the beat of renewals, and of leaves that are repeated to be sure. */
const BEAT_SHARE = 1 / 3
/** What clocks and timers may add to that. */
const SLACK_SHARE = 0.03
const SLACK_MS = 5
/** A call that takes longer does not hold up what is asked about other keys. */
const SLOW_MS = 50
/** How many calls of one verb may be on their way. */
const CALLS_IN_FLIGHT = 4

/**
 * A living process renews what it wants, and takes out of the line what it does not, also if it never learned whether
 * it got in; and it goes on trying, whatever happens to its calls, until the entry has expired by its own reckoning.
 * So an entry may expire, but not while its process had nothing on its way and was free to send something.
 *
 * Nothing can be asked of a process that is dead or closed, nor for what was brought in by a duplicate or came in so
 * late that it was not expected any more. What is to expire, may: what was evicted, and what its holder let stand.
 */
function* leftToExpire(history: History): Iterable<string> {
  const expired = history.stays.filter(
    ({ why, echo, late, condemned }) => why === 'expired' && !echo && !late && !condemned,
  )
  if (expired.length === 0) return
  const byId = callsById(history)
  const stays = staysByToken(history)
  const kept = new Set(history.holdings.filter(mayExpire).map((holding) => stayOf(stays, holding)))
  for (const stay of expired) {
    const { key, id, process, goneAt = 0 } = stay
    if (kept.has(stay) || endedBefore(history, process, goneAt)) continue
    const calls = (byId.get(id) ?? []).filter(({ sentAt }) => sentAt <= goneAt)
    if (isLastStand(history, calls, stay)) continue
    const last = calls.at(-1)
    if (last === undefined) continue
    const ttlMs = calls[0]?.items.find((item) => item.id === id)?.ttlMs ?? 0
    const until = triedUntil(history, stay, calls, ttlMs)
    const from = calls.reduce((latest, call) => Math.max(latest, latestEndAwake(history, call, 0)), 0)
    // News of its grant makes the pause after a failure begin anew, when they come.
    const pauses = Math.max(stay.grantedAt ?? 0, holdingOf(history, stay)?.grantedAt ?? 0) > last.sentAt ? 2 : 1
    const share = toldBy(last, id, until) ? BEAT_SHARE : pauses * RETRY_SHARE
    const slackMs = SLACK_MS + aheadMs(history, process, stay.enteredAt, goneAt)
    const boundMs = ttlMs * (share + SLACK_SHARE) + history.terms.delayMs + slackMs
    const stops = stopsOf(history, process)
    if (timeOutside(stops, from, until) <= boundMs) continue
    if (timeOutside([...stops, ...heldUp(history, stay)], from, until) > boundMs)
      yield `'${key}': ${id} entered at ${time(stay.enteredAt)} and was left to expire at ${time(goneAt)}; ` +
        `nothing was tried since ${time(from)}`
  }
}

/**
 * What was evicted leaves when its holder has stopped. One that was granted, and evicted before its process has heard
 * of the grant, has no holder to stop: its process leaves when it is told, as soon as it is free to send something, and
 * not only when the ttl is over.
 */
function* evictedAndThere(history: History): Iterable<string> {
  const expired = history.stays.filter((stay) => stay.why === 'expired' && stay.condemned && !stay.echo && !stay.late)
  if (expired.length === 0) return
  const byId = callsById(history)
  for (const stay of expired) {
    const { key, id, process, goneAt = 0 } = stay
    if (endedBefore(history, process, goneAt) || holdingOf(history, stay) !== undefined) continue
    const calls = byId.get(id) ?? []
    const told = calls.find((call) => call.gone.includes(id) && call.goneAt < goneAt)
    // One that is known to hold, and that no program has, is a part of several: the others may still be asked for.
    if (told === undefined || calls.some((call) => toldHeld(call, id, told.goneAt))) continue
    if (calls.some(({ verb, sentAt }) => verb === 'leave' && sentAt <= goneAt)) continue
    const busy = [...stopsOf(history, process), ...heldUp(history, stay)]
    if (timeOutside(busy, told.goneAt, goneAt) > SLACK_MS + aheadMs(history, process, told.goneAt, goneAt))
      yield `'${key}': ${id} was evicted, which its process knew at ${time(told.goneAt)}, and stood in the line until ${time(goneAt)}`
  }
}

/** Whether the process was told, by `at`, that the entry holds. */
function toldHeld({ items, answers, heardAt = Number.POSITIVE_INFINITY }: Call, id: string, at: number): boolean {
  const answer = heardAt <= at ? answers?.[items.findIndex((item) => item.id === id)] : undefined
  return typeof answer === 'object' && answer.state === 'held'
}

/** Its holder let it stand, or was told by its `maxHold` to stop: if it does not, expiry is what ends it. */
function mayExpire({ keeping, maxHoldMs }: Holding): boolean {
  return keeping || maxHoldMs < Number.POSITIVE_INFINITY
}

function holdingOf({ holdings }: History, { key, token }: Stay): Holding | undefined {
  return holdings.find((one) => one.key === key && one.token === token)
}

/**
 * Its process had a lease by an earlier stay of the same id, which the server let go, and was told so: the answer to a
 * call has the token of this stay. The holder may still be at work, and this stay keeps others out until it ends.
 */
function isLastStand(history: History, calls: readonly Call[], { key, id, token, goneAt = 0 }: Stay): boolean {
  const isTold = calls.some(({ items, answers, heardAt = Number.POSITIVE_INFINITY }) => {
    const answer = answers?.[items.findIndex((item) => item.id === id)]
    return heardAt <= goneAt && typeof answer === 'object' && answer.state === 'held' && answer.token === token
  })
  if (!isTold) return false
  const earlier = new Set(history.stays.filter((one) => one.id === id && one.token < token).map((one) => one.token))
  return history.holdings.some(
    (one) => one.key === key && earlier.has(one.token) && (one.endedAt ?? Number.POSITIVE_INFINITY) >= goneAt,
  )
}

function endedBefore({ faults }: History, process: number, at: number): boolean {
  return faults.some((fault) => fault.process === process && ENDS.has(fault.kind) && fault.from <= at)
}

const ENDS: ReadonlySet<string> = new Set(['crash', 'close'])

/**
 * Until when its process has to try: a ttl after the last request that could have made the entry live on, or after the
 * first leave. A holder that has not ended when its own deadline comes tries no more.
 */
function triedUntil(history: History, stay: Stay, calls: readonly Call[], ttlMs: number): number {
  const { goneAt = 0, id } = stay
  const asks = calls.filter(({ verb }) => verb !== 'leave')
  const leave = calls.find(({ verb }) => verb === 'leave')
  const until = Math.min(
    goneAt,
    Math.max(...asks.map((call) => countedFrom(history, call, id)), leave?.sentAt ?? 0) + ttlMs,
  )
  const holding = holdingOf(history, stay)
  // One that no program has yet may be a part of several.
  if (holding === undefined && stay.grantedAt === undefined) return until
  const deadline = ownDeadline(history, asks, id, ttlMs, goneAt, holding?.grantedAt)
  return (holding?.endedAt ?? Number.POSITIVE_INFINITY) > deadline - ttlMs * 0.05 ? Math.min(until, deadline) : until
}

/**
 * When the process had calls on their way that what is to be sent for this entry has to wait for: those of the same
 * key, those that are not slow yet, and as many as there may be.
 */
function* heldUp(history: History, { process, key, enteredAt }: Stay): Iterable<Span> {
  const slow: Record<Call['verb'], number[]> = { enter: [], renew: [], leave: [] }
  for (const call of history.calls) {
    if (call.process !== process) continue
    const { sentAt: from, verb, items } = call
    const to = latestEndAwake(history, call, enteredAt)
    yield { from, to: items.some((item) => item.key === key) ? to : Math.min(to, from + SLOW_MS) }
    const ends = slow[verb].filter((end) => end > from)
    slow[verb] = [...ends, to].sort((a, b) => a - b)
    const places = slow[verb].length - CALLS_IN_FLIGHT
    if (places >= 0) yield { from, to: slow[verb][places] as number }
  }
}
