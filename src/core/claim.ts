/** What an engine is asked for one entry, and what it answers: types only, of the contract in engine.ts. */
import type { EngineError, LineFullError } from './errors.ts'

/** A request to enter the line of `key`. */
export interface Claim {
  /** What is protected: 1 to 512 bytes of well-formed UTF-8 without NUL, compared bytewise. */
  readonly key: string
  /** 128 random bits in hexadecimal, chosen by the core. Entering twice with one id is entering once. */
  readonly id: string
  /** Who asks, for people to read; at most 512 bytes of well-formed UTF-8 without NUL. Decides nothing. */
  readonly holder: string
  /** How much of the limit this entry takes: 1 or more, never above `limit`. */
  readonly weight: number
  /** How much weight may be held at once, as far as this entry is concerned. */
  readonly limit: number
  /** How long the entry lives without renewal, on the engine's clock. A whole number of milliseconds. */
  readonly ttlMs: number
  /** `false`: hold at once or leave no trace (`busy`). */
  readonly wait: boolean
}

/** An entry that was asked for earlier. */
export interface Place {
  readonly key: string
  readonly id: string
  readonly ttlMs: number
  /**
   * From now on the entry does not depend on its process. An engine that frees what a dead process held before the ttl
   * is over does not free this one; the other engines have nothing to do. A plain enter or renewal that was sent before
   * and arrives later does not change when it expires. It may live for shorter than before: then the first waiter is
   * let in sooner, and is told by a hint where its own process looks after the expiry.
   */
  readonly outlives?: boolean
}

/** What names an entry. */
export type EntryName = Pick<Place, 'key' | 'id'>

/** Where an entry stands, in the engine's word. */
export type Standing =
  /**
   * It holds. `heldForMs` is expiry minus now, on the engine's clock, at the moment it answered. `token` is null where
   * the engine has no fencing.
   */
  | { readonly state: 'held'; readonly token: bigint | null; readonly heldForMs: number }
  /**
   * It stands in line. `ahead` counts the entries before it; null where counting would cost a walk of the line.
   * `livesForMs` is given only where the entry lives shorter than its ttl from now on: expiry minus now, as for
   * holders. Without it the core counts a whole ttl.
   */
  | { readonly state: 'waiting'; readonly ahead: number | null; readonly livesForMs?: number }
  /** Only for `wait: false`: it could not hold at once. Nothing of it remains. */
  | { readonly state: 'busy'; readonly ahead: number | null }
  /** It is in no line, and never will be again under this id. */
  | { readonly state: 'gone'; readonly why: GoneReason }
  /** This item failed and the others of its batch did not. */
  | { readonly state: 'failed'; readonly error: EngineError | LineFullError }

/**
 * Why an entry is gone. `expired`: it was not renewed in time. `evicted`: a person removed it on purpose; a waiter does
 * not come back. `unknown`: the engine has no memory of it; the core treats it as expired.
 */
export type GoneReason = 'expired' | 'evicted' | 'unknown'
