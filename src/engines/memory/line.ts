/**
 * One line of the memory engine: who is in it, who of them holds, and the others in order. Waiters are a linked list,
 * so that the first is found, and any of them removed, at once.
 */
import type { News } from '../../core/engine.ts'
import type { Heaped } from '../../core/heap.ts'
import { HeldPrefix } from '../../core/line.ts'

/** `Heaped.at` is the expiry. */
export interface Entry extends Heaped {
  readonly key: string
  readonly id: string
  readonly holder: string
  readonly weight: number
  readonly limit: number
  readonly token: bigint
  readonly client: Client
  readonly enteredAt: number
  ttlMs: number
  heldAt: number
  /**
   * `removed`: out of the line by eviction, and remembered until it would have expired, so that its owner hears the
   * reason.
   */
  state: 'held' | 'waiting' | 'removed'
  evicted: boolean
  /** It was renewed to stand in the line without its owner. */
  outlives: boolean
  previous: Entry | undefined
  next: Entry | undefined
}

/** Whoever entered: where its news go. */
export interface Client {
  listener: ((news: News) => void) | undefined
}

export class MemoryLine {
  readonly entries: Map<string, Entry> = new Map()
  readonly held: HeldPrefix = new HeldPrefix()
  first: Entry | undefined
  waitingCount = 0
  #last: Entry | undefined

  /** Let it wait, at the back. */
  append(entry: Entry): void {
    entry.previous = this.#last
    if (this.#last === undefined) this.first = entry
    else this.#last.next = entry
    this.#last = entry
    this.waitingCount += 1
  }

  /** It waits no more. */
  unlink(entry: Entry): void {
    if (entry.previous === undefined) this.first = entry.next
    else entry.previous.next = entry.next
    if (entry.next === undefined) this.#last = entry.previous
    else entry.next.previous = entry.previous
    entry.previous = undefined
    entry.next = undefined
    this.waitingCount -= 1
  }
}
