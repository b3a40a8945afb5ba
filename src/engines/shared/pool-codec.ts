/**
 * Steps and answers of pools (core/store-hold.ts) as texts, for engines whose servers decide them. Lines are one text:
 * item and quantity by turns, separated by line feeds, which no item contains. As the items are in order, equal lines
 * are equal texts.
 *
 * An answer is four words: the state, a text, and two numbers.
 *
 *     held       lines     for how long it lives (ms)
 *     sold       lines
 *     gone
 *     cancelled            1 if it is wanted
 *     changed              1 if it is wanted
 *     short      item      when the next hold lapses (ms), or -1
 *     unknown    item
 *     differs    lines
 *     pool       of each item: item, stock, sold, held; when the next hold lapses (ms), or -1; how many holds
 */
import type { PoolAnswer, PoolItemView, PoolLine } from '../../core/store-hold.ts'

const SEPARATOR = '\n'

export function textOfLines(lines: readonly PoolLine[]): string {
  return lines.map(({ item, quantity }) => `${item}${SEPARATOR}${quantity}`).join(SEPARATOR)
}

export function linesOfText(text: string): readonly PoolLine[] {
  return rowsOf(text, 2).map(([item, quantity]) => ({ item: item as string, quantity: Number(quantity) }))
}

/** The words of one answer. Undefined: the server has answered something else. */
export function poolAnswerOf(words: readonly unknown[]): PoolAnswer | undefined {
  const [state, text, first, second] = words.map(String) as [string, string, string, string]
  const nextMs = Number(first) < 0 ? null : Number(first)
  switch (state) {
    case 'held':
      return { state, lines: linesOfText(text), livesForMs: Number(first) }
    case 'sold':
    case 'differs':
      return { state, lines: linesOfText(text) }
    case 'gone':
      return { state }
    case 'cancelled':
    case 'changed':
      return { state, wanted: first === '1' }
    case 'short':
      return { state, item: text, nextMs }
    case 'unknown':
      return { state, item: text }
    case 'pool':
      return { state, items: itemsOf(text), holds: Number(second), nextMs }
    default:
      return undefined
  }
}

function itemsOf(text: string): readonly PoolItemView[] {
  return rowsOf(text, 4).map(([item, stock, sold, held]) => ({
    item: item as string,
    stock: Number(stock),
    sold: Number(sold),
    held: Number(held),
  }))
}

function rowsOf(text: string, width: number): string[][] {
  if (text === '') return []
  const words = text.split(SEPARATOR)
  const rows: string[][] = []
  for (let at = 0; at < words.length; at += width) rows.push(words.slice(at, at + width))
  return rows
}
