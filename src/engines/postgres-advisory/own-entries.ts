/**
 * The entries of this process. A session may take its own lock twice, so the server cannot keep two entries of one
 * process apart: this does. Entries of a key stand in order of arrival. The front may ask the server, together with the
 * readers right behind it. An entry that comes after a waiting writer of this process waits behind that writer.
 */

import { advisoryKey } from '../../clients/postgres/advisory-key.ts'
import { type Claim, type EntryName, type Place, UNLIMITED } from '../../core/engine.ts'
import type { AttemptAnswer, KeyAttempt, KeyRelease } from './codec.ts'

export interface AdvisoryOwnEntry {
  readonly claim: Claim
  readonly shared: boolean
  readonly enteredAt: number
  ttlMs: number
  /** When the core last asked for it. */
  askedAt: number
  /** It holds, by this token. */
  token: bigint | undefined
  /** The server has not been told of it. */
  fresh: boolean
}

const NEVER = Number.POSITIVE_INFINITY

/** The flag is another number of the same key. No key has a NUL in it. */
const FLAG = '\0waiting'

/** One key: its entries in order of arrival, and what our session has of it at the server. */
export class AdvisoryOwnKey {
  readonly key: string
  readonly #number: string
  readonly #flag: string
  readonly entries: Map<string, AdvisoryOwnEntry> = new Map()
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

  #waiting(): readonly AdvisoryOwnEntry[] {
    return [...this.entries.values()].filter(({ token }) => token === undefined)
  }

  /** The entries that could hold now if the server agreed: none, one writer, or readers. */
  #candidates(waiting: readonly AdvisoryOwnEntry[]): readonly AdvisoryOwnEntry[] {
    if (this.lock === 'exclusive') return []
    const writer = waiting.findIndex(({ shared }) => !shared)
    if (writer === 0) return this.lock === 'none' ? waiting.slice(0, 1) : []
    return writer === -1 ? waiting : waiting.slice(0, writer)
  }

  /** What to ask the server. Nothing, if no entry may hold and none is new. */
  attempt(now: number): KeyAttempt | undefined {
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
  answered({ id, flagged, token }: AttemptAnswer): AdvisoryOwnEntry | undefined {
    const entry = this.entries.get(id)
    if (flagged) this.flagged = true
    if (entry === undefined || token === undefined) return undefined
    entry.token = token
    this.lock = entry.shared ? 'shared' : 'exclusive'
    return entry
  }

  /** What to give back to the server, after an entry has gone. */
  release(): KeyRelease {
    const waiting = this.#waiting().length
    const unlock = this.lock !== 'none' && waiting === this.entries.size
    const unflag = this.flagged && waiting === 0
    const shared = this.lock === 'shared'
    if (unlock) this.lock = 'none'
    if (unflag) this.flagged = false
    return { key: this.key, number: this.#number, flag: this.#flag, shared, unlock, unflag }
  }
}

export class AdvisoryOwnEntries {
  readonly #keys = new Map<string, AdvisoryOwnKey>()

  at(key: string): AdvisoryOwnKey | undefined {
    return this.#keys.get(key)
  }

  find(key: string, id: string): AdvisoryOwnEntry | undefined {
    return this.#keys.get(key)?.entries.get(id)
  }

  holds({ key, id }: EntryName): boolean {
    return this.find(key, id)?.token !== undefined
  }

  add(claim: Claim, now: number): Claim {
    const key = this.#keys.get(claim.key) ?? new AdvisoryOwnKey(claim.key)
    this.#keys.set(claim.key, key)
    const shared = claim.limit === UNLIMITED
    const { ttlMs } = claim
    key.entries.set(claim.id, { claim, shared, enteredAt: now, ttlMs, askedAt: now, token: undefined, fresh: true })
    return claim
  }

  /** The core asks for those that are here. */
  asked(places: readonly Place[], now: number): void {
    for (const { key, id, ttlMs } of places) {
      const entry = this.find(key, id)
      if (entry === undefined) continue
      entry.ttlMs = ttlMs
      entry.askedAt = now
    }
  }

  /** The places of entries that the core does not ask for any more. */
  givenUp(now: number): readonly EntryName[] {
    return this.all().flatMap((entry) => (givenUpAt([entry], entry.askedAt) <= now ? [entry.claim] : []))
  }

  /** When the next one is given up, unless it is asked for until then. Infinity: there is none. */
  givenUpAt(): number {
    return this.all().reduce((at, entry) => Math.min(at, givenUpAt([entry], entry.askedAt)), NEVER)
  }

  /** Whether it was there. A key without entries is forgotten: who gives back its lock reads the key before. */
  remove({ key, id }: EntryName): boolean {
    const own = this.#keys.get(key)
    const there = own?.entries.delete(id) === true
    if (own?.entries.size === 0) this.#keys.delete(key)
    return there
  }

  all(): readonly AdvisoryOwnEntry[] {
    return [...this.#keys.values()].flatMap((key) => [...key.entries.values()])
  }

  waitedFor(): readonly AdvisoryOwnKey[] {
    return [...this.#keys.values()].filter((key) => key.waits)
  }

  /** The session is no more: the entries that it held are lost, and are answered. The waiters go on waiting. */
  sessionLost(): readonly AdvisoryOwnEntry[] {
    for (const key of this.#keys.values()) {
      key.lock = 'none'
      key.flagged = false
    }
    const lost = this.all().filter(({ token }) => token !== undefined)
    for (const { claim } of lost) this.remove(claim)
    for (const entry of this.all()) entry.fresh = true
    return lost
  }
}

/**
 * When the first of these is given up that the core has asked for at that time. A busy core asks a little later than it
 * plans to, so it is allowed a tenth of the ttl more. By then it has no answer, and has lost what it held.
 */
export function givenUpAt(asked: readonly { readonly ttlMs: number }[], askedAt: number): number {
  return asked.reduce((at, { ttlMs }) => Math.min(at, askedAt + ttlMs * 1.1), NEVER)
}
