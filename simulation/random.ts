/**
 * Chance, from a seed: everything random in a run comes from here, so that one number replays it.
 *
 * The generator is mulberry32: a few operations for each number, and random enough to decide which message gets lost.
 */
import type { Chance } from '../src/core/clock.ts'

export class Random implements Chance {
  readonly #name: string
  #state: number
  #ids = 0

  /** `name` starts the ids, so that a reader of the event log sees whose they are. */
  constructor(seed: number, name = '') {
    this.#name = name
    // Neighbouring seeds must not give neighbouring runs: scatter the bits first.
    this.#state = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul((seed / 0x100000000) | 0, 0xc2b2ae35)
    this.fraction()
    this.fraction()
  }

  fraction(): number {
    this.#state = (this.#state + 0x6d2b79f5) | 0
    let bits = Math.imul(this.#state ^ (this.#state >>> 15), 1 | this.#state)
    bits = (bits + Math.imul(bits ^ (bits >>> 7), 61 | bits)) ^ bits
    return ((bits ^ (bits >>> 14)) >>> 0) / 0x100000000
  }

  /** Not 128 random bits: two ids of one run are never equal, and they are short enough to follow in a log. */
  id(): string {
    const id = this.nextId
    this.#ids += 1
    return id
  }

  /** What `id()` will say. */
  get nextId(): string {
    return `${this.#name}.${this.#ids + 1}`
  }

  between(least: number, most: number): number {
    return least + (most - least) * this.fraction()
  }

  /** A whole number, both ends included. */
  whole(least: number, most: number): number {
    return least + Math.floor(this.fraction() * (most - least + 1))
  }

  /** True, this often. */
  happens(probability: number): boolean {
    return probability > 0 && this.fraction() < probability
  }

  pick<Item>(items: readonly Item[]): Item {
    return items[Math.floor(this.fraction() * items.length)] as Item
  }

  /** A generator of its own, that what others draw does not disturb. */
  fork(name: string): Random {
    return new Random(Math.floor(this.fraction() * 0x100000000), name)
  }
}
