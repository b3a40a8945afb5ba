/**
 * The entries of this process, found by id.
 *
 * It is not a map from ids to entries, because entries come and go all the time. A map that is changed like that gets a
 * new table now and then, and V8 lets each outgrown table refer to the next one. Such tables end up where the garbage
 * collector looks seldom, and keep whatever was in them: half of all entries, with their promises, outlived their
 * release by seconds, and moving them about cost more than all else that a lock does. In this table they are ids and
 * small numbers.
 */
import type { Entry } from './entry.ts'

export class EntryTable {
  readonly #slots = new Map<string, number>()
  readonly #entries: (Entry | undefined)[] = []
  readonly #free: number[] = []

  get size(): number {
    return this.#slots.size
  }

  add(entry: Entry): void {
    const slot = this.#free.pop() ?? this.#entries.length
    this.#entries[slot] = entry
    this.#slots.set(entry.id, slot)
  }

  get(id: string): Entry | undefined {
    const slot = this.#slots.get(id)
    return slot === undefined ? undefined : this.#entries[slot]
  }

  /** No effect if it is not there. */
  delete({ id }: Entry): void {
    const slot = this.#slots.get(id)
    if (slot === undefined) return
    this.#slots.delete(id)
    this.#entries[slot] = undefined
    this.#free.push(slot)
  }

  /** All of them, as they are now. */
  all(): Entry[] {
    return this.#entries.filter((entry) => entry !== undefined)
  }
}
