/**
 * Waiting for a lock inside of the caller's transaction: with a time-out that ends with the wait, and with failures
 * that are answers.
 */

import { SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import type { LockFailure, RowWait } from '../row-lock.ts'
import { inTurn } from '../turns.ts'
import { type AskPostgres, behindSavepoint, type PostgresTransactionClient } from './client.ts'

const FAILURES: Readonly<Record<string, LockFailure>> = {
  // NOWAIT, or lock_timeout
  [SQLSTATE.lockNotAvailable]: { state: 'busy' },
  [SQLSTATE.deadlockDetected]: { state: 'conflict', why: 'deadlock' },
  // At REPEATABLE READ or SERIALIZABLE.
  [SQLSTATE.serializationFailure]: { state: 'conflict', why: 'snapshot' },
}

/** What `work` answers, or why the lock was not to be had. `work` asks for locks and does nothing else. */
export async function locking<Result>(
  client: PostgresTransactionClient,
  what: string,
  rowWait: RowWait,
  work: (ask: AskPostgres) => Promise<Result>,
): Promise<Result | LockFailure> {
  return await inTurn(client, async () => {
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
