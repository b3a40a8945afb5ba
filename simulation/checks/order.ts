/** First come, first served. */
import type { Check } from '../checks.ts'
import type { History, Stay } from '../history.ts'
import { time } from './words.ts'

export const order: Readonly<Record<string, Check>> = {
  'first come first served': firstComeFirstServed,
  'asked in order': askedInOrder,
}

/** No entry is let hold while an entry that came earlier waits. */
function* firstComeFirstServed(history: History): Iterable<string> {
  const lines = new Map<string, Stay[]>()
  for (const stay of history.stays) {
    const line = lines.get(stay.key) ?? []
    lines.set(stay.key, line)
    for (const earlier of line) {
      const { grantedAt } = stay
      if (grantedAt === undefined || (earlier.goneAt ?? Number.POSITIVE_INFINITY) <= grantedAt) continue
      if (earlier.grantedAt === undefined || earlier.grantedAt > grantedAt) {
        yield `'${stay.key}': ${stay.id} held at ${time(grantedAt)}, and ${earlier.id}, who came before it, still waited`
      }
    }
    line.push(stay)
  }
}

/**
 * What one process asks of one key goes out in the order of its askings. Only what was asked before the subscription to
 * the news stood may have failed before it went out.
 */
function* askedInOrder(history: History): Iterable<string> {
  const sent = new Set<string>()
  const last = new Map<string, number>()
  for (const { verb, items, process, sentAt } of history.calls) {
    if (verb !== 'enter') continue
    for (const { key, id } of items) {
      if (sent.has(id)) continue
      sent.add(id)
      const number = Number(id.slice(id.indexOf('.') + 1))
      const line = `${process} ${key}`
      if (number < (last.get(line) ?? 0) && (history.askedAt.get(id) ?? 0) > history.sendsFrom(process)) {
        yield `${id} asked for '${key}' before another of its process, and was sent after it, at ${time(sentAt)}`
      }
      last.set(line, number)
    }
  }
}
