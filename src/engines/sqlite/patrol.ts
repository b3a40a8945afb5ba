/**
 * The round that a waiting process makes: has somebody expired, is somebody in our way dead, did we miss a wake-up, has
 * a watched line changed?
 *
 * It goes round a few times a second, and exactly at the next expiry, and only while somebody of this process waits or
 * watches. It reads; only when there is something to do does it ask for a transaction. Of all the processes that wait
 * in a line, the one in front looks whether the holders live.
 */
import type { Chance, Clock, Timer } from '../../core/clock.ts'
import type { Clients } from './clients.ts'
import type { Store } from './store.ts'
import type { Waiters } from './waiters.ts'

/** A killed holder is noticed within about this time. */
const ROUND_MS = 200
/**
 * Each line that we wait in makes the round this much longer, so that the rounds of a process with very many waiters
 * stay a small part of its time.
 */
const PER_LINE_MS = 0.1

export interface PatrolOptions {
  readonly clock: Clock
  readonly chance: Chance
  readonly clients: Clients
  readonly waiters: Waiters
  store(): Store | undefined
  /** Look for news that was meant for us. */
  hear(store: Store): void
  /** Sweep what has expired, and bury these clients if they are dead. */
  sweep(clients: readonly number[]): void
}

interface Watched {
  readonly listeners: Set<() => void>
  print: string | undefined
}

export class Patrol {
  readonly #options: PatrolOptions
  readonly #clock: Clock
  readonly #watched = new Map<string, Watched>()
  #version = -1
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #stopped = false

  constructor(options: PatrolOptions) {
    this.#options = options
    this.#clock = options.clock
  }

  /** Go round while there is reason to, and be there when the next entry expires; `expiry`: not before then. */
  arm(expiry: number): void {
    if (this.#stopped || (this.#options.waiters.size === 0 && this.#watched.size === 0)) {
      this.#disarm()
      return
    }
    const now = this.#clock.now()
    // An expiry in the past is one that could not be swept yet: that waits for the next round, or a full disk would
    // keep us running.
    const at = Math.min(now + this.#roundMs(), expiry > now ? expiry : Number.POSITIVE_INFINITY)
    if (at >= this.#timerAt) return
    this.#disarm()
    this.#timerAt = at
    this.#timer = this.#clock.timer(at - now, () => this.#round())
  }

  stop(): void {
    this.#stopped = true
    this.#watched.clear()
    this.#disarm()
  }

  watch(key: string, listener: () => void): () => void {
    const watched = this.#watched.get(key) ?? { listeners: new Set(), print: undefined }
    this.#watched.set(key, watched)
    watched.listeners.add(listener)
    const store = this.#options.store()
    if (store !== undefined) watched.print = printOf(store, key)
    this.arm(store === undefined ? Number.POSITIVE_INFINITY : nextExpiry(store))
    return () => {
      watched.listeners.delete(listener)
      if (watched.listeners.size === 0) this.#watched.delete(key)
    }
  }

  /** A transaction of our own changed these lines. */
  changed(keys: ReadonlySet<string>): void {
    if (this.#watched.size === 0) return
    for (const key of keys) {
      const watched = this.#watched.get(key)
      if (watched !== undefined) notify(watched)
    }
  }

  #disarm(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.#timerAt = Number.POSITIVE_INFINITY
  }

  #roundMs(): number {
    const { chance, waiters } = this.#options
    return (ROUND_MS + PER_LINE_MS * waiters.size) * (0.75 + chance.fraction() / 4)
  }

  #round(): void {
    this.#disarm()
    const { store: open, waiters, hear, sweep } = this.#options
    const store = open()
    const now = this.#clock.now()
    waiters.prune(now)
    let expiry = Number.POSITIVE_INFINITY
    try {
      if (store !== undefined) {
        hear(store)
        expiry = nextExpiry(store)
        const dead = this.#deadInOurWay(store, now)
        if (dead.length > 0 || expiry <= now) sweep(dead)
        this.#lookAtWatched(store)
      }
    } catch {
      // Reading failed. Whoever waits also renews, and hears the reason there.
    }
    this.arm(expiry)
  }

  #deadInOurWay(store: Store, now: number): number[] {
    const { clients, waiters } = this.#options
    const { sql } = store
    const dead = new Set<number>()
    for (const key of waiters.keys()) {
      const [first] = sql.firstWaiter.all(key)
      if (first === undefined || first.client !== clients.own) continue
      for (const { client } of sql.holders.all(key)) if (clients.isDead(client, sql, now)) dead.add(client)
    }
    return [...dead]
  }

  #lookAtWatched(store: Store): void {
    if (this.#watched.size === 0) return
    const version = store.sql.version.all()[0]?.data_version ?? -1
    if (version === this.#version) return
    this.#version = version
    for (const [key, watched] of this.#watched) {
      const print = printOf(store, key)
      if (print !== watched.print) notify(watched)
      watched.print = print
    }
  }
}

function nextExpiry(store: Store): number {
  return store.sql.nextExpiry.all()[0]?.at ?? Number.POSITIVE_INFINITY
}

function printOf(store: Store, key: string): string | undefined {
  return store.sql.fingerprint.all(key)[0]?.print
}

function notify(watched: Watched): void {
  for (const listener of watched.listeners) queueMicrotask(listener)
}
