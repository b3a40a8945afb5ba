/**
 * No program believes that it holds when it does not: the checks that the locks are for.
 *
 * Two faults excuse a belief, because no lock service with leases survives them without guards: a server that forgets,
 * and one whose clock is set. And an eviction that frees the line at once is meant to. Even then, no belief outlives
 * its ttl; and tokens are never excused.
 */
import type { Check } from '../checks.ts'
import { type History, type Holding, STOPS, type Stay } from '../history.ts'
import { named, time } from './words.ts'

export const safety: Readonly<Record<string, Check>> = {
  'overlap without a guard': unguardedOverlap,
  'belief without truth': beliefWithoutTruth,
  'loss not signalled in time': lateSignal,
  'token order': tokenOrder,
  'another token': anotherToken,
}

/** The stay that a token stands for. */
export function staysByToken(history: History): ReadonlyMap<string, Stay> {
  return new Map(history.stays.map((stay) => [`${stay.key} ${stay.token}`, stay]))
}

export function stayOf(
  stays: ReadonlyMap<string, Stay>,
  { key, token }: { readonly key: string; readonly token: bigint },
): Stay | undefined {
  return stays.get(`${key} ${token}`)
}

/** Whether the server broke its word to this stay, knowingly. */
function excused(stay: Stay | undefined): boolean {
  return stay?.why === 'forgotten' || stay?.why === 'evicted'
}

/** At no time do programs believe to hold more than the line allows: weights and limits together. */
function* unguardedOverlap(history: History): Iterable<string> {
  if (history.had('server clock jump')) return
  const stays = staysByToken(history)
  const holdings = history.holdings.filter((holding) => !excused(stayOf(stays, holding)))
  for (const holding of holdings) {
    const at = holding.grantedAt
    const together = holdings.filter(
      (other) => other.key === holding.key && other.grantedAt <= at && other.believedAt >= at && !ended(other, at),
    )
    const weight = together.reduce((sum, other) => sum + other.weight, 0)
    const limit = Math.min(...together.map((other) => other.limit))
    if (weight > limit)
      yield `at ${time(at)}, ${together.map(named).join(' and ')} all believe to hold: ${weight} of ${limit}`
  }
}

/**
 * A program that believes to hold does hold, in the server's truth; is not returned a lease that is over; and never
 * believes again after having doubted.
 */
function* beliefWithoutTruth(history: History): Iterable<string> {
  const stays = staysByToken(history)
  const jumped = history.had('server clock jump')
  for (const holding of history.holdings) {
    const { grantedAt, believedAt, doubtedAt = Number.POSITIVE_INFINITY, lostAt = Number.POSITIVE_INFINITY } = holding
    const stay = stayOf(stays, holding)
    if (stay?.grantedAt === undefined || stay.grantedAt > grantedAt) {
      // A server whose clock was set may grant and expire in one breath; no witness sees that.
      if (!jumped)
        yield `${named(holding)} was returned at ${time(grantedAt)}, but the server never let it hold until then`
    } else if (
      stay.goneAt !== undefined &&
      believedAt >= stay.goneAt + (jumped || excused(stay) ? holding.ttlMs * 1.01 : 0)
    ) {
      yield `${named(holding)} believes to hold at ${time(believedAt)}, and the server let it go at ${time(stay.goneAt)} (${stay.why})`
    }
    if (doubtedAt === grantedAt && holding.lostWhy !== 'closed')
      yield `${named(holding)} was over when it was returned, at ${time(grantedAt)}`
    const over = Math.min(doubtedAt, lostAt)
    if (believedAt > over) yield `${named(holding)} was lost at ${time(over)} and held again at ${time(believedAt)}`
  }
}

/**
 * A holder that listens to the signal is told before the server lets the next waiter in; or as soon as its process runs
 * again.
 */
function* lateSignal(history: History): Iterable<string> {
  if (history.had('server clock jump')) return
  const stays = staysByToken(history)
  for (const holding of history.holdings) {
    const stay = stayOf(stays, holding)
    if (!holding.listening || stay?.goneAt === undefined || stay.why !== 'expired' || ended(holding, stay.goneAt))
      continue
    const due = runningFrom(history, holding, stay.goneAt)
    if (due !== undefined && !ended(holding, due) && (holding.lostAt === undefined || holding.lostAt > due)) {
      yield `${named(holding)} expired at ${time(stay.goneAt)}; it had to hear of it by ${time(due)} ` +
        `and did ${holding.lostAt === undefined ? 'not' : `at ${time(holding.lostAt)}`}`
    }
  }
}

/**
 * From when on its process runs, at or after `at`. Undefined: timers cannot be relied on, because the machine was
 * asleep during this lease.
 */
export function runningFrom(history: History, holding: Holding, at: number): number | undefined {
  const stops = history.faults.filter(({ kind, process }) => process === holding.process && STOPS.has(kind))
  if (stops.some(({ kind, from, to }) => kind === 'suspension' && from < at && to > holding.grantedAt)) return undefined
  let running = at
  // One stop may begin inside another. What waited for the end happens right after, one thing after the other.
  for (const { from, to } of stops.sort((a, b) => a.from - b.from))
    if (from <= running && to >= running) running = to + 0.01
  return running
}

/** Every token of a key is higher than all before it, in the order of entering and in the order of holding. */
function* tokenOrder(history: History): Iterable<string> {
  const entered = new Map<string, Stay>()
  const held = new Map<string, Stay>()
  for (const stay of history.stays) {
    const before = entered.get(stay.key)
    if (before !== undefined && stay.token <= before.token)
      yield `'${stay.key}': token ${stay.token} came after ${before.token}`
    entered.set(stay.key, stay)
  }
  for (const stay of history.stays
    .filter(({ grantedAt }) => grantedAt !== undefined)
    .sort((a, b) => (a.grantedAt ?? 0) - (b.grantedAt ?? 0))) {
    const before = held.get(stay.key)
    if (before !== undefined && stay.token <= before.token)
      yield `'${stay.key}': token ${stay.token} was granted after ${before.token}`
    held.set(stay.key, stay)
  }
}

/**
 * A holder that renews, and is told that its entry holds by another token, has been away: its own token is stale, and
 * it knows.
 */
function* anotherToken(history: History): Iterable<string> {
  for (const { at, process, key, token } of history.replacements) {
    const holding = history.holdings.find((one) => one.process === process && one.key === key && one.token === token)
    if (holding !== undefined && holding.grantedAt < at && holding.believedAt > at) {
      yield `${named(holding)} was told at ${time(at)} that another token holds, and believes to hold at ${time(holding.believedAt)}`
    }
  }
}

function ended({ endedAt }: Holding, at: number): boolean {
  return endedAt !== undefined && endedAt <= at
}
