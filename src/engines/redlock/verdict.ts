/**
 * What the answers of N nodes add up to. Pure: no clock, no network, no memory.
 *
 * **The token.** Each node counts, and gives the next number when a key is taken. A token T is granted when a majority
 * of nodes has the key under *one* number T, for one holder, all at once. If the majority answers with one number, that
 * is the case after one round trip. If not, T becomes the highest of them, and the others are asked to raise theirs: a
 * node does so only if the key is still ours there, and if its own count is not above T already; else it says what its
 * count is, and T goes up to that. So for every token there was a majority whose counts were no lower than T while the
 * key was ours. The next holder takes a majority too, at least one node of it is one of those, and that one gives it a
 * higher number: its token is higher. This needs no clock, only counts that are not forgotten.
 *
 * The shortcuts break it, and the simulator shows how: the highest number without raising the others (the next majority
 * may not have seen it); raising without asking whose the key is (two holders get one number); raising over a higher
 * count (the number may have been somebody's already).
 */
import type { Answer, Refusal } from './node.ts'

/** How many of `count` nodes are more than half of them. */
export function majorityOf(count: number): number {
  return Math.floor(count / 2) + 1
}

export type Verdict =
  /** It depends on answers that have not come. */
  | { readonly step: 'open' }
  /** It is held, with that token. */
  | { readonly step: 'granted'; readonly token: number }
  /** A majority has it, under different numbers: raise them to this one. */
  | { readonly step: 'raise'; readonly to: number }
  /** Whatever else is answered, no majority has it. */
  | { readonly step: 'failed' }

const OPEN: Verdict = { step: 'open' }
const FAILED: Verdict = { step: 'failed' }

/**
 * The answers so far, node by node; undefined: not yet. `floor`: a count that a node has named, which the token must
 * reach.
 */
export function verdict(answers: readonly (Answer | undefined)[], floor: number): Verdict {
  const most = majorityOf(answers.length)
  let ours = 0
  let open = 0
  let highest = floor
  for (const answer of answers) {
    if (answer === undefined) open += 1
    else if (typeof answer === 'number') {
      ours += 1
      if (answer > highest) highest = answer
    }
  }
  if (ours + open < most) return FAILED
  if (ours < most) return OPEN
  const token = commonNumber(answers, most)
  return token === undefined ? { step: 'raise', to: highest } : { step: 'granted', token }
}

/** The number that a majority has answered with. At most one can be that. */
export function commonNumber(answers: readonly (Answer | undefined)[], most: number): number | undefined {
  for (const candidate of answers) {
    if (typeof candidate !== 'number') continue
    let count = 0
    for (const answer of answers) if (answer === candidate) count += 1
    if (count >= most) return candidate
  }
  return undefined
}

/**
 * The same for somebody who holds already, with that token. A majority that still has it under the token confirms it;
 * numbers are not raised any more, since that would be another token. It is lost when even those that are silent would
 * not make a majority.
 */
export function verdictOnHolder(answers: readonly (Answer | undefined)[], token: number): Verdict {
  const most = majorityOf(answers.length)
  let confirmed = 0
  let possible = 0
  for (const answer of answers) {
    if (answer === token) confirmed += 1
    else if (answer === undefined || isSilent(answer)) possible += 1
  }
  if (confirmed >= most) return { step: 'granted', token }
  if (confirmed + possible < most || !answers.includes(undefined)) return FAILED
  return OPEN
}

export function isSilent(answer: Answer): answer is Extract<Refusal, { why: 'silent' }> {
  return typeof answer === 'object' && answer.why === 'silent'
}

/** What refused answers say together. */
export interface Summary {
  /** How many have answered, whatever it was. */
  readonly answered: number
  /** How many have nothing of it. */
  readonly missing: number
  readonly evicted: boolean
  /** Where what is there is no lock: how often, and the first one. */
  readonly unusables: number
  readonly unusable: Extract<Refusal, { why: 'unusable' }> | undefined
  readonly error: Error | undefined
  /** Nobody else has a majority: those who came at the same time have taken some nodes each. */
  readonly split: boolean
  readonly stranger: boolean
  readonly ahead: number
  readonly next: boolean
  /** When a majority may have become free, as far as is known. */
  readonly recheckMs: number
}

export function summaryOf(answers: readonly (Answer | undefined)[]): Summary {
  const most = majorityOf(answers.length)
  const takers = new Map<string, number>()
  const looks: number[] = []
  const sum = { answered: 0, missing: 0, evicted: false, unusables: 0, stranger: false, ahead: 0, next: false }
  let unusable: Summary['unusable']
  let error: Error | undefined
  for (const answer of answers) {
    if (answer === undefined || isSilent(answer)) {
      error ??= answer?.error
      continue
    }
    sum.answered += 1
    if (typeof answer === 'number') continue
    if (answer.why === 'missing') sum.missing += 1
    else if (answer.why === 'evicted') sum.evicted = true
    else if (answer.why === 'unusable') {
      sum.unusables += 1
      unusable ??= answer
    } else {
      takers.set(answer.by, (takers.get(answer.by) ?? 0) + 1)
      looks.push(answer.recheckMs)
      sum.stranger ||= answer.stranger
      sum.next ||= answer.next
      sum.ahead = Math.max(sum.ahead, answer.ahead)
    }
  }
  const split = Math.max(0, ...takers.values()) < most
  return { ...sum, unusable, error, split, recheckMs: looks.length === 0 ? 0 : Math.min(...looks) }
}
