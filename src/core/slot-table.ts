/**
 * What comes and goes all the time, found by name: entries by id, callers on their way, reads that were not sent yet.
 *
 * It is not a map from names to values. A map that is changed like that gets a new table now and then, and V8 lets each
 * outgrown table refer to the next one. Such tables end up where the garbage collector looks seldom, and keep whatever
 * was in them: half of all entries, with their promises, outlived their release by seconds, and moving them about cost
 * more than all else that a lock does. In this table they are names and small numbers.
 */
const DELETED_BEFORE_COPY = 64

export class SlotTable<Value> {
  #slots = new Map<string, number>()
  readonly #values: (Value | undefined)[] = []
  readonly #free: number[] = []
  #deleted = 0

  get size(): number {
    return this.#slots.size
  }

  /** `name` is not in the table. */
  add(name: string, value: Value): void {
    const slot = this.#free.pop() ?? this.#values.length
    this.#values[slot] = value
    this.#slots.set(name, slot)
  }

  get(name: string): Value | undefined {
    const slot = this.#slots.get(name)
    return slot === undefined ? undefined : this.#values[slot]
  }

  /** No effect if it is not there. */
  delete(name: string): void {
    const slot = this.#slots.get(name)
    if (slot === undefined) return
    this.#slots.delete(name)
    this.#values[slot] = undefined
    this.#free.push(slot)
    this.#deleted += 1
    if (this.#deleted < DELETED_BEFORE_COPY + this.#slots.size) return
    // A new map has nothing to do with the tables that the one before has outgrown.
    this.#slots = new Map(this.#slots)
    this.#deleted = 0
  }

  /** All of them, as they are now. */
  all(): Value[] {
    return this.#values.filter((value) => value !== undefined)
  }

  clear(): void {
    this.#slots.clear()
    this.#values.length = 0
    this.#free.length = 0
  }
}
