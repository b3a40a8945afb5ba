/**
 * Waiting for a lock inside of the caller's transaction: with a time-out that ends with the wait, and with failures
 * that are answers.
 */

import { type Ask, behindSavepoint, codeOf, type TransactionClient } from '../../clients/postgres/transaction.ts'
import type { LockFailure, Patience } from '../row-lock.ts'
import { inTurn } from '../turns.ts'

/** Each is one line of the manual's appendix "PostgreSQL Error Codes". */
const FAILURES: Readonly<Record<string, LockFailure>> = {
  // lock_not_available: NOWAIT, or lock_timeout
  '55P03': { state: 'busy' },
  // deadlock_detected
  '40P01': { state: 'conflict', why: 'deadlock' },
  // serialization_failure, at REPEATABLE READ or SERIALIZABLE
  '40001': { state: 'conflict', why: 'snapshot' },
}

/** What `work` answers, or why the lock was not to be had. `work` asks for locks and does nothing else. */
export async function locking<Result>(
  client: TransactionClient,
  what: string,
  patience: Patience,
  work: (ask: Ask) => Promise<Result>,
): Promise<Result | LockFailure> {
  return await inTurn(client, async () => {
    try {
      return await behindSavepoint(client, what, (ask) =>
        patience.how === 'within' ? within(patience.waitMs, ask, work) : work(ask),
      )
    } catch (error) {
      const failure = FAILURES[String(codeOf(error))]
      if (failure === undefined) throw error
      return failure
    }
  })
}

/** Only success puts the setting back by hand: going back to a savepoint undoes it. */
async function within<Result>(waitMs: number, ask: Ask, work: (ask: Ask) => Promise<Result>): Promise<Result> {
  const { rows } = await ask(`SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', $1, true)`, [
    `${Math.ceil(waitMs)}ms`,
  ])
  const result = await work(ask)
  await ask(`SELECT set_config('lock_timeout', $1, true)`, [rows[0]?.before])
  return result
}
