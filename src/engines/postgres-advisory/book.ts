/**
 * Who of this process wants what. A session may take its own lock twice, so the server cannot keep two entries of one
 * process apart: this does. Entries of a key stand in order of arrival; the front may ask the server, together with the
 * readers right behind it; whoever comes after a waiting writer of this process waits behind it.
 */

import { advisoryKey } from '../../clients/postgres/advisory-key.ts'
import { type Claim, type Place, UNLIMITED } from '../../core/engine.ts'

export interface Entry {
  readonly claim: Claim
  readonly shared: boolean
  readonly enteredAt: number
  ttlMs: number
  token: bigint | undefined
  /** The server has not been told of it. */
  fresh: boolean
}

/** The flag is another number of the same key. No key has a NUL in it. */
const FLAG = '\0waiting'

/** One key: its entries in order of arrival, and what our session has of it at the server. */
export class KeyBook {
  readonly key: string
  readonly #number: string
  readonly #flag: string
  readonly entries: Map<string, Entry> = new Map()
  lock: 'none' | 'shared' | 'exclusive' = 'none'
  flagged = false

  constructor(key: string) {
    this.key = key
    this.#number = String(advisoryKey(key))
    this.#flag = String(advisoryKey(key + FLAG))
  }

  get waits(): boolean {
    return this.#waiting().length > 0
  }

  #waiting(): readonly Entry[] {
    return [...this.entries.values()].filter(({ token }) => token === undefined)
  }

  /** Those who could hold now if the server agreed: nobody, one writer, or readers. */
  #candidates(waiting: readonly Entry[]): readonly Entry[] {
    if (this.lock === 'exclusive') return []
    const writer = waiting.findIndex(({ shared }) => !shared)
    if (writer === 0) return this.lock === 'none' ? waiting.slice(0, 1) : []
    return writer === -1 ? waiting : waiting.slice(0, writer)
  }

  /** What to ask the server, as sql.ts has it. Nothing, if nobody may hold and nobody is new. */
  question(now: number): object | undefined {
    const waiting = this.#waiting()
    const candidates = new Set(this.#candidates(waiting))
    const concerned = waiting.filter((entry) => candidates.has(entry) || (entry.fresh && entry.claim.wait))
    if (concerned.length === 0) return undefined
    const entries = concerned.map((entry) => {
      const { claim, ttlMs, enteredAt, shared, fresh } = entry
      entry.fresh = false
      return {
        id: claim.id,
        holder: claim.holder,
        ttlMs,
        ageMs: now - enteredAt,
        shared,
        asks: candidates.has(entry),
        wait: claim.wait,
        fresh,
      }
    })
    const shared = concerned[0]?.shared === true
    return {
      key: this.key,
      number: this.#number,
      flag: this.#flag,
      shared,
      asks: candidates.size > 0,
      have: shared && this.lock === 'shared',
      waits: waiting.some(({ claim }) => claim.wait),
      flagged: this.flagged,
      entries,
    }
  }

  /** What the server said of one entry; the entry, if it holds now. */
  answered(id: string, outcome: string, token: unknown): Entry | undefined {
    const entry = this.entries.get(id)
    if (outcome.endsWith('Flagged')) this.flagged = true
    if (entry === undefined || token === null) return undefined
    entry.token = BigInt(token as string)
    this.lock = entry.shared ? 'shared' : 'exclusive'
    return entry
  }

  /** What to give back, after somebody went, as sql.ts has it. */
  farewell(): object {
    const waiting = this.#waiting().length
    const unlock = this.lock !== 'none' && waiting === this.entries.size
    const unflag = this.flagged && waiting === 0
    const question = {
      key: this.key,
      number: this.#number,
      flag: this.#flag,
      shared: this.lock === 'shared',
      unlock,
      unflag,
    }
    if (unlock) this.lock = 'none'
    if (unflag) this.flagged = false
    return question
  }
}

export class Book {
  readonly #keys = new Map<string, KeyBook>()

  at(key: string): KeyBook | undefined {
    return this.#keys.get(key)
  }

  find(key: string, id: string): Entry | undefined {
    return this.#keys.get(key)?.entries.get(id)
  }

  holds({ key, id }: Pick<Place, 'key' | 'id'>): boolean {
    return this.find(key, id)?.token !== undefined
  }

  add(claim: Claim, now: number): Claim {
    const book = this.#keys.get(claim.key) ?? new KeyBook(claim.key)
    this.#keys.set(claim.key, book)
    const shared = claim.limit === UNLIMITED
    book.entries.set(claim.id, { claim, shared, enteredAt: now, ttlMs: claim.ttlMs, token: undefined, fresh: true })
    return claim
  }

  /** Whether it was there. A key that nobody wants is forgotten; whoever gives back its lock has the book in hand. */
  remove({ key, id }: Pick<Place, 'key' | 'id'>): boolean {
    const book = this.#keys.get(key)
    const there = book?.entries.delete(id) === true
    if (book?.entries.size === 0) this.#keys.delete(key)
    return there
  }

  all(): readonly Entry[] {
    return [...this.#keys.values()].flatMap((book) => [...book.entries.values()])
  }

  waitedFor(): readonly KeyBook[] {
    return [...this.#keys.values()].filter((book) => book.waits)
  }

  /** The session is no more: what it held is lost, and is answered. Those who wait go on waiting. */
  sessionLost(): readonly Entry[] {
    for (const book of this.#keys.values()) {
      book.lock = 'none'
      book.flagged = false
    }
    const lost = this.all().filter(({ token }) => token !== undefined)
    for (const { claim } of lost) this.remove(claim)
    for (const entry of this.all()) entry.fresh = true
    return lost
  }
}
