/** What users give to `stock()`, and what they get back. */
import type { Duration } from '../../core/duration.ts'
import type { OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'

/** Options of `stock()`. */
export interface StockOptions {
  /** How long a hold lives unless it is extended, confirmed or cancelled: 10 minutes unless given. */
  readonly hold?: Duration
  /**
   * How long the id of a hold is remembered once it was confirmed: 24 h unless given. A retry that comes later counts
   * again.
   */
  readonly keep?: Duration
  /** Where the stock is, if the engine of the locks keeps none: locks on another engine. */
  readonly store?: Locks
}

/**
 * How much of what: `{ A: 2, B: 1 }`, or the lines of a cart. Lines with the same item are added up. Quantities are
 * whole numbers.
 */
export type Items = Readonly<Record<string, number>> | readonly CartLine[]

/** One line of a cart. */
export interface CartLine {
  readonly item: string
  readonly quantity: number
}

/** Options of one `reserve()`. */
export interface ReserveOptions {
  /** How long this hold lives, instead of `hold` of `stock()`. */
  readonly hold?: Duration
  /** How long to stand in line where not enough is left. Not at all unless given. */
  readonly wait?: Duration
  /** Cancels the waiting. The call rejects with the signal's own reason. */
  readonly signal?: AbortSignal
}

/** Options of one `confirm()`. */
export interface ConfirmOptions {
  /**
   * What to do about a hold that has lapsed. `refuse` (unless given): nothing. `if-available`: sell it all the same, in
   * the same step, if there still is enough.
   */
  readonly late?: 'refuse' | 'if-available'
}

/** Options of a `confirm()` by id. */
export interface ConfirmByIdOptions extends ConfirmOptions {
  /** What the hold was for: a hold that has lapsed is not remembered. Needed for `late: 'if-available'`. */
  readonly items?: Items
}

/** Options of `set()`, `add()` and `remove()`. */
export interface ChangeOptions {
  /** Also below what is sold and held: nothing is reserved then until enough was given back or added. */
  readonly force?: boolean
}

/** Units that are kept for one buyer, for a while. */
export interface Hold {
  readonly id: string
  /** What it holds, added up. */
  readonly items: Readonly<Record<string, number>>
  /** `sold`: this id was confirmed before. */
  readonly state: 'held' | 'sold'
  /** For how much longer it is certainly held, in milliseconds, as far as is known here. 0 if it was sold. */
  readonly remainingMs: number
  /**
   * Let it live for `duration` from now on (`hold` of `stock()` unless given); never shorter than it would anyway.
   * `lapsed`: it was not held any more.
   */
  extend(duration?: Duration): Promise<'held' | 'sold' | 'lapsed'>
  /** Sell what is held. `lapsed`: it was not held any more, and nothing was sold. Twice is once. */
  confirm(options?: ConfirmOptions): Promise<'sold' | 'lapsed'>
  /** Give back what is held. `lapsed`: it was not held any more. */
  cancel(): Promise<'cancelled' | 'sold' | 'lapsed'>
}

/** One item of a stock. */
export interface StockItem {
  readonly item: string
  /** What there is, including what is sold. */
  readonly stock: number
  readonly sold: number
  readonly held: number
  /** What can be reserved. Below 0 where the stock was forced down. */
  readonly left: number
}

/** What there is in a stock, for people. */
export interface StockView {
  readonly name: string
  /** In bytewise order. */
  readonly items: readonly StockItem[]
  /** How many holds are live. */
  readonly holds: number
  /** When the next one lapses, in milliseconds. Null: there is none. */
  readonly nextLapseMs: number | null
}

/** Items of which there are so many, and parts of which are held for buyers for a while. */
export interface Stock {
  readonly name: string
  /**
   * Hold these items, all or none, under an id of yours: that of the cart. Undefined: not enough is left. A retry with
   * the same id gets the same hold. Rejects with a `StockError` if the id was used with other quantities, or for items
   * that the stock does not have.
   */
  reserve(id: string, items: Items, options?: ReserveOptions): Promise<Hold | undefined>
  /** The hold of this id, from any process. Undefined: it has lapsed, was cancelled, or never was. */
  find(id: string): Promise<Hold | undefined>
  /** `extend` of the hold of this id, from any process. */
  extend(id: string, duration?: Duration): Promise<'held' | 'sold' | 'lapsed'>
  /** `confirm` of the hold of this id, from any process. */
  confirm(id: string, options?: ConfirmByIdOptions): Promise<'sold' | 'lapsed'>
  /** `cancel` of the hold of this id, from any process. */
  cancel(id: string): Promise<'cancelled' | 'sold' | 'lapsed'>
  /** From now on there are so many of these items, including what is sold. Others stay as they are. */
  set(items: Items, options?: ChangeOptions): Promise<void>
  /** So many more than before. */
  add(items: Items): Promise<void>
  /** So many fewer than before. Rejects with a `StockError` where less would be left than is sold and held. */
  remove(items: Items, options?: ChangeOptions): Promise<void>
  /** What there is now, for people. */
  show(): Promise<StockView>
}

export const STOCK_OPTIONS: OptionNames<StockOptions> = { hold: true, keep: true, store: true }
export const RESERVE_OPTIONS: OptionNames<ReserveOptions> = { hold: true, wait: true, signal: true }
export const CONFIRM_OPTIONS: OptionNames<ConfirmOptions> = { late: true }
export const CONFIRM_BY_ID_OPTIONS: OptionNames<ConfirmByIdOptions> = { late: true, items: true }
export const CHANGE_OPTIONS: OptionNames<ChangeOptions> = { force: true }
