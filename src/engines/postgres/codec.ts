/**
 * Requests and replies: batches as the functions want them, and what the functions answer in the words of the contract.
 *
 * A batch is one array for each property, in PostgreSQL's own spelling. We write it ourselves, since clients differ in
 * how they write arrays, and users may have changed it. The letters of the answers are explained in
 * shared/standing-codes.ts, what stands behind them in sql/enter.sql.
 *
 * `listensAs`: under which name this process hears of its entries; '' if it does not listen.
 */

import type { Claim, EntryName, Line, LineEntry, LineSummary, News, Place, Standing } from '../../core/engine.ts'
import { type EngineCall, unexpectedAnswer } from '../../core/failed-call.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { sqlStandingOf } from '../shared/standing-codes.ts'
import { ENGINE } from './errors.ts'

/** As in sql/enter.sql. */
export const LINE_BOUND = 10_000

// ---- requests ----

/** A key with a blank, a quote, a backslash or the word NULL is only itself between quotes. */
export function texts(values: readonly string[]): string {
  let array = '{'
  for (const value of values) {
    if (array.length > 1) array += ','
    array += `"${/["\\]/.test(value) ? value.replaceAll(/["\\]/g, '\\$&') : value}"`
  }
  return `${array}}`
}

export function numbers(values: readonly number[]): string {
  return `{${values.join(',')}}`
}

function booleans(values: readonly boolean[]): string {
  return `{${values.map((value) => (value ? 't' : 'f')).join(',')}}`
}

/** For `enter`, of several claims. */
export function enterArguments(claims: readonly Claim[], listensAs: string, rowWaitMs: number): string[] {
  return [
    texts(claims.map(({ key }) => key)),
    texts(claims.map(({ id }) => id)),
    texts(claims.map(({ holder }) => holder)),
    numbers(claims.map(({ weight }) => weight)),
    numbers(claims.map(({ limit }) => limit)),
    numbers(claims.map(({ ttlMs }) => ttlMs)),
    booleans(claims.map(({ wait }) => wait)),
    numbers(occurrences(claims)),
    listensAs,
    String(rowWaitMs),
  ]
}

/** For `enter_one`. */
export function enterOneArguments(claim: Claim, listensAs: string, rowWaitMs: number): string[] {
  const { key, id, holder, weight, limit, ttlMs, wait } = claim
  return [key, id, holder, String(weight), String(limit), String(ttlMs), wait ? 't' : 'f', listensAs, String(rowWaitMs)]
}

export function renewArguments(places: readonly Place[], listensAs: string, rowWaitMs: number): string[] {
  const [keys, ids] = namesOf(places)
  return [
    keys,
    ids,
    numbers(places.map(({ ttlMs }) => ttlMs)),
    booleans(places.map(({ outlives }) => outlives === true)),
    listensAs,
    String(rowWaitMs),
  ]
}

export function leaveArguments(places: readonly EntryName[], listensAs: string, rowWaitMs: number): string[] {
  return [...namesOf(places), listensAs, String(rowWaitMs)]
}

function namesOf(places: readonly EntryName[]): [string, string] {
  return [texts(places.map(({ key }) => key)), texts(places.map(({ id }) => id))]
}

/** How often each claim's key came before it: one statement can touch a row only once. */
function occurrences(claims: readonly Claim[]): number[] {
  const seen = new Map<string, number>()
  return claims.map(({ key }) => {
    const before = seen.get(key) ?? 0
    seen.set(key, before + 1)
    return before
  })
}

// ---- replies ----

/** An answer, and the news for this process that came with it. */
export interface PostgresReply {
  readonly text: string
  readonly news: readonly News[]
}

/** News follow the answer after a line break. `call` is what the core has called. */
export function replyOf(call: EngineCall, value: unknown): PostgresReply {
  if (typeof value !== 'string')
    throw unexpectedAnswer(ENGINE, call, `the answer is a ${typeof value} instead of a text`)
  const end = value.indexOf('\n')
  if (end < 0) return { text: value, news: [] }
  return { text: value.slice(0, end), news: arrayOf(call, value.slice(end + 1)).map((row) => newsOfRow(call, row)) }
}

/** A message that came by notification. Any client may send one to the channel: what cannot be read is ignored. */
export function newsOf(payload: string): News | undefined {
  try {
    return newsOfRow('subscribe', JSON.parse(payload))
  } catch {
    return undefined
  }
}

/** Where each of `items` stands. `schedule` is told of those that wait. */
export function standingsOf(
  call: EngineCall,
  text: string,
  items: readonly Place[],
  schedule: (recheck: Recheck) => void,
): Standing[] {
  const codes = text.split(' ')
  if (codes.length !== items.length) throw wrongCount(call, codes.length, items.length)
  const reading = { lineBound: LINE_BOUND, recheckMsOf: Number, schedule }
  return items.map((item, index) => {
    const code = codes[index] as string
    const standing = sqlStandingOf(code, item, reading)
    if (standing !== undefined) return standing
    throw unexpectedAnswer(ENGINE, call, `the answer has an unknown code: ${JSON.stringify(code)}`)
  })
}

/** What became of one place that was to be left. `unsynced`: left, and the server has not waited for its disk. */
export type LeaveAnswer = 'left' | 'unsynced' | 'absent'

const LEAVE_ANSWERS: Readonly<Record<string, LeaveAnswer>> = { 0: 'absent', 1: 'left', 2: 'unsynced' }

/** The answer to `leave` and `leave_one`. */
export function leaveAnswersOf(call: EngineCall, text: string, count: number): LeaveAnswer[] {
  if (text.length !== count) throw wrongCount(call, text.length, count)
  return text.split('').map((digit) => {
    const answer = LEAVE_ANSWERS[digit]
    if (answer === undefined)
      throw unexpectedAnswer(ENGINE, call, `the answer has an unknown code: ${JSON.stringify(digit)}`)
    return answer
  })
}

type InspectedRow = readonly [
  ...[id: string, holder: string, holds: boolean, token: string, weight: number, limit: number],
  ...[ttlMs: number, remainingMs: number, ageMs: number, heldMs: number | null, evicted: boolean],
]

/** The answer to `inspect`. */
export function lineOf(key: string, text: string): Line {
  return { key, entries: (arrayOf('inspect', text) as readonly InspectedRow[]).map(lineEntryOf) }
}

function lineEntryOf(row: InspectedRow): LineEntry {
  const [id, holder, holds, token, weight, limit, ttlMs, remainingMs, ageMs, heldMs, evicted] = row
  return {
    ...{ id, holder, state: holds ? 'held' : 'waiting', token: BigInt(token), weight, limit, ttlMs, remainingMs },
    // The clock may have been set back since.
    ageMs: Math.max(ageMs, 0),
    heldMs: heldMs === null ? null : Math.max(heldMs, 0),
    ...(evicted ? { evicted } : {}),
  }
}

type ListedRow = readonly [key: string, held: number, waiting: number]

/** The answer to `list`. */
export function summariesOf(text: string): LineSummary[] {
  return (arrayOf('list', text) as readonly ListedRow[]).map(summaryOf)
}

function summaryOf([key, held, waiting]: ListedRow): LineSummary {
  return { key, held, waiting }
}

/** The answer to `locked_keys`. */
export function keysOf(call: EngineCall, text: string): string[] {
  return arrayOf(call, text).map(String)
}

/** The JSON array that was answered to `call`. */
export function arrayOf(call: EngineCall, text: string): readonly unknown[] {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    value = undefined
  }
  if (Array.isArray(value)) return value
  throw unexpectedAnswer(ENGINE, call, `the answer is not a JSON array: ${JSON.stringify(text)}`)
}

/**
 * Key, id, token (null for one that was evicted), and for how long it is held (ms). Key and id alone: look again.
 */
function newsOfRow(call: EngineCall, message: unknown): News {
  const { length } = message as readonly unknown[]
  const [key, id, token = null, heldForMs] = message as readonly unknown[]
  if (typeof key !== 'string' || typeof id !== 'string' || (token !== null && typeof token !== 'string'))
    throw unexpectedAnswer(ENGINE, call, `news that cannot be read: ${JSON.stringify(message)}`)
  if (length === 2) return { key, id }
  if (token === null) return { key, id, standing: { state: 'gone', why: 'evicted' } }
  return { key, id, standing: { state: 'held', token: BigInt(token), heldForMs: Number(heldForMs) } }
}

function wrongCount(call: EngineCall, count: number, expected: number): Error {
  return unexpectedAnswer(ENGINE, call, `the answer has ${count} entries instead of ${expected}`)
}
