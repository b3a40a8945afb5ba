/** What the procedures answer, in the words of the contract. The letters are explained in sql/enter.sql. */

import { ENGINE, lineLocked } from '../../clients/mysql/errors.ts'
import type { Rows } from '../../clients/mysql/wire.ts'
import type { Line, LineEntry, LineSummary, News, Place, Standing } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { isWaiting, settledStanding, waitingStanding } from '../shared/standing-codes.ts'

/** As in sql/enter.sql. */
export const LINE_BOUND = 10_000

/** The last set of an answer: what is answered, and the news for us. */
export function replyOf(sets: readonly Rows[]): { readonly text: string; readonly news: readonly News[] } {
  const [text, news] = sets.at(-1)?.[0] ?? []
  if (typeof text !== 'string' || typeof news !== 'string') throw strange(sets)
  return { text, news: news.split(';').slice(0, -1).map(newsOf) }
}

/** One for each item, in the caller's order. */
export function codesOf(text: string, sets: readonly Rows[], order: readonly number[]): string[] {
  const codes = listed(text, sets)
  if (codes.length !== order.length) throw strange(text)
  const inOrder: string[] = new Array(order.length)
  for (const [at, index] of order.entries()) inOrder[index] = codes[at] as string
  return inOrder
}

/** A code and a blank for each, or rows of them. */
function listed(text: string, sets: readonly Rows[]): string[] {
  return text === 'rows' ? (sets[0] ?? []).map(([code]) => String(code)) : text.slice(0, -1).split(' ')
}

const DIGIT_9 = 57

/** Where `item` stands. `schedule` is told of one who waits. */
export function standingOf(code: string, place: Place, schedule: (recheck: Recheck) => void): Standing {
  if (code.charCodeAt(0) <= DIGIT_9) return { state: 'held', token: BigInt(code), heldForMs: place.ttlMs }
  const [letter, ahead = '', recheckUs] = code.split(':')
  if (isWaiting(letter)) {
    return waitingStanding(letter, place, ahead, Math.max(Number(recheckUs) / 1000, 0), schedule)
  }
  if (letter === 'l') return { state: 'failed', error: lineLocked(place.key) }
  const settled = settledStanding(letter, place.key, () => ahead, LINE_BOUND)
  if (settled === undefined) throw strange(code)
  return settled
}

/** The code of one that has left a line in which nobody is now. */
export const ALONE = '1'

/** Whether `item` was in its line. */
export function departureOf(code: string, { key }: Pick<Place, 'key'>): boolean {
  if (code === 'l') throw lineLocked(key)
  return code === ALONE || code === '2'
}

/** The answer to `inspect`. */
export function lineOf(key: string, rows: Rows): Line {
  return { key, entries: rows.map(entryOf) }
}

function entryOf(row: readonly unknown[]): LineEntry {
  const [id, holder, holds, token, weight, limit, ttl, left, age, held] = row
  return {
    id: String(id),
    holder: unhex(holder),
    state: Number(holds) === 1 ? 'held' : 'waiting',
    token: BigInt(String(token)),
    weight: Number(weight),
    limit: Number(limit),
    ttlMs: Number(ttl) / 1000,
    remainingMs: Number(left) / 1000,
    // The clock may have been set back since.
    ageMs: Math.max(Number(age) / 1000, 0),
    heldMs: held === null ? null : Math.max(Number(held) / 1000, 0),
  }
}

/** The answer to `list`. */
export function pageOf(rows: Rows): LineSummary[] {
  return rows.map(([key, held, waiting]) => ({ key: unhex(key), held: Number(held), waiting: Number(waiting) }))
}

/** Rows of hexadecimal keys. */
export function keysOf(rows: Rows): string[] {
  return rows.map(([key]) => unhex(key))
}

export function unhex(value: unknown): string {
  return Buffer.from(String(value), 'hex').toString()
}

/** `key id token microseconds`; without a token if it was evicted. */
function newsOf(letter: string): News {
  const [key, id = '', token, heldForUs] = letter.split(' ')
  const named = { key: unhex(key), id: id.toLowerCase() }
  if (token === '' || token === undefined) return { ...named, standing: { state: 'gone', why: 'evicted' } }
  return { ...named, standing: { state: 'held', token: BigInt(token), heldForMs: Number(heldForUs) / 1000 } }
}

/**
 * Not what our procedures say. Whatever it is (a proxy, another procedure under our name), nobody knows what it did.
 */
function strange(what: unknown): EngineError {
  return new EngineError(ENGINE, `an answer that makes no sense: ${JSON.stringify(what)}`, {
    outcome: 'unknown',
    transient: false,
  })
}
