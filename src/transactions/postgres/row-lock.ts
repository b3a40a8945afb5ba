/** `SELECT ... FOR UPDATE` in the caller's transaction, and how any lock is waited for there. */

import { SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import type { Row } from '../optimistic-row.ts'
import {
  type ClientTurn,
  checkMode,
  found,
  inTurn,
  type LockFailure,
  type RowLockOptions,
  type RowLockResult,
  type RowWait,
  rowWaitOf,
} from '../row-lock.ts'
import { select } from '../statements.ts'
import { type AskPostgres, behindSavepoint, dialect, type PostgresTransactionClient } from './client.ts'

const SUFFIX = { asSet: '', within: '', nowait: ' NOWAIT', skipLocked: ' SKIP LOCKED' }

/**
 * Lock rows until the transaction ends. `client` is yours, with an open transaction: pg's Client or PoolClient after
 * `BEGIN`, or the `sql` inside of `sql.begin()`.
 */
export function rowLock<Columns extends object = Row>(
  client: PostgresTransactionClient,
  options: RowLockOptions,
): Promise<RowLockResult<Columns>> {
  return lockRows(client, options, inTurn)
}

/** The same, perhaps as a part of a call that does more. */
export async function lockRows<Columns extends object = Row>(
  client: PostgresTransactionClient,
  options: RowLockOptions,
  turn: ClientTurn,
): Promise<RowLockResult<Columns>> {
  const rowWait = rowWaitOf(options.wait)
  const lock = checkMode(options.mode) === 'share' ? 'FOR SHARE' : 'FOR UPDATE'
  const statement = select(dialect, options, lock + SUFFIX[rowWait.how])
  const work = async (ask: AskPostgres): Promise<RowLockResult<Columns>> => {
    const { rows } = await ask(statement.text, statement.values)
    if (rows.length > 0 || rowWait.how !== 'skipLocked') return found(rows as readonly Columns[])
    // All were passed over, or there is none. A row that is unlocked in between is ours.
    const again = select(dialect, options, `${lock} NOWAIT`)
    return found((await ask(again.text, again.values)).rows as readonly Columns[])
  }
  return await locking(client, 'rowLock', rowWait, work, turn)
}

const FAILURES: Readonly<Record<string, LockFailure>> = {
  // NOWAIT, or lock_timeout
  [SQLSTATE.lockNotAvailable]: { state: 'busy' },
  [SQLSTATE.deadlockDetected]: { state: 'conflict', why: 'deadlock' },
  // At REPEATABLE READ or SERIALIZABLE.
  [SQLSTATE.serializationFailure]: { state: 'conflict', why: 'snapshot' },
}

/**
 * What `work` answers, or why the lock was not to be had. `work` asks for locks and does nothing else. The time-out of
 * the wait ends with it.
 */
export async function locking<Result>(
  client: PostgresTransactionClient,
  what: string,
  rowWait: RowWait,
  work: (ask: AskPostgres) => Promise<Result>,
  turn: ClientTurn = inTurn,
): Promise<Result | LockFailure> {
  return await turn(client, async () => {
    try {
      return await behindSavepoint(client, what, (ask) =>
        rowWait.how === 'within' ? within(rowWait.waitMs, ask, work) : work(ask),
      )
    } catch (error) {
      const failure = FAILURES[sqlStateOf(error) ?? '']
      if (failure === undefined) throw error
      return failure
    }
  })
}

/** Only success puts the setting back by hand: going back to a savepoint undoes it. */
async function within<Result>(
  waitMs: number,
  ask: AskPostgres,
  work: (ask: AskPostgres) => Promise<Result>,
): Promise<Result> {
  const { rows } = await ask(`SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true)`, [
    `${Math.ceil(waitMs)}ms`,
  ])
  const result = await work(ask)
  await ask(`SELECT set_config('lock_timeout', $1, true)`, [rows[0]?.before])
  return result
}
