/**
 * One server among several, as the majority sees it: types only.
 *
 * A node knows nothing of the others. It has, for each key, whose it is and a **number** that it gave when it was
 * taken; the numbers of one key only go up on one node. What the answers of several nodes add up to is verdict.ts.
 * servers.ts makes a node of a Redis; the simulator has one of its own.
 */
import type { Place } from '../../core/engine.ts'

/** Let me have this key. */
export interface Question extends Place {
  readonly holder: string
  /**
   * `try`: now or not at all. `wait`: if not now, stand in line. `renew`: only if it is ours here already, or stands in
   * line here.
   */
  readonly mode: 'try' | 'wait' | 'renew'
  /** Which attempt of this id it is. What takes back an earlier one leaves a later one alone. */
  readonly attempt: number
}

/** What a node answers. A number: the key is ours here, for the ttl, under that number. */
export type Answer = number | Refusal

export type Refusal =
  /** Somebody else has it: one of us, or a stranger, who will tell nobody when it goes. */
  | {
      readonly why: 'taken'
      /** Who has it, so that two nodes can be compared. */
      readonly by: string
      readonly stranger: boolean
      /** How many are before it, and whether it is the next one. */
      readonly ahead: number
      readonly next: boolean
      /** When to look again, should nothing be heard. */
      readonly recheckMs: number
    }
  /** Only for `renew`: it neither has it nor stands in line. `nowMs` is what the clock of the node says. */
  | { readonly why: 'missing'; readonly nowMs: number }
  | { readonly why: 'evicted' }
  /** What is there is not a lock that anybody could wait for. */
  | { readonly why: 'unusable'; readonly kind: string; readonly detail: string }
  /** No answer, or not in time. It may have done what was asked. */
  | { readonly why: 'silent'; readonly error?: Error }

/** Raise the number of a key that is ours, if the node has not given out a higher one: see verdict.ts. */
export interface Raise {
  readonly key: string
  readonly id: string
  readonly to: number
}

/** Have what a majority has granted on this node too. */
export interface Mend extends Place {
  readonly holder: string
  readonly attempt: number
  readonly token: number
  /**
   * The number that it has here. Undefined: it is missing, and is to be set if the clock of the node says that this was
   * sent a moment ago.
   */
  readonly seen: number | undefined
  readonly notAfterMs: number
}

/** Give it back, and leave the line. */
export interface Departure {
  readonly key: string
  readonly id: string
  /** Only the key, if this attempt, or one before it, has taken it. Undefined: the key, and the place in line. */
  readonly upTo?: number
  /** Stay in line, with this ttl. */
  readonly stays?: { readonly ttlMs: number; readonly holder: string }
}

/** Hears the answer; undefined if there is none, and then nobody knows what was done. Called once. */
export type Hear<Reply> = (reply: Reply | undefined, error?: Error) => void

export interface Node {
  /** Whether anything can be sent now. */
  readonly ready: boolean
  /**
   * Of two messages, the first to be sent is the first to arrive, if it is answered. Not so for the answer that is
   * being heard, if this says so then.
   */
  readonly ordered: boolean
  ask(questions: readonly Question[], hear: Hear<readonly Answer[]>): void
  /**
   * Answers the number that each has then: `to`; or what the node has counted to, if that is higher; or 0 if it is not
   * ours.
   */
  raise(raises: readonly Raise[], hear: Hear<readonly number[]>): void
  mend(mends: readonly Mend[], hear: Hear<unknown>): void
  /** Answers whether each was there. */
  leave(departures: readonly Departure[], hear: Hear<readonly boolean[]>): void
}
