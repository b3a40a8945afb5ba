/** Names, ids and quantities as users write them, checked, and as a pool wants them. */
import { compareKeys } from '../../core/keys.ts'
import { HIGHEST_STOCK, MOST_UNITS, type PoolLine } from '../../core/store-hold.ts'
import type { CartLine, Items } from './options.ts'

const LONGEST_NAME_BYTES = 200
const LONGEST_ITEM_BYTES = 128
const LONGEST_ID_BYTES = 256
/** How many items one step is about. */
const MOST_ITEMS = 100

/** Throws a `TypeError` or a `RangeError`. */
export function checkStockName(name: string): void {
  checkText('the name of a stock', name, LONGEST_NAME_BYTES)
}

export function checkHoldId(id: string): void {
  checkText('the id of a hold', id, LONGEST_ID_BYTES)
}

/** What may be reserved: at least one unit of at least one item. In order, each item once. */
export function linesToReserve(items: Items): readonly PoolLine[] {
  return linesOf(items, (item, quantity) => {
    checkQuantity(item, quantity, 1, MOST_UNITS)
  })
}

/** What a stock may be set to. */
export function linesToSet(items: Items): readonly PoolLine[] {
  return linesOf(items, (item, quantity) => {
    checkQuantity(item, quantity, 0, HIGHEST_STOCK)
  })
}

/** `sign`: -1 to take it away. */
export function linesToAdd(items: Items, sign: 1 | -1): readonly PoolLine[] {
  return linesToReserve(items).map(({ item, quantity }) => ({ item, quantity: sign * quantity }))
}

export function itemsOf(lines: readonly PoolLine[]): Readonly<Record<string, number>> {
  // An item may have the name of something that every object has.
  const items = Object.create(null) as Record<string, number>
  for (const { item, quantity } of lines) items[item] = quantity
  return items
}

function linesOf(items: Items, check: (item: string, quantity: number) => void): readonly PoolLine[] {
  if (typeof items !== 'object' || items === null)
    throw new TypeError(`items must be an object like { A: 2, B: 1 }, or a list of lines; got ${typeof items}`)
  const cart = cartLinesOf(items)
  for (const { item, quantity } of cart) {
    checkText('an item', item, LONGEST_ITEM_BYTES)
    check(item, quantity)
  }
  // Nothing to add up, and nothing to sort.
  if (cart.length === 1) return cart
  const sums = new Map<string, number>()
  for (const { item, quantity } of cart) sums.set(item, (sums.get(item) ?? 0) + quantity)
  if (sums.size === 0) throw new RangeError('items must name at least one item')
  if (sums.size > MOST_ITEMS) throw new RangeError(`items must be at most ${MOST_ITEMS} at once; got ${sums.size}`)
  for (const [item, sum] of sums) check(item, sum)
  return [...sums].map(([item, quantity]) => ({ item, quantity })).sort((a, b) => compareKeys(a.item, b.item))
}

function cartLinesOf(items: Items): readonly CartLine[] {
  if (!Array.isArray(items))
    return Object.keys(items).map((item) => ({ item, quantity: (items as Record<string, number>)[item] as number }))
  return items.map((line: CartLine) => {
    if (typeof line === 'object' && line !== null) return { item: line.item, quantity: line.quantity }
    throw new TypeError(`a line must be an object like { item: 'A', quantity: 2 }; got ${typeof line}`)
  })
}

function checkQuantity(item: string, quantity: number, from: number, to: number): void {
  if (Number.isSafeInteger(quantity) && quantity >= from && quantity <= to) return
  throw new RangeError(`the quantity of '${item}' must be a whole number from ${from} to ${to}; got ${quantity}`)
}

/** Without control characters, because a line feed separates items where servers keep them. */
function checkText(what: string, text: string, mostBytes: number): void {
  if (typeof text !== 'string') throw new TypeError(`${what} must be a string; got ${typeof text}`)
  if (text === '' || !text.isWellFormed() || /\p{Cc}/u.test(text))
    throw new RangeError(`${what} must be well-formed text without control characters; got ${JSON.stringify(text)}`)
  // No code unit of UTF-16 has more than 3 bytes.
  const bytes = 3 * text.length > mostBytes ? Buffer.byteLength(text) : 0
  if (bytes > mostBytes) throw new RangeError(`${what} must have at most ${mostBytes} bytes of UTF-8; got ${bytes}`)
}
