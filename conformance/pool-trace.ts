/**
 * Random steps on pools, for the rule, its mutants, and every engine that keeps pools.
 *
 * Items, ids and quantities are few, so that steps meet: retries, reuse with other quantities, holds that lapse while
 * others wait. Now and then many small holds lapse at once: more than a step takes back at a time.
 */

import { compareKeys } from '../src/core/keys.ts'
import type { PoolAnswer, PoolLine, PoolStep } from '../src/core/store-hold.ts'
import { type Dice, dice } from './chance.ts'

const ITEMS = ['A', 'a', 'á', 'a b', '{x}', '"', '\u{1F512}']
const UNKNOWN_ITEM = 'unknown'
const KEYS = ['stock:one', 'stock:two}']
const IDS = 14
const BUYERS = 5
/**
 * The clock is moved by whole ticks, and what lives does so for some ticks and a half: see
 * test/engines/differential.ts.
 */
export const TICK_MS = 100
const CROWD = 230

export class PoolTrace {
  readonly #dice: Dice
  #changes = 0
  #crowds = 0
  #hasMoved = false

  readonly #keys: readonly string[]

  constructor(seed: number, keys: readonly string[] = KEYS) {
    this.#dice = dice(seed)
    this.#keys = keys
  }

  /** Steps of one call, or for how many milliseconds to move the clock before the next one. */
  next(): readonly PoolStep[] | number {
    const chance = this.#dice
    // Right after the clock was moved, what has lapsed was not taken back by any other step.
    if (this.#hasMoved || chance.oneIn(3)) {
      this.#hasMoved = false
      return [this.#usualStep()]
    }
    if (chance.oneIn(6)) {
      this.#hasMoved = chance.oneIn(2)
      return TICK_MS * chance.below(chance.oneIn(4) ? 60 : 8)
    }
    if (chance.oneIn(60)) return this.#crowd()
    const steps = Array.from({ length: 1 + chance.below(4) }, () => this.#step())
    return chance.oneIn(4) ? [...steps, this.#show(chance.pick(this.#keys))] : steps
  }

  /** Many that hold one each, for all that is left, and lapse together: the next cart needs most of them back. */
  #crowd(): readonly PoolStep[] {
    const key = this.#dice.pick(this.#keys)
    this.#crowds += 1
    const lines = [{ item: 'A', quantity: 1 }]
    const steps = Array.from({ length: CROWD }, (_, index) =>
      stepOf(key, 'reserve', { id: `crowd ${this.#crowds} ${index}`, lines, ms: 2.5 * TICK_MS }),
    )
    return [
      stepOf(key, 'set', { id: this.#changeId(), lines: [{ item: 'A', quantity: CROWD }], ms: 2.5 * TICK_MS }),
      ...steps,
    ]
  }

  #step(): PoolStep {
    const chance = this.#dice
    const key = chance.pick(this.#keys)
    const verbs = [
      'reserve',
      'reserve',
      'reserve',
      'reserve',
      'extend',
      'confirm',
      'confirm',
      'cancel',
      'find',
    ] as const
    const verb = chance.oneIn(6) ? chance.pick(['set', 'add', 'unwant'] as const) : chance.pick(verbs)
    const id = `cart ${chance.below(IDS)}`
    const ms = TICK_MS * (chance.below(30) + 0.5)
    const wantMs = verb === 'reserve' && chance.oneIn(5) ? TICK_MS * (chance.below(10) + 0.5) : 0
    const flag = chance.oneIn(3)
    if (verb === 'set') return stepOf(key, verb, { id: this.#changeId(), lines: this.#lines(0, 9), ms, flag })
    if (verb === 'add') return stepOf(key, verb, { id: this.#changeId(), lines: this.#lines(-5, 5), ms, flag })
    return stepOf(key, verb, { id, lines: this.#lines(1, 4), ms, wantMs, flag })
  }

  /** One step about one item, as most buyers make them: servers have a short way for these. */
  #usualStep(): PoolStep {
    const chance = this.#dice
    const verb = chance.pick(['reserve', 'reserve', 'confirm'] as const)
    const lines = [{ item: chance.pick(ITEMS), quantity: 1 + chance.below(3) }]
    const ms = TICK_MS * (chance.below(30) + 0.5)
    return stepOf(chance.pick(this.#keys), verb, { id: `buyer ${chance.below(BUYERS)}`, lines, ms })
  }

  #show(key: string): PoolStep {
    return stepOf(key, 'show', { id: '' })
  }

  /** Sometimes one of before: the same change, asked again. */
  #changeId(): string {
    if (!this.#dice.oneIn(5)) this.#changes += 1
    return `\tchange ${this.#changes}`
  }

  #lines(from: number, to: number): readonly PoolLine[] {
    const chance = this.#dice
    const items = new Set(Array.from({ length: 1 + chance.below(3) }, () => chance.pick(ITEMS)))
    if (chance.oneIn(25)) items.add(UNKNOWN_ITEM)
    const lines = [...items].sort(compareKeys).map((item) => ({ item, quantity: from + chance.below(to - from + 1) }))
    // An item that no step gives a stock to.
    return from === 1
      ? lines
      : lines.filter(({ item, quantity }) => item !== UNKNOWN_ITEM && (quantity !== 0 || from === 0))
  }
}

export function stepOf(key: string, verb: PoolStep['verb'], asked: Partial<PoolStep> & { id: string }): PoolStep {
  return { key, verb, lines: [], ms: 0, wantMs: 0, flag: false, ...asked }
}

/** An answer with items in order, and without times. */
export function timeless(answer: PoolAnswer): unknown {
  const { livesForMs, nextMs, ...others } = comparable(answer) as Record<string, unknown>
  return { ...others, lives: livesForMs !== undefined, lapses: typeof nextMs }
}

/** An answer with items in order, and times in ticks: a server counts whole milliseconds. */
export function comparable(answer: PoolAnswer | undefined): unknown {
  if (answer === undefined) return undefined
  const ticks = (ms: number | null): number | null => (ms === null ? null : Math.ceil(ms / TICK_MS))
  if (answer.state === 'held') return { ...answer, livesForMs: ticks(answer.livesForMs) }
  if (answer.state === 'short') return { ...answer, nextMs: ticks(answer.nextMs) }
  if (answer.state !== 'pool') return answer
  const items = [...answer.items].sort((a, b) => compareKeys(a.item, b.item))
  return { ...answer, items, nextMs: ticks(answer.nextMs) }
}
