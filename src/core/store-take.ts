/**
 * What a store is asked by a rate limit: `take`, which draws from one key or several in one atomic step, by the rule of
 * core/rate.ts and on the server's clock. Types, the size of a batch, and the error for what is no rate limit.
 *
 * A store can leave it out. Then store/draws.ts does the same with `get` and `put`.
 */
import { EngineError } from './errors.ts'
import type { Rate } from './rate.ts'

/** How many draws one call has at most. They are small: a record is a hundred bytes. */
export const DRAW_BATCH_LIMIT = 200

/** What is to be taken from one key. */
export interface DrawPart {
  /** The key of the record with the limit's state (its text: `rateText`). */
  readonly key: string
  readonly rate: Rate
  /** How many tokens; at most `capacity` of the rate. 0: only look. */
  readonly cost: number
}

/** All parts are taken, or none. Their keys differ. */
export interface Draw {
  readonly parts: readonly DrawPart[]
  /** How far in the future a turn may be booked, in microseconds; 0: allowed now, or not at all. */
  readonly bookUs: number
}

/** The answer to one draw. */
export type Drawn =
  | {
      readonly state: 'drawn'
      /** If not, nothing was changed. */
      readonly taken: boolean
      /** For each part what is owed now, in units of its rate. */
      readonly debts: readonly number[]
      /** By which time of the server it was decided: microseconds since 1970. */
      readonly nowUs: number
    }
  /** This one failed, and the others of its batch did not. */
  | { readonly state: 'failed'; readonly error: EngineError }

/** What is stored under that key is not the state of a rate limit, or that of a newer version. */
export function notARate(engine: string, key: string): EngineError {
  const message = `what is stored under '${key}' is no rate limit, or was written by a newer Holdfast: use another key, or update Holdfast here`
  return new EngineError(engine, message, { outcome: 'not-applied', transient: false })
}
