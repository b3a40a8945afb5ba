/**
 * One line of the memory engine: its entries, the holders among them, and the waiters in order. Waiters are a linked
 * list, so that the first is found, and any of them removed, in one step.
 */
import type { Claim, News } from '../../core/engine.ts'
import type { Heaped } from '../../core/heap.ts'
import { HeldPrefix } from '../../core/line.ts'

/** Where the news of an entry go: to the engine object that it entered by. */
export interface NewsReceiver {
  listener: ((news: News) => void) | undefined
}

/** `Heaped.at` is the expiry. */
export interface MemoryEntry extends Heaped {
  readonly key: string
  readonly id: string
  readonly holder: string
  readonly weight: number
  readonly limit: number
  readonly token: bigint
  readonly receiver: NewsReceiver
  readonly enteredAt: number
  ttlMs: number
  heldAt: number
  /**
   * `removed`: out of the line by eviction, and remembered until it would have expired, so that its owner hears the
   * reason.
   */
  state: 'held' | 'waiting' | 'removed'
  /** It may not renew any more. */
  evicted: boolean
  /** It was renewed to stand in the line without its owner. */
  outlives: boolean
  previous: MemoryEntry | undefined
  next: MemoryEntry | undefined
}

/** An entry that is in no line yet. */
export function newEntry(claim: Claim, token: bigint, receiver: NewsReceiver, now: number): MemoryEntry {
  const { key, id, holder, weight, limit, ttlMs } = claim
  return {
    key,
    id,
    holder,
    weight,
    limit,
    token,
    receiver,
    enteredAt: now,
    ttlMs,
    heldAt: now,
    state: 'waiting',
    evicted: false,
    outlives: false,
    previous: undefined,
    next: undefined,
    at: 0,
    slot: -1,
  }
}

export class MemoryLine {
  /** By id; the removed ones are among them until they expire. */
  readonly entries: Map<string, MemoryEntry> = new Map()
  readonly held: HeldPrefix = new HeldPrefix()
  /** The first waiter. */
  first: MemoryEntry | undefined
  waitingCount = 0
  #last: MemoryEntry | undefined

  /** How many hold or wait. */
  get size(): number {
    return this.held.count + this.waitingCount
  }

  /** Let it wait, behind all others. */
  append(entry: MemoryEntry): void {
    entry.previous = this.#last
    if (this.#last === undefined) this.first = entry
    else this.#last.next = entry
    this.#last = entry
    this.waitingCount += 1
  }

  /** It waits no more. */
  unlink(entry: MemoryEntry): void {
    if (entry.previous === undefined) this.first = entry.next
    else entry.previous.next = entry.next
    if (entry.next === undefined) this.#last = entry.previous
    else entry.next.previous = entry.previous
    entry.previous = undefined
    entry.next = undefined
    this.waitingCount -= 1
  }
}
