/** `SELECT ... FOR UPDATE` in the caller's transaction. */

import type { Row } from '../optimistic-row.ts'
import { checkMode, found, type RowLockOptions, type RowLockResult, rowWaitOf } from '../row-lock.ts'
import { select } from '../statements.ts'
import { dialect, type PostgresTransactionClient } from './client.ts'
import { locking } from './locking.ts'

const SUFFIX = { asSet: '', within: '', nowait: ' NOWAIT', skipLocked: ' SKIP LOCKED' }

/**
 * Lock rows until the transaction ends. `client` is yours, with an open transaction: pg's Client or PoolClient after
 * `BEGIN`, or the `sql` inside of `sql.begin()`.
 */
export async function rowLock<Columns extends object = Row>(
  client: PostgresTransactionClient,
  options: RowLockOptions,
): Promise<RowLockResult<Columns>> {
  const rowWait = rowWaitOf(options.wait)
  const lock = checkMode(options.mode) === 'share' ? 'FOR SHARE' : 'FOR UPDATE'
  const statement = select(dialect, options, lock + SUFFIX[rowWait.how])
  return await locking(client, 'rowLock', rowWait, async (ask) => {
    const { rows } = await ask(statement.text, statement.values)
    if (rows.length > 0 || rowWait.how !== 'skipLocked') return found(rows as readonly Columns[])
    // All were passed over, or there is none. A row that is unlocked in between is ours.
    const again = select(dialect, options, `${lock} NOWAIT`)
    return found((await ask(again.text, again.values)).rows as readonly Columns[])
  })
}
