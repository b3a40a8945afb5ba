/**
 * Reading what was read a moment ago: by a plain MGET, which costs the server a tenth of what a script does.
 *
 * A record is a string, and its expiry is kept by the server beside it. No plain command answers both. But a version is
 * given once, and the expiry of a record changes with its version only. So a process that knows when a version expires
 * need not ask for that again: what it reads is up to date if it has this version, and read in full (lua/get.lua) if
 * not.
 *
 * What is known is counted on the clock of this process, and it is asked for again each second: so that the clock of
 * the server, which decides, can be set, and may run faster or slower.
 */
import type { Clock } from '../../core/clock.ts'
import type { Got } from '../../core/store.ts'
import { storedOf } from './record-codec.ts'

/** For how long an expiry is known. */
const KNOWN_FOR_MS = 1000
/** What expires this soon is read in full: its last moments are told by the server. */
const LAST_MS = 1000
/** How many keys are remembered. */
const MOST_KEYS = 10_000

/** A version that was read, and when it expires at the earliest, on our clock. */
interface KnownVersion {
  readonly version: bigint
  readonly readAt: number
  readonly expiresAt: number
}

export class RecentReads {
  readonly #clock: Clock
  #known = new Map<string, KnownVersion>()
  /** What the server's clock is ahead of ours, at least. */
  #aheadMs = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** These were read in full, by a call that was sent at `sentAt`. */
  remember(sentAt: number, gots: readonly Got[]): void {
    const now = this.#clock.now()
    for (const got of gots) {
      if (got.state === 'failed') continue
      const { key, value, version, livesForMs } = got.stored
      if (got.serverTimeMs !== null) this.#aheadMs = got.serverTimeMs - now
      if (value === null) this.#known.delete(key)
      else this.#known.set(key, { version, readAt: sentAt, expiresAt: sentAt + (livesForMs ?? Infinity) })
    }
    // When it is full, all of it is forgotten: to look for the oldest would cost each read more.
    if (this.#known.size > MOST_KEYS) this.#known = new Map()
  }

  /** Whether a plain read will do for all of these. */
  allKnown(keys: readonly string[]): boolean {
    const now = this.#clock.now()
    for (const key of keys) {
      const known = this.#known.get(key)
      if (known === undefined || now > known.readAt + KNOWN_FOR_MS || now > known.expiresAt - LAST_MS) return false
    }
    return true
  }

  /** What a plain read has answered; undefined for a key that has to be read in full. */
  readAnswers(texts: readonly unknown[], keys: readonly string[]): (Got | undefined)[] {
    const now = this.#clock.now()
    const serverTimeMs = Math.floor(now + this.#aheadMs)
    return keys.map((key, index): Got | undefined => {
      const text = texts[index]
      const known = this.#known.get(key)
      if (typeof text !== 'string' || known === undefined) return undefined
      const stored = storedOf(key, text, Math.floor(Math.min(known.expiresAt - now, Number.MAX_SAFE_INTEGER)))
      if (stored instanceof Error || stored.version !== known.version || known.expiresAt <= now) return undefined
      const lives = known.expiresAt === Infinity ? { ...stored, livesForMs: null } : stored
      return { state: 'read', stored: lives, serverTimeMs }
    })
  }
}
