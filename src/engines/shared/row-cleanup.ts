/**
 * Rows of empty lines, for engines that keep a row for each line.
 *
 * A release leaves the line's row in place: keys are used again, and then a row that is there is cheaper than a new
 * one. Rows that are not used again are removed some time later, many at once, by the process that left them; and those
 * of processes that died, by any process that comes by. Until then this is also a memory of lines that have a row.
 */
import type { Clock } from '../../core/clock.ts'

/** So many, or some for this long, and they are removed. */
const MANY = 500
const LONG_MS = 10_000
/** How often to look for what dead processes have left. */
const SWEEP_EVERY_MS = 10 * 60_000
const MOST_AT_ONCE = 2000

/** How this process left a line: empty, or with others in it. */
export type LeftAs = 'free' | 'crowd'

interface LeftLine {
  readonly at: number
  readonly as: LeftAs
}

/** Remove the rows of these keys; with `sweep`, also those that dead processes have left. */
type Remove = (keys: readonly string[], sweep: boolean) => Promise<unknown>

export class RowCleanup {
  readonly #clock: Clock
  readonly #coldMs: number
  readonly #remove: Remove
  /** Lines that this process has left; the longest ago first. */
  readonly #left = new Map<string, LeftLine>()
  #sweptAt = Number.NEGATIVE_INFINITY
  #working: Promise<unknown> | undefined

  /** `coldMs`: a key that was left this long ago is not about to be used again. Only the client knows when that was. */
  constructor(clock: Clock, coldMs: number, remove: Remove) {
    this.#clock = clock
    this.#coldMs = coldMs
    this.#remove = remove
  }

  leftAs(key: string): LeftAs | undefined {
    return this.#left.get(key)?.as
  }

  entered(items: readonly { readonly key: string }[]): void {
    if (this.#left.size > 0) for (const { key } of items) this.#left.delete(key)
  }

  left(key: string, as: LeftAs): void {
    this.#left.delete(key)
    this.#left.set(key, { at: this.#clock.now(), as })
  }

  /** See whether there is something to remove. */
  work(): void {
    const now = this.#clock.now()
    if (this.#working === undefined && this.#isDue(now)) void this.#work(this.#take(now - this.#coldMs), now)
  }

  /** The last ones, before the engine is closed. */
  async finish(): Promise<void> {
    await this.#working
    const now = this.#clock.now()
    if (this.#left.size > 0) await this.#work(this.#take(now), now)
  }

  #isDue(now: number): boolean {
    const [oldest] = this.#left.values()
    const ageMs = oldest === undefined ? 0 : now - oldest.at
    return ageMs > LONG_MS || (this.#left.size > MANY && ageMs > this.#coldMs)
  }

  #take(before: number): string[] {
    const keys: string[] = []
    for (const [key, { at }] of this.#left) {
      if (at > before || keys.length === MOST_AT_ONCE) break
      keys.push(key)
    }
    for (const key of keys) this.#left.delete(key)
    return keys
  }

  #work(keys: readonly string[], now: number): Promise<unknown> {
    const sweep = now - this.#sweptAt > SWEEP_EVERY_MS
    if (sweep) this.#sweptAt = now
    // What fails is left to the next sweep of any process.
    this.#working = this.#remove(keys, sweep)
      .catch(() => undefined)
      .finally(() => {
        this.#working = undefined
      })
    return this.#working
  }
}
