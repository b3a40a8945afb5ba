/**
 * What locking rows means, on whichever database: the question and its answers. How a server is asked is in postgres/
 * and mysql/.
 */
import { type Duration, parseDuration } from '../core/duration.ts'
import type { Table, Where } from './statements.ts'

/** Which rows to lock until the transaction ends, and how long to wait for them. */
export interface RowLockOptions {
  readonly table: Table
  /**
   * Which rows: columns and what they equal. Should name a unique key, or an index: MySQL locks every row it has to
   * look at.
   */
  readonly where: Where
  /**
   * `update` (the default): no other transaction locks or changes the rows. `share`: others may lock them in share mode
   * too, and none changes them.
   */
  readonly mode?: 'update' | 'share'
  /**
   * A duration: wait that long, for each row; whole seconds on MySQL and MariaDB, rounded up. 0: answer `busy` at
   * once. `skipLocked`: take those rows that no transaction has locked. Left out: as long as the connection's own
   * setting says (`lock_timeout`: for ever by default; `innodb_lock_wait_timeout`: 50 s by default).
   */
  readonly wait?: 'skipLocked' | Duration
  /** What to read of each row. All columns unless given. */
  readonly columns?: readonly string[]
  /** Ascending. Rows that all transactions lock in one order are in no deadlock. */
  readonly order?: readonly string[]
  /** At most so many rows: with `skipLocked`, the next job of a queue. */
  readonly limit?: number
}

/**
 * Why a transaction has to begin again. `deadlock`: it and others waited for each other, and the server chose it to
 * give way. `snapshot`: it sees the database as it was before the row was changed, and may not change it any more.
 * `timeout`: the wait is over, and the server is set to end the transaction with it (`innodb_rollback_on_timeout`).
 */
export type ConflictReason = 'deadlock' | 'snapshot' | 'timeout'

/** Whether the rows are locked now. */
export type RowLockResult<Row> =
  /** The rows, as they are now; locked until the transaction ends. */
  | { readonly state: 'locked'; readonly rows: readonly [Row, ...Row[]] }
  /** Another transaction has a row locked. The transaction goes on as if nothing had been asked. */
  | { readonly state: 'busy' }
  /** No row is like that. */
  | { readonly state: 'missing' }
  /**
   * Roll back and begin the transaction again. (After a deadlock or a `timeout` MySQL and MariaDB have rolled it back
   * already.)
   */
  | { readonly state: 'conflict'; readonly why: ConflictReason }

/** What goes wrong while a lock is waited for, in the words of a result. */
export type LockFailure = Extract<RowLockResult<never>, { readonly state: 'busy' | 'conflict' }>

/** How to wait, checked: what to say to the server. */
export type RowWait =
  | { readonly how: 'asSet' | 'nowait' | 'skipLocked' }
  | { readonly how: 'within'; readonly waitMs: number }

/** No time at all is `nowait`: for both servers a time-out of 0 means something else. */
export function rowWaitOf(wait: RowLockOptions['wait']): RowWait {
  if (wait === undefined) return { how: 'asSet' }
  if (wait === 'skipLocked') return { how: wait }
  const waitMs = parseDuration(wait, 'wait')
  return waitMs === 0 ? { how: 'nowait' } : { how: 'within', waitMs }
}

export function checkMode(mode: RowLockOptions['mode'] = 'update'): 'update' | 'share' {
  if (mode === 'update' || mode === 'share') return mode
  throw new TypeError(`mode must be 'update' or 'share'; got ${JSON.stringify(mode)}`)
}

export function found<Row>(rows: readonly Row[]): RowLockResult<Row> {
  const [first, ...others] = rows
  return first === undefined ? { state: 'missing' } : { state: 'locked', rows: [first, ...others] }
}

/** The refusal that keeps a lock from being released the moment it is taken. */
export function notInTransaction(what: string, how: string): TypeError {
  return new TypeError(
    `${what} needs an open transaction, and there is none: the lock would be released at once. ${how} ` +
      '(A pool runs every statement on a connection of its own.)',
  )
}

const last = new WeakMap<object, Promise<unknown>>()

/** How the statements of one call are kept apart from those of others. */
export type ClientTurn = <Result>(client: object, work: () => Promise<Result>) => Promise<Result>

/** For a part of a call that has its turn already. */
export const sameTurn: ClientTurn = (_, work) => work()

/**
 * One at a time for each client. A lock is several statements (a savepoint, a time-out, the question, and back), and
 * those of two calls that a caller makes at once on one connection must not mix.
 */
export async function inTurn<Result>(client: object, work: () => Promise<Result>): Promise<Result> {
  const before = last.get(client)
  const working = before === undefined ? work() : before.then(work)
  const settled = working.then(
    () => undefined,
    () => undefined,
  )
  last.set(client, settled)
  return await working
}
