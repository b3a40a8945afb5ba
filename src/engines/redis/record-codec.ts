/**
 * What the scripts of records are given (lua/get.lua, lua/put.lua, lua/begin.lua, lua/finish.lua), and what they
 * answer, in the words of the contract.
 *
 * Clients send and answer text. So a value that is text, as JSON is, is stored as such, for people who look, and any
 * other in base64.
 */
import { isUtf8 } from 'node:buffer'
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import type { Claim } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { type EngineCall, unexpectedAnswer } from '../../core/failed-call.ts'
import type { Change, Entered, Entrance, Got, Leaving, Put, Stored, When } from '../../core/store.ts'
import { type CallItem, idsOf, keyList, unusable } from './codec.ts'
import { recordKey } from './names.ts'

/** In the place of an id, for a change that no entry has to hold for; and in that of a condition which is not given. */
const NONE = '-'

/** A change, as an item of a call. */
export interface ChangeItem extends CallItem {
  readonly change: Change
}

export function changeItem(change: Change): ChangeItem {
  return { key: change.key, id: change.when.holding ?? NONE, change }
}

/** A claim and a change, as an item of a call. */
export interface EntranceItem extends ChangeItem {
  readonly claim: Claim
}

export function entranceItem({ claim, change }: Entrance): EntranceItem {
  return { key: change.key, id: claim.id, change, claim }
}

export function leavingItem({ change, id }: Leaving): ChangeItem {
  return { key: change.key, id, change }
}

/**
 * All words of a call of lua/put.lua or lua/finish.lua; with the two words about all claims, of lua/begin.lua.
 * `counter`: the key that versions come from.
 */
export function putWords(
  names: RedisNames,
  items: readonly ChangeItem[],
  counter: string,
  claims: readonly string[] = [],
): string[] {
  const words = ['', '1', counter]
  if (names.cluster) for (const { key } of items) words.push(recordKey(names.serverKey(key)))
  const list = keyList(names, items, words)
  words.push(list, idsOf(items), String(items.length), ...claims)
  for (const { change } of items) words.push(askedOf(change), contentOf(change.value))
  return words
}

function askedOf({ value, ttlMs, mark, when }: Change): string {
  const { absent, version, markBelow } = when
  const livesForMs = value === null ? NONE : (ttlMs ?? NONE)
  return `${livesForMs} ${mark ?? NONE} ${absent === undefined ? NONE : 'absent'} ${version ?? NONE} ${markBelow ?? NONE}`
}

/** What two claims have to have in common to be in one call of lua/begin.lua, and its two words about them. */
export function claimWords({ ttlMs, holder }: Claim, engineId: string): readonly [string, string] {
  return [String(ttlMs), ` a 1 1 ${ttlMs} ${engineId} ${holder}`]
}

/** Some clients take the mark of the byte order away when they read a text. */
const BYTE_ORDER_MARK = 0xef

function contentOf(value: Uint8Array | null): string {
  if (value === null) return 'x'
  const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength)
  return isUtf8(bytes) && bytes[0] !== BYTE_ORDER_MARK ? `t${bytes.toString()}` : `b${bytes.toString('base64')}`
}

/** All words of a call of lua/get.lua. */
export function getWords(names: RedisNames, keys: readonly string[]): string[] {
  const serverKeys = keys.map((key) => names.serverKey(key))
  if (names.cluster) return ['', String(keys.length), ...serverKeys.map(recordKey), '']
  return ['', '0', serverKeys.join('\0')]
}

export function gotsOf(reply: unknown, keys: readonly string[]): Got[] {
  const { serverTimeMs, words } = timed('get', reply, 2 * keys.length)
  return keys.map((key, index): Got => {
    const stored = storedOf(key, words[2 * index] as string, Number(words[2 * index + 1]))
    return stored instanceof EngineError ? { state: 'failed', error: stored } : { state: 'read', stored, serverTimeMs }
  })
}

const REFUSALS: Readonly<Record<string, keyof When>> = { h: 'holding', a: 'absent', v: 'version', m: 'markBelow' }

export function putsOf(names: RedisNames, reply: unknown, items: readonly ChangeItem[]): Put[] {
  if (isShort(reply)) return allStored(reply, items.length)
  const { serverTimeMs, words } = timed('put', reply, 3 * items.length)
  return items.map(({ key }, index): Put => {
    const [code = '', first = '', second = ''] = words.slice(3 * index, 3 * index + 3)
    if (code === 's') return { state: 'stored', version: BigInt(first), mark: BigInt(second), serverTimeMs }
    if (code === 'x') return { state: 'failed', error: unusable(names.serverKey(key), first, second) }
    const stored = storedOf(key, first, Number(second))
    if (stored instanceof EngineError) return { state: 'failed', error: stored }
    const by = REFUSALS[code]
    if (by === undefined)
      throw unexpectedAnswer(ENGINE, 'put', `the answer has the unknown letter ${JSON.stringify(code)}`)
    return { state: 'refused', by, stored, serverTimeMs }
  })
}

/** The short answer: all changes are made, no mark is stored, and the versions follow each other. */
function allStored(reply: readonly unknown[], count: number): StoredPut[] {
  const serverTimeMs = timeOf(reply)
  const puts: StoredPut[] = []
  let version = BigInt(reply[2] as string)
  for (let at = 0; at < count; at += 1) {
    puts.push({ state: 'stored', version, mark: 0n, serverTimeMs })
    version += 1n
  }
  return puts
}

type StoredPut = Extract<Put, { state: 'stored' }>

/** The answers of lua/begin.lua. The version of an entrance is its token. */
export function enteredOf(names: RedisNames, reply: unknown, items: readonly EntranceItem[]): Entered[] {
  if (isShort(reply)) return allStored(reply, items.length).map((put, index) => entered(put, items[index]))
  return putsOf(names, reply, items).map((put, index): Entered => {
    if (put.state === 'failed') return { standing: put, put }
    if (put.state === 'refused') return { standing: { state: 'busy', ahead: null }, put }
    return entered(put, items[index])
  })
}

function entered(put: StoredPut, item: EntranceItem | undefined): Entered {
  return { standing: { state: 'held', token: put.version, heldForMs: item?.claim.ttlMs ?? 0 }, put }
}

function isShort(reply: unknown): reply is readonly unknown[] {
  return Array.isArray(reply) && reply.length === 3
}

/** What each reply begins with: the time of the server. */
function timeOf(reply: readonly unknown[]): number {
  return Number(reply[0]) * 1000 + Math.floor(Number(reply[1]) / 1000)
}

/** The time of the server, and what follows it. */
function timed(call: EngineCall, reply: unknown, count: number): { serverTimeMs: number; words: readonly string[] } {
  if (!Array.isArray(reply) || reply.length !== count + 2)
    throw unexpectedAnswer(
      ENGINE,
      call,
      `the answer has ${Array.isArray(reply) ? reply.length : 'no'} words instead of ${count + 2}`,
    )
  return { serverTimeMs: timeOf(reply), words: reply.slice(2).map(String) }
}

/** `text` is what is at the record key, '' if nothing is. */
export function storedOf(key: string, text: string, livesForMs: number): Stored | EngineError {
  if (text === '') return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
  const [head, version = '', mark = '', kind] = /^hf1=(\d+) (\d+) ([tbx])/.exec(text) ?? []
  if (head === undefined) {
    const message = `the record of '${key}' was written by a newer Holdfast, or is none: update Holdfast here, or use another prefix`
    return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
  }
  if (kind === 'x') return { key, value: null, version: BigInt(version), mark: 0n, livesForMs: null }
  const value = Buffer.from(text.slice(head.length), kind === 'b' ? 'base64' : 'utf8')
  return { key, value, version: BigInt(version), mark: BigInt(mark), livesForMs: livesForMs < 0 ? null : livesForMs }
}
