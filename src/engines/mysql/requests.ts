/**
 * Batches as the procedures want them: text of digits and hexadecimal, which means the same under every mode and
 * character set that a connection can have. In the order of the keys' bytes, since that is the order in which lines are
 * locked; claims of one key stay in theirs.
 */
import type { Claim, Place } from '../../core/engine.ts'

/** A batch, and where in the caller's order each of its items belongs. */
export interface Packed {
  /** The arguments that are about the batch. */
  readonly args: readonly string[]
  readonly order: readonly number[]
}

/** A smaller batch goes item by item. */
const QUICK = 3

interface Keyed<Item> {
  readonly item: Item
  readonly index: number
  /** In hexadecimal. */
  readonly key: string
}

/** For `enter`. */
export function packClaims(claims: readonly Claim[]): Packed {
  const keyed = sorted(claims)
  const batch = keyed.map(({ key, item: { id, holder, weight, limit, ttlMs, wait } }) => {
    return `${key} ${id} ${hex(holder)} ${weight} ${limit} ${ttlMs}000 ${wait ? 1 : 0};`
  })
  return packed(keyed, batch)
}

/** For `renew`. */
export function packPlaces(places: readonly Place[]): Packed {
  const keyed = sorted(places)
  const batch = keyed.map(
    ({ key, item: { id, ttlMs, outlives } }) => `${key} ${id} ${ttlMs}000 ${outlives === true ? 1 : 0};`,
  )
  const alike = isQuick(keyed) && places.every(({ ttlMs, outlives }) => ttlMs === places[0]?.ttlMs && outlives !== true)
  const { args, order } = packed(keyed, batch)
  return { args: [...args, ...lists(alike ? keyed : []), String(keyed.length)], order }
}

/** For `leave`. */
export function packIds(places: readonly Pick<Place, 'key' | 'id'>[]): Packed {
  const keyed = sorted(places)
  const batch = keyed.map(({ key, item: { id } }) => `${key} ${id};`)
  return packed(keyed, batch)
}

/** For `tidy`. */
export function packKeys(keys: readonly string[]): string {
  return `'${keys.map((key) => literal(hex(key))).join(',')}'`
}

export function hex(text: string): string {
  return Buffer.from(text).toString('hex')
}

/** In the order of their keys' bytes. */
export function inOrder<Item extends { readonly key: string }>(items: readonly Item[]): readonly Item[] {
  return sorted(items).map(({ item }) => item)
}

/** Whether two claims differ in key and id only. */
export function areAlike(a: Claim, b: Claim): boolean {
  return a.holder === b.holder && a.weight === b.weight && a.limit === b.limit && a.ttlMs === b.ttlMs
}

function sorted<Item extends { readonly key: string }>(items: readonly Item[]): readonly Keyed<Item>[] {
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
function isQuick(keyed: readonly Keyed<unknown>[]): boolean {
  return keyed.length >= QUICK && keyed.every(({ key }, at) => key !== keyed[at - 1]?.key)
}

/** The keys and the ids, as two arguments. */
function lists(keyed: readonly Keyed<{ readonly id: string }>[]): string[] {
  const keys = keyed.map(({ key }) => literal(key))
  const ids = keyed.map(({ item }) => literal(item.id))
  return [`'${keys.join(',')}'`, `'${ids.join(',')}'`]
}

/** Without quotes, since it is for a text inside a text. There is no such literal for nothing. */
function literal(bytes: string): string {
  return bytes === '' ? 'LEFT(0x20,0)' : `0x${bytes}`
}

function packed(keyed: readonly Keyed<unknown>[], batch: readonly string[]): Packed {
  return { args: [`'${batch.join('')}'`], order: keyed.map(({ index }) => index) }
}
