/** Draws as functions and procedures of SQL want them, and what those answer in the words of the contract. */
import { EngineError } from '../../core/errors.ts'
import { compareKeys } from '../../core/keys.ts'
import type { Rate } from '../../core/rate.ts'
import { type Draw, type Drawn, notARate } from '../../core/store-take.ts'

/** The parts of all draws, one after the other. Keys and rates are told once, and named by their place, from 1 on. */
export interface DrawArguments {
  /** Once each, in the order in which their records are locked. */
  readonly keys: readonly string[]
  readonly rates: readonly Rate[]
  readonly parts: readonly { readonly place: number; readonly rate: number; readonly cost: number }[]
}

export function drawArguments(draws: readonly Draw[]): DrawArguments {
  const parts = draws.flatMap((draw) => draw.parts)
  const keys = [...new Set(parts.map(({ key }) => key))].toSorted(compareKeys)
  const rates = [...new Set(parts.map(({ rate }) => rate))]
  const places = new Map(keys.map((key, index) => [key, index + 1]))
  const numbers = new Map(rates.map((rate, index) => [rate, index + 1]))
  return {
    keys,
    rates,
    parts: parts.map(({ key, rate, cost }) => ({
      place: places.get(key) as number,
      rate: numbers.get(rate) as number,
      cost,
    })),
  }
}

/** `words`: for each draw 't' or 'r' with the debts behind it, or '!'. */
export function drawnOf(engine: string, { parts }: Draw, words: string, nowUs: number): Drawn {
  const [code, ...debts] = words.split(' ')
  if (code === '!') return { state: 'failed', error: notARate(engine, parts[0]?.key ?? '') }
  if ((code !== 't' && code !== 'r') || debts.length !== parts.length)
    throw new EngineError(engine, `take: the answer of the server is ${JSON.stringify(words)}`, {
      outcome: 'unknown',
      transient: false,
    })
  return { state: 'drawn', taken: code === 't', debts: debts.map(Number), nowUs }
}
