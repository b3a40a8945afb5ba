/** What users give to `once()` and to `run()`, and what they get back. */
import type { Duration } from '../../core/duration.ts'
import type { AttemptName } from '../../core/errors.ts'
import type { OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import type { Serializer } from '../../store/serializer.ts'
import type { Attempt } from './attempt.ts'

/**
 * What to do about an execution that has died, or was stopped for longer than its ttl. `retry`: run the work again,
 * with the same `attempt.id`, a higher number, and without the steps that were done. `ask`: every caller gets an
 * `UnknownOutcomeError`, until one says `{ crashed: 'retry' }`.
 */
export type Crashed = 'retry' | 'ask'

/** Options of `once()`. */
export interface OnceOptions {
  /** What these requests are called in keys: `once` unless given. Two of the same name have the same records. */
  readonly name?: string
  /** How long a result is replayed, counted from its last change: 24 h unless given. After it, a retry is new. */
  readonly keep?: Duration
  /** How long a duplicate waits for the result: 10 s unless given. Then: `InProgressError`. 0: it does not wait. */
  readonly wait?: Duration
  /** After a crash in the middle: `retry` unless given. */
  readonly crashed?: Crashed
  /**
   * After a throw. `retry` (unless given): the caller gets the error, and the next one with this key runs the work
   * again. `keep`: it is replayed like a result. `attempt.final(error)` keeps one error in any case.
   */
  readonly failures?: 'retry' | 'keep'
  /**
   * How long an execution lives without renewal: after a crash, duplicates wait this long. Unless given it is what the
   * locks were given, or else 8 s: less than `wait`, so that a duplicate that comes right after a crash takes over.
   */
  readonly ttl?: Duration
  /** Where the records are, if the engine of the locks has no store: locks on another engine. */
  readonly store?: Locks
  /** How results and steps become bytes. JSON unless given. */
  readonly serialize?: Serializer
}

/** Options of one `run()`. */
export interface OnceRunOptions {
  /**
   * Whose key it is: a tenant, a user, an endpoint. The keys of two scopes never meet. Leave it out if there is one
   * tenant; `undefined` is refused, since a user who is not known would be given the results of another.
   */
  readonly scope?: string
  /**
   * What makes the request what it is: its body, for example. Bytes, a string, or JSON. A duplicate with another
   * fingerprint gets a `KeyReusedError`, also while the first one is in progress.
   */
  readonly fingerprint?: unknown
  /** How long this caller waits, instead of `wait` of `once()`. */
  readonly wait?: Duration
  /** What this caller wants after a crash, instead of `crashed` of `once()`. */
  readonly crashed?: Crashed
  /** Cancels the waiting, not the work. The run rejects with the signal's own reason. */
  readonly signal?: AbortSignal
}

/** What `run()` answers. */
export interface OnceResult<Value> {
  /** What the work has answered, as it was stored. Its type does not tell: with JSON, a `Date` is a string. */
  readonly value: Value
  /** Whether another execution has answered it: before this call, or while it waited. */
  readonly replayed: boolean
  /** The execution that has answered it. */
  readonly attempt: AttemptName
}

/** The work. It is called by one caller at a time for each key, of all processes. */
export type OnceWork<Value> = (attempt: Attempt) => Promise<Value> | Value

/** Runs work once for each key, and answers duplicates with the result. */
export interface Once {
  /**
   * Run `work`, unless there is a result for `key` already. Duplicates that come meanwhile wait, and are answered as
   * well.
   */
  run<Value>(key: string, work: OnceWork<Value>): Promise<OnceResult<Value>>
  run<Value>(key: string, options: OnceRunOptions, work: OnceWork<Value>): Promise<OnceResult<Value>>
}

export const ONCE_OPTIONS: OptionNames<OnceOptions> = {
  name: true,
  keep: true,
  wait: true,
  crashed: true,
  failures: true,
  ttl: true,
  store: true,
  serialize: true,
}

export const ONCE_RUN_OPTIONS: OptionNames<OnceRunOptions> = {
  scope: true,
  fingerprint: true,
  wait: true,
  crashed: true,
  signal: true,
}
