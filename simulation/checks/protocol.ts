/** What the core may send, and when. Breaking one of these does no harm at once; each opens a way to. */
import type { Check } from '../checks.ts'
import type { Call, History } from '../history.ts'
import { earliestEnd } from './calls.ts'
import { time } from './words.ts'

export const protocol: Readonly<Record<string, Check>> = {
  'nothing overtakes an enter': nothingOvertakesAnEnter,
  'one call for each key': oneCallForEachKey,
  'nothing after leaving': nothingAfterLeaving,
  'gone is final': goneIsFinal,
  'a gap is asked about': gapIsAskedAbout,
  'unconfirmed grants are not believed': unconfirmedAreNotBelieved,
}

/** While an enter is on its way, neither answered nor given up, nothing else is sent for its entry. */
function* nothingOvertakesAnEnter(history: History): Iterable<string> {
  const enters = new Map<string, Call>()
  for (const call of history.calls) {
    for (const { id } of call.items) {
      const enter = enters.get(id)
      if (enter !== undefined && earliestEnd(history, enter) > call.sentAt) {
        yield `${call.verb} of ${id} was sent at ${time(call.sentAt)}, while the enter of ${time(enter.sentAt)} was on its way`
      }
      if (call.verb === 'enter') enters.set(id, call)
    }
  }
}

/**
 * While a call is on its way, no other one of its verb goes out for the same key: it could arrive first, and change the
 * order. What is to stand without its process is renewed by itself, and so is a lease with a shorter ttl than all that
 * is renewed by the call on its way.
 */
function* oneCallForEachKey(history: History): Iterable<string> {
  const last = new Map<string, Call>()
  for (const call of history.calls) {
    const { process, verb, items, sentAt } = call
    if (items.some(({ outlives }) => outlives === true)) continue
    for (const key of new Set(items.map((item) => item.key))) {
      const way = `${process} ${verb} ${key}`
      const before = last.get(way)
      if (before !== undefined && earliestEnd(history, before) > sentAt && !isShorter(call, key, before))
        yield `p${process}: ${verb} for '${key}' was sent at ${time(sentAt)}, while that of ${time(before.sentAt)} was on its way`
      last.set(way, call)
    }
  }
}

/** Whether all that `call` renews for `key` lives shorter than anything in the call before it. */
function isShorter({ verb, items }: Call, key: string, before: Call): boolean {
  if (verb !== 'renew') return false
  const ttls = (some: Call['items']): number[] => some.map(({ ttlMs = 0 }) => ttlMs)
  return Math.max(...ttls(items.filter((item) => item.key === key))) < Math.min(...ttls(before.items))
}

/** Once a leave is sent, the entry is neither renewed nor entered again. */
function* nothingAfterLeaving(history: History): Iterable<string> {
  const leaves = new Map<string, Call>()
  for (const call of history.calls) {
    for (const { id } of call.items) {
      const leave = leaves.get(id)
      if (call.verb === 'leave') leaves.set(id, call)
      else if (leave !== undefined)
        yield `${call.verb} of ${id} was sent at ${time(call.sentAt)}, after the leave of ${time(leave.sentAt)}`
    }
  }
}

/** An id that the engine said is gone is never entered again: late calls may still be about the old one. */
function* goneIsFinal(history: History): Iterable<string> {
  const goneAt = new Map<string, number>()
  for (const call of history.calls)
    for (const id of call.gone) goneAt.set(id, Math.min(goneAt.get(id) ?? Number.POSITIVE_INFINITY, call.goneAt))
  for (const { verb, items, sentAt } of history.calls) {
    if (verb !== 'enter') continue
    for (const { id } of items) {
      const at = goneAt.get(id)
      if (at !== undefined && sentAt > at) yield `${id} was gone at ${time(at)}, and entered again at ${time(sentAt)}`
    }
  }
}

/** After a gap in the news, every waiter is asked about at once: its grant may have been in the gap. */
function* gapIsAskedAbout(history: History): Iterable<string> {
  for (const { at, process, waiting } of history.gaps) {
    const by = at + (2 + 2 * waiting.length) * history.terms.delayMs + 1
    if (history.troubled(process, at, by)) continue
    for (const id of waiting) {
      const asked = history.calls.some(
        ({ sentAt, items }) => sentAt >= at && sentAt <= by && items.some((item) => item.id === id),
      )
      if (!asked) yield `p${process} heard of a gap at ${time(at)}, and did not ask about ${id}`
    }
  }
}

/** What may be about an earlier stay of the same id is a reason to ask, and no more. */
function* unconfirmedAreNotBelieved(history: History): Iterable<string> {
  for (const { at, process, key, token, why } of history.unconfirmedGrants) {
    const holding = history.holdings.find((one) => one.process === process && one.key === key && one.token === token)
    if (holding?.grantedAt === at)
      yield `p${process} believed at ${time(at)} that it holds '${key}' (token ${token}): ${why}`
  }
}
