/** What callers give to `reserveRow` and its siblings, and what they get back. */
import type { Duration } from '../core/duration.ts'
import type { LockFailure } from './row-lock.ts'
import type { Table, Where } from './statements.ts'

/** Which hold, of which row. */
export interface RowHoldOptions {
  readonly table: Table
  /** Which row: its key. Name table and row in the same way each time. */
  readonly where: Where
  /** The column with what is neither sold nor held: a whole number. */
  readonly left: string
  /** The id of the hold: that of the cart. It counts once. */
  readonly id: string
  /** How long to wait for the row, as in `rowLock`: 0 is not at all. SQLite waits by itself. */
  readonly wait?: Duration
  /** Where holds are kept: the table `holdfast_row_holds`, which `setupRowHolds` makes, unless given. */
  readonly holds?: Table
}

/** What to hold, and for how long. */
export interface ReserveRowOptions extends RowHoldOptions {
  /** How many units: a whole number, at least 1. */
  readonly quantity: number
  /** How long the hold lives unless it is extended, confirmed or cancelled: 10 minutes unless given. */
  readonly hold?: Duration
}

/** How long a hold is to live from now on. */
export interface ExtendRowOptions extends RowHoldOptions {
  readonly hold?: Duration
}

/** How to sell what is held. */
export interface ConfirmRowOptions extends RowHoldOptions {
  /** How long the id is remembered once it was confirmed: 24 h unless given. A retry that comes later counts again. */
  readonly keep?: Duration
  /** A hold that has lapsed. `refuse` (unless given): nothing is sold. `if-available`: if there is enough, it is. */
  readonly late?: 'refuse' | 'if-available'
  /** What the hold was for: one that has lapsed is not remembered. Needed for `late: 'if-available'`. */
  readonly quantity?: number
}

/** A row that is not there, that another transaction has locked, or a transaction that has to begin again. */
export type RowNotHad = { readonly state: 'missing' } | LockFailure

/** What became of a `reserveRow`. */
export type ReserveRowResult =
  /** `remainingMs`: expiry minus now, on the clock of the database. */
  | { readonly state: 'held'; readonly quantity: number; readonly remainingMs: number }
  /** This id was confirmed before. */
  | { readonly state: 'sold'; readonly quantity: number }
  /** Nothing was held: so many are left. */
  | { readonly state: 'short'; readonly left: number }
  /** Nothing was changed: this id has another quantity. */
  | { readonly state: 'differs'; readonly quantity: number }
  | RowNotHad

/** What became of an `extendRow`. */
export type ExtendRowResult =
  | { readonly state: 'held'; readonly quantity: number; readonly remainingMs: number }
  | { readonly state: 'sold'; readonly quantity: number }
  /** It is not held any more: it has lapsed, was cancelled, or never was. */
  | { readonly state: 'lapsed' }
  | RowNotHad

/** What became of a `confirmRow`. */
export type ConfirmRowResult =
  | { readonly state: 'sold'; readonly quantity: number }
  | { readonly state: 'lapsed' }
  | RowNotHad

/** What became of a `cancelRow`. */
export type CancelRowResult =
  | { readonly state: 'cancelled'; readonly quantity: number }
  | { readonly state: 'sold'; readonly quantity: number }
  | { readonly state: 'lapsed' }
  | RowNotHad
