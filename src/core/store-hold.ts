/**
 * The contract of `store.hold`, an accelerator that a store may have: types and limits. It keeps *pools*. A pool is the
 * stock of some items under one key, of which parts are held for a while by ids, and then sold or given back.
 *
 * At every instant, by the server's clock and for each item: sold + live holds <= stock, unless a person has forced the
 * stock below that. A hold that has lapsed counts for nothing from that instant on, whether or not it was cleared away.
 *
 * A step is one atomic step on its pool, for all its items or for none. Every step can be asked again: the id is what
 * counts, and it counts once. The work of a step does not grow with the number of holds. What has lapsed is taken back
 * by later steps, some at a time, and by a step whose answer depends on it for as long as it does.
 *
 * The rule is core/pool-rule.ts; recipes/stock is what users see of it.
 */
import type { EngineError } from './errors.ts'

/** How many units one line may have, and so how many a step can reserve, or change the stock of an item by. */
export const MOST_UNITS = 1_000_000_000
/** For how long an item can be kept for the first in line. What says more was written before a clock was set back. */
export const LONGEST_WANT_MS = 60_000
/** How high the stock of an item may be. */
export const HIGHEST_STOCK = 1_000_000_000_000

/**
 * So many of an item. The quantity is a whole number: from 1 to `MOST_UNITS`, but for `set` from 0 to `HIGHEST_STOCK`,
 * and for `add` from `-MOST_UNITS`.
 */
export interface PoolLine {
  /** 1 to 128 bytes of well-formed UTF-8 without control characters. */
  readonly item: string
  readonly quantity: number
}

/** One thing to do with one pool. */
export interface PoolStep {
  /** The key of the pool, with the rules for record keys. All steps of a pool are decided in one place. */
  readonly key: string
  /**
   * - `reserve`: hold the lines for `ms`. Answers `held`; `sold`, if this id was confirmed; `differs`, if it holds
   *   other lines; `short` or `unknown` with the first item that lacks.
   * - `extend`: the hold lives for `ms` from now on, or longer if it does anyway. Answers `held`, `sold` or `lapsed`.
   * - `confirm`: what is held is sold, and the id is remembered for `ms`. Answers `sold` or `lapsed`; with `flag`, a
   *   hold that has lapsed is sold all the same if there is enough of the given lines.
   * - `cancel`: give back what is held. Answers `cancelled`, `sold` or `lapsed`.
   * - `find`: answers `held`, `sold` or `lapsed`.
   * - `set`: the stock of the items becomes the given quantities (from 0); `add`: changes by them (also below 0). Both
   *   remember the id for `ms`. Answers `changed`; `short` where stock would be less than sold and held.
   * - `unwant`: what is wanted by this id is not any more. Answers `lapsed`.
   * - `show`: answers `pool`.
   */
  readonly verb: 'reserve' | 'extend' | 'confirm' | 'cancel' | 'find' | 'set' | 'add' | 'unwant' | 'show'
  /** 1 to 256 bytes of well-formed UTF-8 without control characters. */
  readonly id: string
  /** In bytewise order of the items, each once. */
  readonly lines: readonly PoolLine[]
  /** A whole number from 1 on for the verbs that are said to take it; else 0. */
  readonly ms: number
  /**
   * For `reserve`. Above 0: this id is the first in line for each of its items. If it gets them not, then they are
   * *wanted* by it for so long, at most `LONGEST_WANT_MS`: a `reserve` of another id that is not the first in line is
   * answered `short`.
   */
  readonly wantMs: number
  /**
   * For `confirm`: a hold that has lapsed is sold all the same, if there is enough. For `set` and `add`: the change is
   * made also where stock becomes less than sold and held. Of no meaning for the others.
   */
  readonly flag: boolean
}

/** The answer to one step. */
export type PoolAnswer =
  /** `livesForMs`: expiry minus now, on the server's clock. */
  | { readonly state: 'held'; readonly lines: readonly PoolLine[]; readonly livesForMs: number }
  | { readonly state: 'sold'; readonly lines: readonly PoolLine[] }
  /** There is no such hold: it has lapsed, was cancelled, or never was. */
  | { readonly state: 'lapsed' }
  /** `wanted`: an id that is the first in line wants one of the items, and is to look again. */
  | { readonly state: 'cancelled' | 'changed'; readonly wanted: boolean }
  /** Nothing was changed: not enough of this item is left. `nextMs`: when the next hold of the pool lapses, if any. */
  | { readonly state: 'short'; readonly item: string; readonly nextMs: number | null }
  /** Nothing was changed: the pool has no such item. */
  | { readonly state: 'unknown'; readonly item: string }
  /** Nothing was changed: the id has other lines, namely these. */
  | { readonly state: 'differs'; readonly lines: readonly PoolLine[] }
  | {
      readonly state: 'pool'
      readonly items: readonly PoolItemView[]
      readonly holds: number
      readonly nextMs: number | null
    }
  /** This step failed and the others of its batch did not. */
  | { readonly state: 'failed'; readonly error: EngineError }

/** What is left is the stock without what is sold and held. */
export interface PoolItemView {
  readonly item: string
  readonly stock: number
  readonly sold: number
  readonly held: number
}

/** Each step is one atomic step; they are done in the order of the array, and answered in it. */
export type HoldVerb = (steps: readonly PoolStep[], signal?: AbortSignal) => Promise<readonly PoolAnswer[]>
