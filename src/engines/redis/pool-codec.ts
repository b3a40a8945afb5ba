/** What lua/hold.lua is given, and what it answers, in the words of the contract. */
import { ENGINE } from '../../clients/redis/errors.ts'
import type { RedisNames } from '../../clients/redis/names.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import { poolAnswersOf, textOfLines } from '../shared/pool-codec.ts'
import { poolKeys } from './names.ts'

/** All words of a call. */
export function holdWords(names: RedisNames, steps: readonly PoolStep[]): string[] {
  const [only] = steps
  if (steps.length === 1 && only !== undefined && !names.cluster)
    return ['', '0', names.serverKey(only.key), askedOf(1, only), only.id, textOfLines(only.lines)]
  const numbers = new Map<string, number>()
  for (const { key } of steps) if (!numbers.has(key)) numbers.set(key, numbers.size + 1)
  const serverKeys = [...numbers.keys()].map((key) => names.serverKey(key))
  const words = names.cluster
    ? ['', String(4 * serverKeys.length), ...serverKeys.flatMap(poolKeys), '']
    : ['', '0', serverKeys.join('\0')]
  for (const step of steps) words.push(askedOf(numbers.get(step.key) as number, step), step.id, textOfLines(step.lines))
  return words
}

function askedOf(pool: number, { verb, ms, wantMs, flag }: PoolStep): string {
  return `${pool} ${verb} ${Math.ceil(ms)} ${Math.ceil(wantMs)} ${flag ? 1 : 0}`
}

export function holdAnswersOf(reply: unknown, count: number): PoolAnswer[] {
  const texts: readonly unknown[] = Array.isArray(reply) ? reply : []
  return poolAnswersOf(
    ENGINE,
    texts.map((text) => String(text).split('\t')),
    count,
  )
}
