/**
 * What this process knows of one entry, beyond one call: which attempt it is at, what it holds, and whether it has
 * left.
 *
 * Kept while it holds, and while anything that was asked for it is unanswered: an answer that comes late finds here
 * what has become of it meanwhile.
 */
import type { Clock } from '../../core/clock.ts'
import { marginMs } from '../../core/entry.ts'

export class Stay {
  readonly key: string
  readonly id: string
  readonly holder: string
  /** What it holds with, once it does. */
  token: number | undefined
  /** Until when we may rely on it; counted from before the first send. */
  deadline: number = Number.NEGATIVE_INFINITY
  /** It stands in line, until then unless it is renewed. */
  waitsUntil: number = Number.NEGATIVE_INFINITY
  /** The attempt that it was taken with. */
  attempt = 0
  /** It was given back, or given up. Nothing of it may be set any more. */
  left = false
  /** How many calls for it are unanswered. */
  unanswered = 0
  /** By node: it was asked for there, so that something of it may be there. */
  readonly asked: boolean[] = []
  /** The longest that anything of it lives, where it is not renewed. */
  ttlMs = 0

  constructor(key: string, id: string, holder: string) {
    this.key = key
    this.id = id
    this.holder = holder
  }
}

/** How often all of them are looked through for those that ended without a word. */
const PRUNE_AFTER = 1000

export class Stays {
  readonly #stays = new Map<string, Stay>()
  #pruneAt = PRUNE_AFTER
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** The one of that id, for one more call; a new one if there is none, or if it has left. */
  of(key: string, id: string, holder: string): Stay {
    const known = this.#stays.get(id)
    const stay = known === undefined || known.left ? new Stay(key, id, holder) : known
    stay.unanswered += 1
    if (stay === known) return stay
    this.#stays.set(id, stay)
    if (this.#stays.size >= this.#pruneAt) this.#prune(this.#clock.now())
    return stay
  }

  find(id: string): Stay | undefined {
    return this.#stays.get(id)
  }

  /** An answer has come, or there was nothing to ask: forget it unless it is of use. */
  release(stay: Stay): void {
    const useful = !stay.left && (stay.token !== undefined || stay.waitsUntil > Number.NEGATIVE_INFINITY)
    if (stay.unanswered === 0 && !useful) this.forget(stay)
  }

  forget(stay: Stay): void {
    if (this.#stays.get(stay.id) === stay) this.#stays.delete(stay.id)
  }

  /** It leaves: the one of that id, if it is known. */
  leave(id: string): Stay | undefined {
    const stay = this.#stays.get(id)
    if (stay === undefined) return undefined
    stay.left = true
    this.release(stay)
    return stay
  }

  get size(): number {
    return this.#stays.size
  }

  /** Those that ended without a word: lost, or given up by somebody who could not say so. */
  #prune(now: number): void {
    for (const stay of this.#stays.values()) {
      if (stay.unanswered === 0 && Math.max(stay.deadline, stay.waitsUntil) < now) this.#stays.delete(stay.id)
    }
    this.#pruneAt = Math.max(PRUNE_AFTER, 2 * this.#stays.size)
  }
}

/** Until when a key that was asked for at `sentAt` is ours, on clocks that run a little differently. */
export function validUntil(sentAt: number, ttlMs: number): number {
  return sentAt + ttlMs - marginMs(ttlMs)
}
