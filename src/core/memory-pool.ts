/** The rows of one pool in maps, for the rule in pool-rule.ts: in the memory engine, and while a record is changed. */
import { Heap, type Heaped } from './heap.ts'
import type { PoolHold, PoolItem, PoolRows } from './pool-rule.ts'

/** A hold in the heap of those that lapse, or of those that are forgotten. */
interface HeapedHold extends Heaped {
  readonly hold: PoolHold
}

export class MemoryPool implements PoolRows {
  readonly #items = new Map<string, PoolItem>()
  readonly #holds = new Map<string, HeapedHold>()
  readonly #held = new Heap<HeapedHold>()
  readonly #remembered = new Heap<HeapedHold>()

  get isEmpty(): boolean {
    return this.#items.size === 0
  }

  item(name: string): PoolItem | undefined {
    return this.#items.get(name)
  }

  saveItem(item: PoolItem): void {
    this.#items.set(item.item, item)
  }

  items(): Iterable<PoolItem> {
    return this.#items.values()
  }

  /** All ids that are known, also those that are due. */
  holds(): readonly PoolHold[] {
    return [...this.#holds.values()].map(({ hold }) => hold)
  }

  hold(id: string): PoolHold | undefined {
    return this.#holds.get(id)?.hold
  }

  saveHold(hold: PoolHold, before: PoolHold | undefined): void {
    if (before !== undefined) this.removeHold(before)
    const heaped = { hold, at: hold.at, slot: -1 }
    this.#holds.set(hold.id, heaped)
    this.#heapOf(hold).put(heaped, hold.at)
  }

  removeHold(hold: PoolHold): void {
    const heaped = this.#holds.get(hold.id)
    if (heaped === undefined) return
    this.#holds.delete(hold.id)
    this.#heapOf(hold).remove(heaped)
  }

  lapsed(now: number, atMost: number): readonly PoolHold[] {
    return takeDue(this.#held, now, atMost)
  }

  forgettable(now: number, atMost: number): readonly PoolHold[] {
    return takeDue(this.#remembered, now, atMost)
  }

  nextLapse(): number | undefined {
    return this.#held.peek()?.at
  }

  heldCount(): number {
    return this.#held.size
  }

  #heapOf({ state }: PoolHold): Heap<HeapedHold> {
    return state === 'held' ? this.#held : this.#remembered
  }
}

/** They leave the heap here, and the map when the rule removes them, which it does at once. */
function takeDue(heap: Heap<HeapedHold>, now: number, atMost: number): PoolHold[] {
  const due: PoolHold[] = []
  for (let first = heap.peek(); first !== undefined && first.at <= now && due.length < atMost; first = heap.peek()) {
    heap.remove(first)
    due.push(first.hold)
  }
  return due
}
