/** What the scripts answer, in the words of node.ts. */
import { EngineError } from '../../core/errors.ts'
import { ENGINE } from './errors.ts'
import type { Answer } from './node.ts'

/** The answers of lua/ask.lua. */
export function answersIn(reply: unknown, count: number): readonly Answer[] {
  // Most often there is one, and every caller pays for this once for each server.
  if (count === 1) return [answerIn(String(reply))]
  const words = String(reply).split(' ')
  if (words.length !== count) throw strange(reply)
  return words.map(answerIn)
}

function answerIn(word: string): Answer {
  const number = Number(word)
  if (number > 0) return number
  const [code, first = '', second = '', ahead, next, recheckMs] = word.split(':')
  switch (code) {
    case 't':
      return {
        why: 'taken',
        by: first,
        stranger: second === '1',
        ahead: Number(ahead),
        next: next === '1',
        recheckMs: Number(recheckMs),
      }
    case 'm':
      return { why: 'missing', nowMs: Number(first) }
    case 'e':
      return { why: 'evicted' }
    case 'u':
      return { why: 'unusable', kind: first, detail: second }
    default:
      throw strange(word)
  }
}

/** The answers of lua/raise.lua. */
export function numbersIn(reply: unknown, count: number): readonly number[] {
  const numbers = String(reply).split(' ').map(Number)
  if (numbers.length !== count || numbers.some((number) => !Number.isSafeInteger(number))) throw strange(reply)
  return numbers
}

/** The answers of lua/leave.lua and lua/retreat.lua. */
export function wereIn(reply: unknown, count: number): readonly boolean[] {
  const codes = String(reply)
  if (codes.length !== count) throw strange(codes)
  const were: boolean[] = []
  for (let at = 0; at < count; at += 1) were.push(codes[at] === '1')
  return were
}

/** Not what our scripts say. Whatever it is, nobody knows what it did. */
function strange(what: unknown): EngineError {
  return new EngineError(ENGINE, `an answer that makes no sense: ${JSON.stringify(what)}`, {
    outcome: 'unknown',
    transient: false,
  })
}
