/**
 * Rows of lines in which nobody is.
 *
 * A release leaves the line's row in place: keys are used again, and then a row that is there is cheaper than a new
 * one. Rows that are not used again are removed some time later, many at once, by whoever left them; and those of
 * processes that died, by anybody who comes by.
 */
import type { Clock } from '../../core/clock.ts'

/** A key that was left this long ago is not about to be used again. */
const COLD_MS = 1000
/** So many, or some for this long, and they are removed. */
const MANY = 500
const LONG_MS = 10_000
/** How often to ask whether it is time to look after the dead. */
const SWEEP_EVERY_MS = 10 * 60_000
const MOST_AT_ONCE = 2000

export class Tidying {
  readonly #clock: Clock
  readonly #remove: (keys: readonly string[], sweep: boolean) => Promise<unknown>
  /** Left lines, and when; in that order. */
  readonly #left = new Map<string, number>()
  #sweptAt = Number.NEGATIVE_INFINITY
  #working: Promise<unknown> | undefined

  constructor(clock: Clock, remove: (keys: readonly string[], sweep: boolean) => Promise<unknown>) {
    this.#clock = clock
    this.#remove = remove
  }

  entered(items: readonly { readonly key: string }[]): void {
    if (this.#left.size > 0) for (const { key } of items) this.#left.delete(key)
  }

  left(items: readonly { readonly key: string }[]): void {
    const now = this.#clock.now()
    for (const { key } of items) {
      this.#left.delete(key)
      this.#left.set(key, now)
    }
    if (this.#working === undefined && this.#isDue(now)) void this.#work(this.#take(now - COLD_MS), now)
  }

  /** The last ones, before we go. */
  async finish(): Promise<void> {
    await this.#working
    const now = this.#clock.now()
    if (this.#left.size > 0) await this.#work(this.#take(now), now)
  }

  #isDue(now: number): boolean {
    const [oldest = now] = this.#left.values()
    return now - oldest > LONG_MS || (this.#left.size > MANY && now - oldest > COLD_MS)
  }

  #take(before: number): string[] {
    const keys: string[] = []
    for (const [key, at] of this.#left) {
      if (at > before || keys.length === MOST_AT_ONCE) break
      keys.push(key)
    }
    for (const key of keys) this.#left.delete(key)
    return keys
  }

  #work(keys: readonly string[], now: number): Promise<unknown> {
    const sweep = now - this.#sweptAt > SWEEP_EVERY_MS
    if (sweep) this.#sweptAt = now
    // What fails is left to the next sweep, by whomever.
    this.#working = this.#remove(keys, sweep)
      .catch(() => undefined)
      .finally(() => {
        this.#working = undefined
      })
    return this.#working
  }
}
