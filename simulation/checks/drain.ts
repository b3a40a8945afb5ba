/** A drain grants nothing new, and leaves holders in peace for as long as it has said. */
import type { Check } from '../checks.ts'
import type { History } from '../history.ts'
import { named } from './safety.ts'

export const drain: Readonly<Record<string, Check>> = {
  'granted while draining': granted,
  'ended before the grace was over': disturbed,
}

/** Clocks of processes run a little fast or slow, and a timer fires a little early. */
const RATE = 0.01
const TIMER_MS = 3

function* granted({ drains, holdings }: History): Iterable<string> {
  for (const { process, at } of drains)
    for (const holding of holdings)
      if (holding.process === process && holding.grantedAt > at)
        yield `${named(holding)} was granted at ${holding.grantedAt.toFixed(3)}, though its process drains since ${at.toFixed(3)}`
}

function* disturbed({ drains, holdings }: History): Iterable<string> {
  for (const { process, at, graceMs } of drains) {
    const until = at + graceMs * (1 - RATE) - TIMER_MS
    for (const holding of holdings) {
      if (holding.process !== process || holding.lostWhy !== 'closed') continue
      const lostAt = holding.lostAt ?? holding.doubtedAt ?? Number.POSITIVE_INFINITY
      if (lostAt < until)
        yield `${named(holding)} was told to end at ${lostAt.toFixed(3)}; its process had until ${until.toFixed(3)} to drain`
    }
  }
}
