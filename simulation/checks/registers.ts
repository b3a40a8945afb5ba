/** What a user sees of it all: the numbers that the locks protect (register.ts). */
import type { Check } from '../checks.ts'
import type { History, RegisterAccess } from '../history.ts'
import { stayOf, staysByToken } from './safety.ts'
import { time } from './words.ts'

export const registers: Readonly<Record<string, Check>> = {
  'guarded exclusion': guardedExclusion,
  'lost update, guarded': lostGuardedUpdate,
  'lost update, unguarded': lostPlainUpdate,
  'rightful holder refused': rightfulHolderRefused,
}

/**
 * The guarded register never accepts a holder between the read and the write of another one, but for a late read of an
 * earlier holder: that one will not write any more.
 */
function* guardedExclusion(history: History): Iterable<string> {
  const reader = new Map<string, RegisterAccess>()
  const others = new Map<string, RegisterAccess>()
  for (const access of history.accesses) {
    if (!access.guarded || !access.accepted) continue
    const read = reader.get(access.key)
    if (access.kind === 'read') {
      if (read !== undefined && access.token < read.token) continue
      if (read !== undefined && read.token !== access.token) others.set(`${access.key} ${read.token}`, access)
      reader.set(access.key, access)
    } else {
      const between = others.get(`${access.key} ${access.token}`)
      if (between !== undefined)
        yield `'${access.key}': token ${between.token} was let in at ${time(between.at)}, before the write of token ${access.token}`
    }
  }
}

function* lostGuardedUpdate(history: History): Iterable<string> {
  yield* lostUpdates(history, true)
}

/** Without a guard, nothing is lost either, as long as the server keeps its word. */
function* lostPlainUpdate(history: History): Iterable<string> {
  if (history.had('server clock jump', 'server amnesia', 'eviction')) return
  yield* lostUpdates(history, false)
}

/** Every write that was accepted is one higher than the one before. */
function* lostUpdates(history: History, guarded: boolean): Iterable<string> {
  const values = new Map<string, number>()
  for (const access of history.accesses) {
    if (access.guarded !== guarded || !access.accepted || access.kind !== 'write') continue
    const before = values.get(access.key) ?? 0
    if (access.value !== before + 1)
      yield `'${access.key}' was ${before}, and token ${access.token} wrote ${access.value} at ${time(access.at)}`
    values.set(access.key, access.value)
  }
}

/**
 * The holder, in the server's truth, has the highest token there is: a guard that refuses it was shown tokens out of
 * order.
 */
function* rightfulHolderRefused(history: History): Iterable<string> {
  const stays = staysByToken(history)
  for (const access of history.accesses) {
    if (access.accepted) continue
    const stay = stayOf(stays, access)
    if (
      stay?.grantedAt === undefined ||
      stay.grantedAt > access.at ||
      (stay.goneAt ?? Number.POSITIVE_INFINITY) <= access.at
    )
      continue
    yield `'${access.key}': token ${access.token} was refused at ${time(access.at)}, while it held`
  }
}
