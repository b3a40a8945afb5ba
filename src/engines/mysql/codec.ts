/**
 * What is sent to the procedures, and what they answer, in the words of the contract. The letters of the answers are
 * explained in shared/standing-codes.ts, what stands behind them in sql/enter.sql.
 *
 * A batch is text of digits and hexadecimal, which means the same under every mode and character set that a connection
 * can have. It is in the order of the keys' bytes, since that is the order in which lines are locked; claims of one key
 * stay in theirs.
 */

import type { ResultRows } from '../../clients/mysql/wire.ts'
import type { Claim, EntryName, Line, LineEntry, LineSummary, News, Place, Standing } from '../../core/engine.ts'
import { type EngineCall, unexpectedAnswer } from '../../core/failed-call.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { sqlStandingOf } from '../shared/standing-codes.ts'
import { ENGINE, lineLocked } from './errors.ts'

/** As in sql/enter.sql. */
export const LINE_BOUND = 10_000

export function hex(text: string): string {
  return Buffer.from(text).toString('hex')
}

export function unhex(value: unknown): string {
  return Buffer.from(String(value), 'hex').toString()
}

// ---- what is sent ----

/** A batch, and where in the caller's order each of its items belongs. */
export interface BatchArguments {
  /** The arguments that are about the batch. */
  readonly args: readonly string[]
  readonly order: readonly number[]
}

/** A smaller batch of renewals goes item by item. */
const QUICK_FROM = 3

interface KeyedItem<Item> {
  readonly item: Item
  readonly index: number
  /** In hexadecimal. */
  readonly key: string
}

/** For `enter`. */
export function enterArguments(claims: readonly Claim[]): BatchArguments {
  const keyed = sorted(claims)
  const batch = keyed.map(({ key, item: { id, holder, weight, limit, ttlMs, wait } }) => {
    return `${key} ${id} ${hex(holder)} ${weight} ${limit} ${ttlMs}000 ${wait ? 1 : 0};`
  })
  return batchArguments(keyed, batch)
}

/** For `renew`. */
export function renewArguments(places: readonly Place[]): BatchArguments {
  const keyed = sorted(places)
  const batch = keyed.map(
    ({ key, item: { id, ttlMs, outlives } }) => `${key} ${id} ${ttlMs}000 ${outlives === true ? 1 : 0};`,
  )
  const alike = isQuick(keyed) && places.every(({ ttlMs, outlives }) => ttlMs === places[0]?.ttlMs && outlives !== true)
  const { args, order } = batchArguments(keyed, batch)
  return { args: [...args, ...lists(alike ? keyed : []), String(keyed.length)], order }
}

/** For `leave`. */
export function leaveArguments(places: readonly EntryName[]): BatchArguments {
  const keyed = sorted(places)
  const batch = keyed.map(({ key, item: { id } }) => `${key} ${id};`)
  return batchArguments(keyed, batch)
}

/** For `tidy`. */
export function keysArgument(keys: readonly string[]): string {
  return `'${keys.map((key) => literal(hex(key))).join(',')}'`
}

/** The exclusive upper bound of all keys with this prefix, as an argument. */
export function endOf(prefix: string): string {
  const bytes = Buffer.from(prefix)
  const last = bytes.length - 1
  // UTF-8 has no byte 0xff, so the last byte can be raised by one.
  if (last < 0) return 'NULL'
  bytes[last] = (bytes[last] as number) + 1
  return `x'${bytes.toString('hex')}'`
}

/** In the order of their keys' bytes. */
export function inOrder<Item extends { readonly key: string }>(items: readonly Item[]): readonly Item[] {
  return sorted(items).map(({ item }) => item)
}

/** Whether two claims differ in key and id only. */
export function areAlike(a: Claim, b: Claim): boolean {
  return a.holder === b.holder && a.weight === b.weight && a.limit === b.limit && a.ttlMs === b.ttlMs
}

function sorted<Item extends { readonly key: string }>(items: readonly Item[]): readonly KeyedItem<Item>[] {
  const keyed = items.map((item, index) => ({ item, index, key: hex(item.key) }))
  if (keyed.length > 1) keyed.sort((a, b) => compare(a.key, b.key) || a.index - b.index)
  return keyed
}

/** The order of hexadecimal digits is that of the bytes. */
function compare(a: string, b: string): number {
  if (a === b) return 0
  return a < b ? -1 : 1
}

/** Several, each of another line. */
function isQuick(keyed: readonly KeyedItem<unknown>[]): boolean {
  return keyed.length >= QUICK_FROM && keyed.every(({ key }, at) => key !== keyed[at - 1]?.key)
}

/** The keys and the ids, as two arguments. */
function lists(keyed: readonly KeyedItem<{ readonly id: string }>[]): string[] {
  const keys = keyed.map(({ key }) => literal(key))
  const ids = keyed.map(({ item }) => literal(item.id))
  return [`'${keys.join(',')}'`, `'${ids.join(',')}'`]
}

/** Without quotes, since it is for a text inside a text. The empty text has no such literal. */
function literal(bytes: string): string {
  return bytes === '' ? 'LEFT(0x20,0)' : `0x${bytes}`
}

function batchArguments(keyed: readonly KeyedItem<unknown>[], batch: readonly string[]): BatchArguments {
  return { args: [`'${batch.join('')}'`], order: keyed.map(({ index }) => index) }
}

// ---- what comes back ----

/** The last set of an answer to `call`: what is answered, and the news for this engine. */
export function replyOf(
  call: EngineCall,
  sets: readonly ResultRows[],
): { readonly text: string; readonly news: readonly News[] } {
  const [text, news] = sets.at(-1)?.[0] ?? []
  if (typeof text !== 'string' || typeof news !== 'string')
    throw unexpectedAnswer(
      ENGINE,
      call,
      `the answer of the server does not end with a row of two texts: ${JSON.stringify(sets)}`,
    )
  return { text, news: news.split(';').slice(0, -1).map(newsOf) }
}

/** One code for each item, in the caller's order: a code and a blank for each in `text`, or rows of codes. */
export function codesOf(
  call: EngineCall,
  text: string,
  sets: readonly ResultRows[],
  order: readonly number[],
): string[] {
  const codes = text === 'rows' ? (sets[0] ?? []).map(([code]) => String(code)) : text.slice(0, -1).split(' ')
  if (codes.length !== order.length)
    throw unexpectedAnswer(
      ENGINE,
      call,
      `the answer has ${codes.length} entries instead of ${order.length}: ${JSON.stringify(text)}`,
    )
  const inCallersOrder: string[] = new Array(order.length)
  for (const [at, index] of order.entries()) inCallersOrder[index] = codes[at] as string
  return inCallersOrder
}

const recheckMsOf = (us: string | undefined): number => Math.max(Number(us) / 1000, 0)

/** Where each of `places` stands, by the answer to `call`. `schedule` is told of those that wait. */
export function standingsOf(
  call: EngineCall,
  codes: readonly string[],
  places: readonly Place[],
  schedule: (recheck: Recheck) => void,
): Standing[] {
  const reading = { lineBound: LINE_BOUND, recheckMsOf, schedule }
  return places.map((place, index) => {
    const code = codes[index] as string
    const standing = sqlStandingOf(code, place, reading)
    if (standing !== undefined) return standing
    if (code === 'l') return { state: 'failed', error: lineLocked(place.key) }
    throw unexpectedAnswer(ENGINE, call, `the server answers ${JSON.stringify(code)} for an entry`)
  })
}

/** The code of an entry that has left a line which is empty now. */
export const LEFT_EMPTY = '1'

/** Whether each of `places` was in its line. */
export function leaveAnswersOf(codes: readonly string[], places: readonly Pick<Place, 'key'>[]): boolean[] {
  return places.map(({ key }, index) => {
    const code = codes[index]
    if (code === 'l') throw lineLocked(key)
    return code === LEFT_EMPTY || code === '2'
  })
}

/** The answer to `inspect`. */
export function lineOf(key: string, rows: ResultRows): Line {
  return { key, entries: rows.map(lineEntryOf) }
}

function lineEntryOf(row: readonly unknown[]): LineEntry {
  const [id, holder, holds, token, weight, limit, ttl, left, age, held, evicted] = row
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
    ...(Number(evicted) === 1 ? { evicted: true } : {}),
  }
}

/** The answer to `list`. */
export function summariesOf(rows: ResultRows): LineSummary[] {
  return rows.map(summaryOf)
}

function summaryOf([key, held, waiting]: readonly unknown[]): LineSummary {
  return { key: unhex(key), held: Number(held), waiting: Number(waiting) }
}

/** Rows of hexadecimal keys. */
export function keysOf(rows: ResultRows): string[] {
  return rows.map(([key]) => unhex(key))
}

/** One message is `key id token microseconds`; `~` for a token: look again; without one: the entry was evicted. */
function newsOf(message: string): News {
  const [key, id = '', token, heldForUs] = message.split(' ')
  const named = { key: unhex(key), id: id.toLowerCase() }
  if (token === '~') return named
  if (token === '' || token === undefined) return { ...named, standing: { state: 'gone', why: 'evicted' } }
  return { ...named, standing: { state: 'held', token: BigInt(token), heldForMs: Number(heldForUs) / 1000 } }
}
