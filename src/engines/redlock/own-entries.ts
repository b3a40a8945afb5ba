/**
 * What this process knows of one of its entries, beyond one call: with which attempt and which token it holds, and
 * whether it has left.
 *
 * An entry is kept while it holds or waits, and while a request for it is unanswered: a reply that comes late finds
 * here what has become of the entry meanwhile.
 */
import type { Clock } from '../../core/clock.ts'
import { marginMs } from '../../core/entry.ts'

export class RedlockOwnEntry {
  readonly key: string
  readonly id: string
  readonly holder: string
  /** The token that it holds with, once it holds. */
  token: number | undefined
  /** Until when it holds for certain, by our clock; counted from before the first send. */
  deadline: number = Number.NEGATIVE_INFINITY
  /** It stands in line until then, unless it is renewed. */
  waitsUntil: number = Number.NEGATIVE_INFINITY
  /** The attempt that the key was granted to. */
  attempt = 0
  /** It was given back, or given up. No server may be told to set anything of it any more. */
  left = false
  /** How many calls for it are unanswered. */
  unanswered = 0
  /** By server: that server was asked to take the key, so that something of the entry may be there. */
  readonly askedServers: boolean[] = []
  /** The longest time that anything of it lives on a server, if it is not renewed. */
  ttlMs = 0

  constructor(key: string, id: string, holder: string) {
    this.key = key
    this.id = id
    this.holder = holder
  }
}

/** From this number of entries on, those that ended without a leave are looked for. */
const PRUNE_AFTER = 1000

export class RedlockOwnEntries {
  readonly #entries = new Map<string, RedlockOwnEntry>()
  #pruneAt = PRUNE_AFTER
  readonly #clock: Clock

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#entries.size
  }

  /** Whether there is an entry of that id that has not left. */
  has(id: string): boolean {
    return this.#entries.get(id)?.left === false
  }

  /** The entry of that id, for one more call; a new one if there is none, or if it has left. */
  use(key: string, id: string, holder: string): RedlockOwnEntry {
    const known = this.#entries.get(id)
    const entry = known === undefined || known.left ? new RedlockOwnEntry(key, id, holder) : known
    entry.unanswered += 1
    if (entry === known) return entry
    this.#entries.set(id, entry)
    if (this.#entries.size >= this.#pruneAt) this.#prune(this.#clock.now())
    return entry
  }

  /** A call for it has ended: forget the entry, unless it holds, waits, or has further calls under way. */
  release(entry: RedlockOwnEntry): void {
    const useful = !entry.left && (entry.token !== undefined || entry.waitsUntil > Number.NEGATIVE_INFINITY)
    if (entry.unanswered === 0 && !useful) this.forget(entry)
  }

  forget(entry: RedlockOwnEntry): void {
    if (this.#entries.get(entry.id) === entry) this.#entries.delete(entry.id)
  }

  /** The entry of that id leaves. Returns it, if it is known. */
  leave(id: string): RedlockOwnEntry | undefined {
    const entry = this.#entries.get(id)
    if (entry === undefined) return undefined
    entry.left = true
    this.release(entry)
    return entry
  }

  /** Forget the entries whose time is over: they were lost, or the core has given them up without a leave. */
  #prune(now: number): void {
    for (const entry of this.#entries.values()) {
      if (entry.unanswered === 0 && Math.max(entry.deadline, entry.waitsUntil) < now) this.#entries.delete(entry.id)
    }
    this.#pruneAt = Math.max(PRUNE_AFTER, 2 * this.#entries.size)
  }
}

/** Until when a key that was asked for at `sentAt` is held, by clocks that run a little differently. */
export function validUntil(sentAt: number, ttlMs: number): number {
  return sentAt + ttlMs - marginMs(ttlMs)
}
