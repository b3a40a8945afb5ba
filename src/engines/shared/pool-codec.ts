/**
 * Steps and answers of pools (core/store-hold.ts) as texts, for engines whose servers decide them. Lines are one text:
 * item and quantity by turns, separated by line feeds, which no item contains. As the items are in order, equal lines
 * are equal texts.
 *
 * An answer is four words: the state, a text, and two numbers.
 *
 *     held       lines     for how long it lives (ms)
 *     sold       lines
 *     gone                 (lapsed, in the answer: functions of PostgreSQL and MySQL that are installed say gone)
 *     cancelled            1 if it is wanted
 *     changed              1 if it is wanted
 *     short      item      when the next hold lapses (ms), or -1
 *     unknown    item
 *     differs    lines
 *     pool       of each item: item, stock, sold, held; when the next hold lapses (ms), or -1; how many holds
 */
import { EngineError } from '../../core/errors.ts'
import { compareKeys } from '../../core/keys.ts'
import type { PoolAnswer, PoolItemView, PoolLine, PoolStep } from '../../core/store-hold.ts'

const SEPARATOR = '\n'

export function textOfLines(lines: readonly PoolLine[]): string {
  if (lines.length === 1) return `${lines[0]?.item}${SEPARATOR}${lines[0]?.quantity}`
  return lines.map(({ item, quantity }) => `${item}${SEPARATOR}${quantity}`).join(SEPARATOR)
}

export function linesOfText(text: string): readonly PoolLine[] {
  const end = text.indexOf(SEPARATOR)
  // Nearly always it is one line.
  if (end > 0 && !text.includes(SEPARATOR, end + 1))
    return [{ item: text.slice(0, end), quantity: Number(text.slice(end + 1)) }]
  return rowsOf(text, 2).map(([item, quantity]) => ({ item: item as string, quantity: Number(quantity) }))
}

/** The pools of these steps, once each, in the order in which they are locked; and of each step which one it is. */
export function poolsOf(steps: readonly PoolStep[]): {
  readonly keys: readonly string[]
  readonly places: readonly number[]
} {
  const keys = [...new Set(steps.map(({ key }) => key))].toSorted(compareKeys)
  const places = new Map(keys.map((key, index) => [key, index + 1]))
  return { keys, places: steps.map(({ key }) => places.get(key) as number) }
}

/** The answers to `count` steps, each of four words; what is left out at the end of one is nothing. */
export function poolAnswersOf(engine: string, answers: readonly (readonly string[])[], count: number): PoolAnswer[] {
  const unexpected = (what: string): EngineError =>
    new EngineError(engine, `hold: the answer of the server ${what}`, { outcome: 'unknown', transient: false })
  if (answers.length !== count) throw unexpected(`has ${answers.length} parts instead of ${count}`)
  return answers.map((words) => {
    const answer = poolAnswerOf(words)
    if (answer === undefined) throw unexpected(`has the unknown state ${JSON.stringify(words[0])}`)
    return answer
  })
}

/** The words of one answer. Undefined: the server has answered something else. */
function poolAnswerOf(words: readonly string[]): PoolAnswer | undefined {
  const [state, text, first, second] = words as [string, string, string, string]
  switch (state) {
    case 'held':
      return { state, lines: linesOfText(text), livesForMs: Number(first) }
    case 'sold':
    case 'differs':
      return { state, lines: linesOfText(text) }
    case 'gone':
      return { state: 'lapsed' }
    case 'cancelled':
    case 'changed':
      return { state, wanted: first === '1' }
    case 'short':
      return { state, item: text, nextMs: nextMsOf(first) }
    case 'unknown':
      return { state, item: text }
    case 'pool':
      return { state, items: itemsOf(text), holds: Number(second), nextMs: nextMsOf(first) }
    default:
      return undefined
  }
}

function nextMsOf(word: string): number | null {
  return Number(word) < 0 ? null : Number(word)
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
