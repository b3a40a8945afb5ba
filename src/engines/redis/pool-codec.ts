/** What lua/hold.lua is given, and what it answers, in the words of the contract. */
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import { poolAnswersOf, textOfLines } from '../shared/pool-codec.ts'
import { poolKeys } from './names.ts'

const ANSWER_WORDS = 4

/** All words of a call. */
export function holdWords(names: RedisNames, steps: readonly PoolStep[]): string[] {
  const numbers = new Map<string, number>()
  for (const { key } of steps) if (!numbers.has(key)) numbers.set(key, numbers.size + 1)
  const serverKeys = [...numbers.keys()].map((key) => names.serverKey(key))
  const words = names.cluster
    ? ['', String(4 * serverKeys.length), ...serverKeys.flatMap(poolKeys), '']
    : ['', '0', serverKeys.join('\0')]
  for (const { key, verb, id, lines, ms, wantMs, flag } of steps) {
    words.push(`${numbers.get(key)} ${verb} ${Math.ceil(ms)} ${Math.ceil(wantMs)} ${flag ? 1 : 0}`)
    words.push(id, textOfLines(lines))
  }
  return words
}

export function readHolds(reply: unknown, count: number): PoolAnswer[] {
  const words: readonly unknown[] = Array.isArray(reply) ? reply : []
  const answers: unknown[][] = []
  for (let at = 0; at < words.length; at += ANSWER_WORDS) answers.push(words.slice(at, at + ANSWER_WORDS))
  return poolAnswersOf(ENGINE, answers, count)
}
