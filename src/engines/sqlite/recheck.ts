/**
 * What a waiting process checks by itself: has an entry expired, is a holder that we wait for dead, did we miss a
 * wake-up, has a watched line changed?
 *
 * It checks a few times a second, and exactly at the next expiry, and only while this process waits or watches. It
 * reads; only when there is something to do does it ask for a transaction. Of all the processes that wait in a line,
 * only the one in front looks whether the holders live.
 */
import type { Chance, Clock, Timer } from '../../core/clock.ts'
import type { LockFile } from './lock-file.ts'
import type { EngineRegistry } from './registry.ts'

/** A killed holder is noticed within about this time. */
const RECHECK_MS = 200
/**
 * Each line that we wait in makes the round this much longer, so that the rounds of a process with very many waiters
 * stay a small part of its time.
 */
const PER_LINE_MS = 0.1

/** An entry of ours in a line: until when, and the token it holds or will hold with. */
export interface SqliteOwnEntry {
  readonly until: number
  readonly token: number
}

export interface SqliteOwnWaiter extends SqliteOwnEntry {
  readonly key: string
  readonly id: string
}

/** Our own entries that wait, as far as this engine object has heard. They decide whether to check, and which lines. */
export class SqliteOwnWaiters {
  readonly #lines = new Map<string, Map<string, SqliteOwnWaiter>>()
  readonly #byToken = new Map<number, SqliteOwnWaiter>()

  /** In how many lines we wait. */
  get size(): number {
    return this.#lines.size
  }

  /** The lines that we wait in. */
  keys(): IterableIterator<string> {
    return this.#lines.keys()
  }

  byToken(token: number): SqliteOwnWaiter | undefined {
    return this.#byToken.get(token)
  }

  /** `entry` undefined: it does not wait any more. */
  set(key: string, id: string, entry: SqliteOwnEntry | undefined): void {
    const line = this.#lines.get(key)
    const before = line?.get(id)
    if (before !== undefined) this.#byToken.delete(before.token)
    if (entry !== undefined) {
      const waiter = { key, id, until: entry.until, token: entry.token }
      this.#byToken.set(entry.token, waiter)
      if (line === undefined) this.#lines.set(key, new Map([[id, waiter]]))
      else line.set(id, waiter)
    } else if (line?.delete(id) && line.size === 0) {
      this.#lines.delete(key)
    }
  }

  /** Forget the waiters that have expired without our hearing of it. */
  prune(now: number): void {
    for (const { key, id, until } of this.#byToken.values()) if (until <= now) this.set(key, id, undefined)
  }

  clear(): void {
    this.#lines.clear()
    this.#byToken.clear()
  }
}

export interface SqliteRecheckOptions {
  readonly clock: Clock
  readonly chance: Chance
  readonly registry: EngineRegistry
  readonly waiters: SqliteOwnWaiters
  lockFile(): LockFile | undefined
  /** Look for news that was meant for us. */
  readNews(lockFile: LockFile): void
  /** Remove what has expired, and these engines if they are dead. */
  sweep(engineIds: readonly number[]): void
}

interface SqliteWatchedLine {
  readonly listeners: Set<() => void>
  fingerprint: string | undefined
}

export class SqliteRecheck {
  readonly #options: SqliteRecheckOptions
  readonly #clock: Clock
  readonly #watched = new Map<string, SqliteWatchedLine>()
  #version = -1
  #timer: Timer | undefined
  #timerAt = Number.POSITIVE_INFINITY
  #stopped = false

  constructor(options: SqliteRecheckOptions) {
    this.#options = options
    this.#clock = options.clock
  }

  /** Check again while there is reason to, and when the next entry expires; `expiry`: not before then. */
  arm(expiry: number): void {
    if (this.#stopped || (this.#options.waiters.size === 0 && this.#watched.size === 0)) {
      this.#disarm()
      return
    }
    const now = this.#clock.now()
    // An expiry in the past is one that could not be removed yet. It waits for the next check, or a full disk would
    // keep us running.
    const at = Math.min(now + this.#recheckMs(), expiry > now ? expiry : Number.POSITIVE_INFINITY)
    if (at >= this.#timerAt) return
    this.#disarm()
    this.#timerAt = at
    this.#timer = this.#clock.timer(at - now, () => this.#check())
  }

  stop(): void {
    this.#stopped = true
    this.#watched.clear()
    this.#disarm()
  }

  watch(key: string, listener: () => void): () => void {
    const watched = this.#watched.get(key) ?? { listeners: new Set(), fingerprint: undefined }
    this.#watched.set(key, watched)
    watched.listeners.add(listener)
    const lockFile = this.#options.lockFile()
    if (lockFile !== undefined) watched.fingerprint = fingerprintOf(lockFile, key)
    this.arm(lockFile === undefined ? Number.POSITIVE_INFINITY : nextExpiry(lockFile))
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

  #recheckMs(): number {
    const { chance, waiters } = this.#options
    return (RECHECK_MS + PER_LINE_MS * waiters.size) * (0.75 + chance.fraction() / 4)
  }

  #check(): void {
    this.#disarm()
    const { lockFile: open, waiters, readNews, sweep } = this.#options
    const lockFile = open()
    const now = this.#clock.now()
    waiters.prune(now)
    let expiry = Number.POSITIVE_INFINITY
    try {
      if (lockFile !== undefined) {
        readNews(lockFile)
        expiry = nextExpiry(lockFile)
        const dead = this.#deadHolders(lockFile, now)
        if (dead.length > 0 || expiry <= now) sweep(dead)
        this.#checkWatched(lockFile)
      }
    } catch {
      // Reading failed. A waiter also renews, and hears the reason there.
    }
    this.arm(expiry)
  }

  #deadHolders(lockFile: LockFile, now: number): number[] {
    const { registry, waiters } = this.#options
    const { sql } = lockFile
    const dead = new Set<number>()
    for (const key of waiters.keys()) {
      const [first] = sql.firstWaiter.all(key)
      if (first === undefined || first.client !== registry.engineId) continue
      for (const { client } of sql.holders.all(key)) if (registry.isDead(client, sql, now)) dead.add(client)
    }
    return [...dead]
  }

  #checkWatched(lockFile: LockFile): void {
    if (this.#watched.size === 0) return
    const version = lockFile.sql.version.all()[0]?.data_version ?? -1
    if (version === this.#version) return
    this.#version = version
    for (const [key, watched] of this.#watched) {
      const fingerprint = fingerprintOf(lockFile, key)
      if (fingerprint !== watched.fingerprint) notify(watched)
      watched.fingerprint = fingerprint
    }
  }
}

function nextExpiry(lockFile: LockFile): number {
  return lockFile.sql.nextExpiry.all()[0]?.at ?? Number.POSITIVE_INFINITY
}

function fingerprintOf(lockFile: LockFile, key: string): string | undefined {
  return lockFile.sql.fingerprint.all(key)[0]?.print
}

function notify(watched: SqliteWatchedLine): void {
  for (const listener of watched.listeners) queueMicrotask(listener)
}
