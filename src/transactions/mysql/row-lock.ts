/**
 * `SELECT ... FOR UPDATE` in the caller's transaction, on MySQL and MariaDB.
 *
 * A statement that fails leaves the transaction open, so no savepoint is needed; but rows that it had locked before it
 * met the busy one stay locked, and neither server gives them back before the transaction ends.
 */

import { ERRNO, errnoOf } from '../../clients/mysql/errors.ts'
import type { Row } from '../optimistic-row.ts'
import {
  type ClientTurn,
  checkMode,
  found,
  inTurn,
  type LockFailure,
  notInTransaction,
  type RowLockOptions,
  type RowLockResult,
  type RowWait,
  rowWaitOf,
} from '../row-lock.ts'
import { type Statement, select } from '../statements.ts'
import { checkClient, dialect, doneBy, type MysqlTransactionClient, rowsOf } from './client.ts'

const FAILURES: Readonly<Record<number, LockFailure>> = {
  // MariaDB says so for NOWAIT, too.
  [ERRNO.lockWaitTimeout]: { state: 'busy' },
  [ERRNO.lockNowait]: { state: 'busy' },
  [ERRNO.deadlock]: { state: 'conflict', why: 'deadlock' },
  [ERRNO.snapshotChanged]: { state: 'conflict', why: 'snapshot' },
}

const SUFFIX = { asSet: '', within: '', nowait: ' NOWAIT', skipLocked: ' SKIP LOCKED' }

/**
 * Lock rows until the transaction ends. `client` is yours, with an open transaction: a Connection or PoolConnection of
 * mysql2/promise after `beginTransaction()`.
 */
export function rowLock<Columns extends object = Row>(
  client: MysqlTransactionClient,
  options: RowLockOptions,
): Promise<RowLockResult<Columns>> {
  return lockRows(client, options, inTurn)
}

/** The same, perhaps as a part of a call that does more. */
export async function lockRows<Columns extends object = Row>(
  client: MysqlTransactionClient,
  options: RowLockOptions,
  turn: ClientTurn,
): Promise<RowLockResult<Columns>> {
  checkClient(client)
  const rowWait = rowWaitOf(options.wait)
  const mode = checkMode(options.mode)
  // Refuse a wrong question before anything is sent.
  select(dialect, options)
  return await turn(client, async () => {
    const lock = mode === 'update' ? 'FOR UPDATE' : await shareMode(client)
    const statement = select(dialect, options, lock + SUFFIX[rowWait.how])
    try {
      return found(
        (await within(client, rowWait, () =>
          lockedBy(client, statement, lock, options, rowWait),
        )) as readonly Columns[],
      )
    } catch (error) {
      return await failureOf(client, error)
    }
  })
}

async function lockedBy(
  client: MysqlTransactionClient,
  statement: Statement,
  lock: string,
  options: RowLockOptions,
  rowWait: RowWait,
): Promise<readonly Row[]> {
  const rows = await rowsOf(client, statement)
  if (rows.length > 0 || rowWait.how !== 'skipLocked') return rows
  // All rows were passed over, or there is none. A row that its holder lets go in between is ours.
  return await rowsOf(client, select(dialect, options, `${lock} NOWAIT`))
}

/**
 * Set the time-out for this one wait, and put it back whatever happens. Either way the server's answer says whether a
 * transaction is open.
 */
async function within<Result>(
  client: MysqlTransactionClient,
  rowWait: RowWait,
  work: () => Promise<Result>,
): Promise<Result> {
  if (rowWait.how !== 'within') {
    await demandTransaction(client, 'DO 0')
    return await work()
  }
  const seconds = Math.ceil(rowWait.waitMs / 1000)
  try {
    await demandTransaction(
      client,
      `SET @holdfast_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = ${seconds}`,
    )
    return await work()
  } finally {
    // A connection that is gone has nothing to put back.
    await client.query('SET innodb_lock_wait_timeout = @holdfast_wait').catch(() => undefined)
  }
}

async function demandTransaction(client: MysqlTransactionClient, text: string): Promise<void> {
  const { inTransaction } = await doneBy(client, { text, values: [] })
  if (!inTransaction) throw notInTransaction('rowLock', 'Call beginTransaction() on this connection first.')
}

async function failureOf(client: MysqlTransactionClient, error: unknown): Promise<LockFailure> {
  const failure = FAILURES[errnoOf(error) ?? 0]
  if (failure === undefined) throw error
  if (failure.state !== 'busy') return failure
  // With innodb_rollback_on_timeout the server has ended the transaction. To say "busy" would be to let the caller go
  // on without one.
  const { inTransaction } = await doneBy(client, { text: 'DO 0', values: [] })
  return inTransaction ? failure : { state: 'conflict', why: 'timeout' }
}

const modes = new WeakMap<MysqlTransactionClient, string>()

/** MariaDB knows only the old words, and MySQL takes NOWAIT and SKIP LOCKED only with the new ones. */
async function shareMode(client: MysqlTransactionClient): Promise<string> {
  let mode = modes.get(client)
  if (mode === undefined) {
    const [row] = await rowsOf(client, { text: 'SELECT VERSION() AS version', values: [] })
    mode = String(row?.version).includes('MariaDB') ? 'LOCK IN SHARE MODE' : 'FOR SHARE'
    modes.set(client, mode)
  }
  return mode
}
