/**
 * A binary heap of items ordered by one number (a time), from which any item can be removed in O(log n).
 *
 * The heartbeat, the memory engine's expiry and the simulator's timers all need "the earliest, and forget this one".
 * Each item carries its own position, so that an entry released long before it is due costs nothing afterwards (a lazy
 * heap would keep it until then).
 */
export interface Heaped {
  /** The order: the smallest is on top. Change it only through `Heap.put`. */
  at: number
  /** Owned by the heap: the position, or -1 when not in it. */
  slot: number
}

export class Heap<Item extends Heaped> {
  readonly #items: Item[] = []

  get size(): number {
    return this.#items.length
  }

  peek(): Item | undefined {
    return this.#items[0]
  }

  /** Insert `item` at `at`, or move it there. */
  put(item: Item, at: number): void {
    item.at = at
    if (item.slot < 0) {
      item.slot = this.#items.length
      this.#items.push(item)
    }
    this.#up(item)
    this.#down(item)
  }

  /** Forget `item`; no effect if it is not in the heap. */
  remove(item: Item): void {
    const { slot } = item
    if (slot < 0) return
    item.slot = -1
    const last = this.#items.pop() as Item
    if (last === item) return
    last.slot = slot
    this.#items[slot] = last
    this.#up(last)
    this.#down(last)
  }

  /** The items, in no order. */
  values(): IterableIterator<Item> {
    return this.#items.values()
  }

  #up(item: Item): void {
    const items = this.#items
    let slot = item.slot
    while (slot > 0) {
      const above = (slot - 1) >> 1
      const parent = items[above] as Item
      if (parent.at <= item.at) break
      items[slot] = parent
      parent.slot = slot
      slot = above
    }
    items[slot] = item
    item.slot = slot
  }

  #down(item: Item): void {
    const items = this.#items
    let slot = item.slot
    for (;;) {
      let below = 2 * slot + 1
      if (below >= items.length) break
      if (below + 1 < items.length && (items[below + 1] as Item).at < (items[below] as Item).at) below += 1
      const child = items[below] as Item
      if (child.at >= item.at) break
      items[slot] = child
      child.slot = slot
      slot = below
    }
    items[slot] = item
    item.slot = slot
  }
}
