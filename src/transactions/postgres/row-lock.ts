/** `SELECT ... FOR UPDATE` in the caller's transaction. */

import { dialect, type TransactionClient } from '../../clients/postgres/transaction.ts'
import { checkMode, found, patienceOf, type RowLockOptions, type RowLockResult } from '../row-lock.ts'
import { select } from '../statements.ts'
import type { Row } from '../table.ts'
import { locking } from './locking.ts'

const SUFFIX = { asSet: '', within: '', nowait: ' NOWAIT', skipLocked: ' SKIP LOCKED' }

/**
 * Lock rows until the transaction ends. `client` is yours, with an open transaction: pg's Client or PoolClient after
 * `BEGIN`, or the `sql` inside of `sql.begin()`.
 */
export async function rowLock<Columns extends object = Row>(
  client: TransactionClient,
  options: RowLockOptions,
): Promise<RowLockResult<Columns>> {
  const patience = patienceOf(options.wait)
  const lock = checkMode(options.mode) === 'share' ? 'FOR SHARE' : 'FOR UPDATE'
  const statement = select(dialect, options, lock + SUFFIX[patience.how])
  return await locking(client, 'rowLock', patience, async (ask) => {
    const { rows } = await ask(statement.text, statement.values)
    if (rows.length > 0 || patience.how !== 'skipLocked') return found(rows as readonly Columns[])
    // All were passed over, or there is none. Whoever lets go in between leaves the row to us.
    const again = select(dialect, options, `${lock} NOWAIT`)
    return found((await ask(again.text, again.values)).rows as readonly Columns[])
  })
}
