/** What a user sees of it all: the numbers that the locks protect. */
import type { Check } from '../checks.ts'
import type { History, Touch } from '../history.ts'
import { stayOf, staysByToken } from './safety.ts'

export const registers: Readonly<Record<string, Check>> = {
  'fenced exclusion': fencedExclusion,
  'lost update, fenced': lostFencedUpdate,
  'lost update, unfenced': lostPlainUpdate,
  'rightful holder refused': rightfulHolderRefused,
}

/**
 * The fenced register never accepts somebody between the read and the write of somebody else, but for a late look of
 * whoever came before: that one will not write any more.
 */
function* fencedExclusion(history: History): Iterable<string> {
  const reader = new Map<string, Touch>()
  const others = new Map<string, Touch>()
  for (const touch of history.touches) {
    if (!touch.fenced || !touch.accepted) continue
    const read = reader.get(touch.key)
    if (touch.kind === 'read') {
      if (read !== undefined && touch.token < read.token) continue
      if (read !== undefined && read.token !== touch.token) others.set(`${touch.key} ${read.token}`, touch)
      reader.set(touch.key, touch)
    } else {
      const between = others.get(`${touch.key} ${touch.token}`)
      if (between !== undefined)
        yield `'${touch.key}': token ${between.token} was let in at ${between.at.toFixed(3)}, before the write of token ${touch.token}`
    }
  }
}

function* lostFencedUpdate(history: History): Iterable<string> {
  yield* lostUpdates(history, true)
}

/** Without a fence, nothing is lost either, as long as the server keeps its word. */
function* lostPlainUpdate(history: History): Iterable<string> {
  if (history.had('server clock jump', 'server amnesia', 'eviction')) return
  yield* lostUpdates(history, false)
}

/** Every write that was accepted is one higher than the one before. */
function* lostUpdates(history: History, fenced: boolean): Iterable<string> {
  const values = new Map<string, number>()
  for (const touch of history.touches) {
    if (touch.fenced !== fenced || !touch.accepted || touch.kind !== 'write') continue
    const before = values.get(touch.key) ?? 0
    if (touch.value !== before + 1)
      yield `'${touch.key}' was ${before}, and token ${touch.token} wrote ${touch.value} at ${touch.at.toFixed(3)}`
    values.set(touch.key, touch.value)
  }
}

/**
 * Whoever holds, in the server's truth, has the highest token there is: a guard that refuses it was shown tokens out of
 * order.
 */
function* rightfulHolderRefused(history: History): Iterable<string> {
  const stays = staysByToken(history)
  for (const touch of history.touches) {
    if (touch.accepted) continue
    const stay = stayOf(stays, touch)
    if (
      stay?.grantedAt === undefined ||
      stay.grantedAt > touch.at ||
      (stay.goneAt ?? Number.POSITIVE_INFINITY) <= touch.at
    )
      continue
    yield `'${touch.key}': token ${touch.token} was refused at ${touch.at.toFixed(3)}, while it held`
  }
}
