/**
 * The contract of a store: types only. A store keeps one small record beside each line, on the server of its engine.
 *
 * Recipes (`src/recipes/`) are built on it: what was charged, which tick has run. The one thing that no other database
 * does for them is the condition `holding`: a record is changed only while a certain entry holds the line of the same
 * key, and that is checked in the same atomic step as the change. A holder that was paused for too long cannot write.
 *
 * The duties of a store are written down in docs/writing-an-engine.md and checked by `holdfast/conformance`. Recipes
 * do not call it directly: core/store-requests.ts batches what they ask, and store/record-store.ts knows values.
 */
import type { Claim, Standing } from './claim.ts'
import type { EngineError } from './errors.ts'
import type { HoldVerb } from './store-hold.ts'
import type { Draw, Drawn } from './store-take.ts'

/** How large a value may be on every engine: a trait may say more. */
export const VALUE_LIMIT_BYTES = 65_536

/** Marks are at most this: a number has it exactly, in every language that a server is programmed in. */
export const HIGHEST_MARK: bigint = 2n ** 53n - 1n

/**
 * For how long a store remembers that a record was removed, if its line was not empty then. A holder that found no
 * record, and waits for longer than this before it puts one, might not be told of a removal in between.
 */
export const TOMBSTONE_MS: number = 24 * 3_600_000

/** What a store can and cannot promise. */
export interface StoreTraits {
  /**
   * Whether `holding` is served. Without it a change is refused only if another one came in between (`version`): a
   * holder that has lost its lease can still write until the next one has.
   */
  readonly holding: boolean
  /** How large a value may be. At least `VALUE_LIMIT_BYTES`. */
  readonly valueLimitBytes: number
  /** How many items one call takes. A call may be as large as this many values of the largest size. */
  readonly batchLimit: number
  /** As `splitFrom` of the engine, for draws from rate limits, if it is another one for these. */
  readonly splitDrawsFrom?: number
  /**
   * Whether a call of `hold` need not wait for the answer to an earlier one about the same pool: where the server does
   * one after the other anyway, and no transaction can keep a pool locked. Steps of one id always wait.
   */
  readonly holdsOverlap?: boolean
  /** As `takesSignal` of the engine: which verbs are given a signal that aborts at the core's deadline. */
  readonly takesSignal: readonly ('get' | 'put' | 'take' | 'hold' | 'putEntering' | 'putLeaving')[]
  /** In one sentence: which faults records survive. */
  readonly survives: string
}

/** What is stored under a key. */
export interface Stored {
  readonly key: string
  /** Null: nothing is. It was never put, or has expired, or was removed. An empty value is a value. */
  readonly value: Uint8Array | null
  /**
   * The number of its last change: higher than that of every earlier change of this key, also after a removal or an
   * expiry. A removal has one, too, for as long as it is remembered. 0: no change is remembered.
   */
  readonly version: bigint
  /** The highest mark that was put with it; 0 if none was. */
  readonly mark: bigint
  /** Expiry minus now, on the server's clock. Null: it does not expire, or nothing is stored. */
  readonly livesForMs: number | null
}

/** Under which conditions a change is made: all that are given. */
export interface When {
  /** The id of an entry that holds the line of the same key. It was entered by the same engine object. */
  readonly holding?: string
  /** Nothing is stored. A removal that is remembered is nothing. */
  readonly absent?: true
  /** The version is this one. 0: nothing is stored, and no removal is remembered. */
  readonly version?: bigint
  /** The mark is lower than this. That of nothing is 0. */
  readonly markBelow?: bigint
}

/** A record that is to be put, or removed. */
export interface Change {
  /** 1 to 512 bytes of well-formed UTF-8 without NUL, compared bytewise. That of the line which `holding` is about. */
  readonly key: string
  /** What to store. Null: remove what is stored, its mark included; also of what is absent. */
  readonly value: Uint8Array | null
  /** How long it lives, on the server's clock: a whole number of milliseconds. Null: until it is removed. */
  readonly ttlMs: number | null
  /** The mark becomes the higher one of this and the one that is stored. Not given: it stays. */
  readonly mark?: bigint
  readonly when: When
}

/** The server's wall clock when it answered, in milliseconds since 1970; null where the server does not tell. */
export type ServerTimeMs = number | null

/** This item failed and the others of its batch did not. */
export interface StoreFailure {
  readonly state: 'failed'
  readonly error: EngineError
}

/** The answer to one key. */
export type Got =
  | { readonly state: 'read'; readonly stored: Stored; readonly serverTimeMs: ServerTimeMs }
  | StoreFailure

/** The answer to one change. */
export type Put =
  /** It was made, and is the version that is stored now. */
  | { readonly state: 'stored'; readonly version: bigint; readonly mark: bigint; readonly serverTimeMs: ServerTimeMs }
  /**
   * Nothing was changed. `by` is the first condition that was not met, in the order `holding`, `absent`, `version`,
   * `markBelow`. `stored` is what is there, so that no second look is needed.
   */
  | {
      readonly state: 'refused'
      readonly by: keyof When
      readonly stored: Stored
      readonly serverTimeMs: ServerTimeMs
    }
  | StoreFailure

/** A claim, and a change of the record beside its line. Both are made in one step, or neither is. */
export interface Entrance {
  /** It asks for all there is: its weight and its limit are 1. It does not wait. */
  readonly claim: Claim
  /**
   * Of the same key. It stores a value, by which an entrance that arrives twice is known again: it is no removal. It
   * has no condition `holding`: that this claim holds at once is one.
   */
  readonly change: Change
}

/**
 * The answer to one entrance. `standing` is `held` if and only if `put` is `stored`. It is `busy`, and nothing of the
 * claim remains, where `put` is `refused`: by `holding` if the line was not free.
 */
export interface Entered {
  readonly standing: Standing
  readonly put: Put
}

/** A change after which an entry leaves the line of the same key, in the same step; unless the change is refused. */
export interface Leaving {
  readonly change: Change
  /** The id of the entry. */
  readonly id: string
}

/** One record in a listing. */
export interface StoredSummary {
  readonly key: string
  readonly bytes: number
  readonly version: bigint
  readonly mark: bigint
  readonly livesForMs: number | null
}

/** What keeps records. */
export interface Store {
  readonly traits: StoreTraits
  /**
   * Answers in the order of the keys. A rejected promise speaks for the whole batch, as for the verbs of an engine; so
   * do the rules for `EngineError`.
   */
  get(keys: readonly string[], signal?: AbortSignal): Promise<readonly Got[]>
  /** Each change is one atomic step, conditions included; made in the order of the array, and answered in it. */
  put(changes: readonly Change[], signal?: AbortSignal): Promise<readonly Put[]>
  /**
   * Make one change inside a transaction of the user, on its connection: it is there when the transaction is committed,
   * and not otherwise. `transaction` is what the user's driver calls one. Rejects with a `TypeError` if it is not.
   */
  putIn?(transaction: unknown, change: Change): Promise<Put>
  /** Draw from rate limits, in the order of the array: each draw is one atomic step. See store-take.ts. */
  take?(draws: readonly Draw[], signal?: AbortSignal): Promise<readonly Drawn[]>
  /** Stock of which parts are held for a while (store-hold.ts). Absent: this store cannot. */
  hold?: HoldVerb
  /**
   * Enter lines that are free, and change the records beside them: one call where a recipe needs two without it. An
   * entrance that arrives twice is made once, and answered as the first time.
   */
  putEntering?(entrances: readonly Entrance[], signal?: AbortSignal): Promise<readonly Entered[]>
  /** Change records, and leave the lines beside them. The next ones in the lines find what was stored. */
  putLeaving?(leavings: readonly Leaving[], signal?: AbortSignal): Promise<readonly Put[]>
  /** Records whose key starts with `prefix`, bytewise, in no promised order. For people. */
  list(prefix: string, onProgress?: () => void): AsyncIterable<StoredSummary>
}
