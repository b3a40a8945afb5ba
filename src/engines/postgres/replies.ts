/** What the functions answer, in the words of the contract. The letters are explained in sql/enter.sql. */

import { ENGINE } from '../../clients/postgres/errors.ts'
import type { Line, LineEntry, LineSummary, News, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { isWaiting, settledStanding, waitingStanding } from '../shared/standing-codes.ts'

/** As in sql/enter.sql. */
export const LINE_BOUND = 10_000

/** An answer, and the news for us that came with it. */
export interface Reply {
  readonly text: string
  readonly news: readonly News[]
}

/** News follow the answer after a line break. */
export function replyOf(value: unknown): Reply {
  if (typeof value !== 'string') throw strange(value)
  const end = value.indexOf('\n')
  return end < 0
    ? { text: value, news: [] }
    : { text: value.slice(0, end), news: parsed(value.slice(end + 1)).map(newsOf) }
}

/** A message that came by notification. Any client may send one to the channel: what makes no sense is nothing. */
export function newsIn(payload: string): News | undefined {
  try {
    return newsOf(JSON.parse(payload))
  } catch {
    return undefined
  }
}

/** Where each of `items` stands. `schedule` is told of those who wait. */
export function standingsOf(text: string, items: readonly Place[], schedule: (recheck: Recheck) => void): Standing[] {
  const codes = text.split(' ')
  if (codes.length !== items.length) throw strange(text)
  return items.map((item, index) => standingOf(codes[index] as string, item, schedule))
}

const DIGIT_9 = 57

function standingOf(code: string, place: Place, schedule: (recheck: Recheck) => void): Standing {
  if (code.charCodeAt(0) <= DIGIT_9) return { state: 'held', token: BigInt(code), heldForMs: place.ttlMs }
  const [letter, ahead = '', recheckMs] = code.split(':')
  if (isWaiting(letter)) return waitingStanding(letter, place, ahead, Number(recheckMs), schedule)
  const settled = settledStanding(letter, place.key, () => ahead, LINE_BOUND)
  if (settled === undefined) throw strange(code)
  return settled
}

/** The answer to `leave`, `2` being one that the disk was not waited for. */
export function departuresOf(text: string, count: number): string[] {
  if (text.length !== count) throw strange(text)
  return text.split('')
}

type Row = readonly [string, string, boolean, string, number, number, number, number, number, number | null]

/** The answer to `inspect`. */
export function lineOf(key: string, text: string): Line {
  const entries = (parsed(text) as readonly Row[]).map(
    ([id, holder, holds, token, weight, limit, ttlMs, remainingMs, ageMs, heldMs]): LineEntry => ({
      ...{ id, holder, state: holds ? 'held' : 'waiting', token: BigInt(token), weight, limit, ttlMs, remainingMs },
      // The clock may have been set back since.
      ageMs: Math.max(ageMs, 0),
      heldMs: heldMs === null ? null : Math.max(heldMs, 0),
    }),
  )
  return { key, entries }
}

/** The answer to `list`. */
export function pageOf(text: string): LineSummary[] {
  return (parsed(text) as readonly [string, number, number][]).map(([key, held, waiting]) => ({ key, held, waiting }))
}

/** The answer to `stuck`. */
export function keysOf(text: string): string[] {
  return parsed(text).map(String)
}

function parsed(text: string): readonly unknown[] {
  const value: unknown = JSON.parse(text)
  if (!Array.isArray(value)) throw strange(text)
  return value
}

/** Key, id, token (null for one that was evicted), and for how long it is held (ms). */
function newsOf(letter: unknown): News {
  const [key, id, token, heldForMs] = letter as readonly unknown[]
  if (typeof key !== 'string' || typeof id !== 'string') throw strange(letter)
  if (token === null) return { key, id, standing: { state: 'gone', why: 'evicted' } }
  if (typeof token !== 'string') throw strange(letter)
  return { key, id, standing: { state: 'held', token: BigInt(token), heldForMs: Number(heldForMs) } }
}

/** Not what our functions say. Whatever it is (a proxy, another function under our name), nobody knows what it did. */
function strange(what: unknown): EngineError {
  return new EngineError(ENGINE, `an answer that makes no sense: ${JSON.stringify(what)}`, {
    outcome: 'unknown',
    transient: false,
  })
}
