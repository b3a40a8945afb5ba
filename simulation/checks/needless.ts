/** Nothing is lost or refused without a cause. */
import type { Check } from '../checks.ts'
import type { FaultKind, History } from '../history.ts'
import { named, stayOf, staysByToken } from './safety.ts'

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
  const { terms } = history
  for (const holding of history.holdings) {
    const at = holding.lostAt ?? holding.doubtedAt
    if (at === undefined || (holding.endedAt ?? Number.POSITIVE_INFINITY) < at) continue
    if (holding.lostWhy === 'closed' && history.troubled(holding.process, holding.grantedAt, at)) continue
    // A holder that does not listen learns of it late: it happened some time after the last look.
    const since = (holding.lostAt ?? holding.believedAt) - terms.ttlMs - terms.callTimeoutMs
    const troubles = [...history.troubles(holding.process, since, at)]
    const [only] = troubles
    if (only === undefined)
      yield `${named(holding)} was lost at ${at.toFixed(3)} (${holding.lostWhy}), and nothing was wrong`
    else if (troubles.length === 1 && SINGLE.has(only.kind))
      yield `${named(holding)} was lost at ${at.toFixed(3)} (${holding.lostWhy}), for one ${only.kind}`
  }
}

/**
 * An attempt is refused only if its process could not reach the server for as long as its ttl, and a try only if its
 * one call failed.
 */
function* needlessRefusal(history: History): Iterable<string> {
  const { terms } = history
  for (const { process, what, keys, at, waitMs, settledAt, outcome, error } of history.attempts) {
    if (settledAt === undefined || (outcome !== 'refused' && outcome !== 'lost')) continue
    // With less patience than an answer takes, no more can be said than that none has come.
    if (waitMs > 0 && waitMs < 12 * terms.delayMs + 10) continue
    const since = at - terms.ttlMs - terms.callTimeoutMs
    if (history.troubled(process, since, settledAt)) continue
    yield `p${process}: ${what} of ${keys.join(' + ')}, asked at ${at.toFixed(3)}, was refused at ${settledAt.toFixed(3)}, and nothing was wrong: ${String(error)}`
  }
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
      yield `${named(holding)} was to keep the key busy until ${until.toFixed(3)}, and it was free at ${goneAt.toFixed(3)}`
  }
}
