/**
 * What the scripts of records are given (lua/get.lua, lua/put.lua), and what they answer, in the words of the contract.
 *
 * Clients send and answer text. So a value that is text, as JSON is, is stored as such, for people who look, and any
 * other in base64.
 */
import { isUtf8 } from 'node:buffer'
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import { EngineError } from '../../core/errors.ts'
import type { Change, Got, Put, Stored, When } from '../../core/store.ts'
import { type CallItem, keyList } from './codec.ts'
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

/** All words of a call of lua/put.lua. `counter`: the key that versions come from. */
export function putWords(names: RedisNames, items: readonly ChangeItem[], counter: string): string[] {
  const words = ['', '1', counter]
  if (names.cluster) for (const { key } of items) words.push(recordKey(names.serverKey(key)))
  const list = keyList(names, items, words)
  words.push(list, items.map(({ id }) => id).join(' '), String(items.length))
  for (const { change } of items) words.push(askedOf(change), contentOf(change.value))
  return words
}

function askedOf({ ttlMs, mark, when }: Change): string {
  const { absent, version, markBelow } = when
  return [ttlMs ?? NONE, mark ?? NONE, absent === undefined ? NONE : 'absent', version ?? NONE, markBelow ?? NONE].join(
    ' ',
  )
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

export function readGets(reply: unknown, keys: readonly string[]): Got[] {
  const { serverTimeMs, words } = timed('get', reply, 2 * keys.length)
  return keys.map((key, index): Got => {
    const stored = readRecord(key, words[2 * index] as string, Number(words[2 * index + 1]))
    return stored instanceof EngineError ? { state: 'failed', error: stored } : { state: 'read', stored, serverTimeMs }
  })
}

const REFUSALS: Readonly<Record<string, keyof When>> = { h: 'holding', a: 'absent', v: 'version', m: 'markBelow' }

export function readPuts(reply: unknown, items: readonly ChangeItem[]): Put[] {
  const { serverTimeMs, words } = timed('put', reply, 3 * items.length)
  return items.map(({ key }, index): Put => {
    const [code = '', first = '', second = ''] = words.slice(3 * index, 3 * index + 3)
    if (code === 's') return { state: 'stored', version: BigInt(first), mark: BigInt(second), serverTimeMs }
    const stored = readRecord(key, first, Number(second))
    if (stored instanceof EngineError) return { state: 'failed', error: stored }
    const by = REFUSALS[code]
    if (by === undefined) throw unexpected('put', `has the unknown letter ${JSON.stringify(code)}`)
    return { state: 'refused', by, stored, serverTimeMs }
  })
}

/** The time of the server, and what follows it. */
function timed(call: string, reply: unknown, count: number): { serverTimeMs: number; words: readonly string[] } {
  if (!Array.isArray(reply) || reply.length !== count + 2)
    throw unexpected(call, `has ${Array.isArray(reply) ? reply.length : 'no'} words instead of ${count + 2}`)
  const [seconds, microseconds, ...words] = reply.map(String)
  return { serverTimeMs: Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000), words }
}

/** `text` is what is at the record key, '' if nothing is. */
function readRecord(key: string, text: string, livesForMs: number): Stored | EngineError {
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

function unexpected(call: string, what: string): EngineError {
  return new EngineError(ENGINE, `${call}: the answer of the server ${what}`, { outcome: 'unknown', transient: false })
}
