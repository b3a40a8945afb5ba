/**
 * A lock by name that ends with the caller's transaction: PostgreSQL's transaction-scoped advisory lock. For what is
 * not a row, or not yet: "one import of this file at a time", "no other process creates this user now".
 */

import { advisoryKey } from '../../clients/postgres/advisory-key.ts'
import type { Duration } from '../../core/duration.ts'
import { checkKey } from '../../core/keys.ts'
import { type LockFailure, rowWaitOf } from '../row-lock.ts'
import type { PostgresTransactionClient } from './client.ts'
import { locking } from './row-lock.ts'

/** How to lock a name until the transaction ends. */
export interface XactLockOptions {
  /** Together with others who say so, instead of alone. */
  readonly shared?: boolean
  /**
   * A duration: wait that long. 0: answer `busy` at once. Left out: as long as `lock_timeout` says, for ever by
   * default.
   */
  readonly wait?: Duration
}

/** Whether the name is locked. */
export type XactLockResult = { readonly state: 'locked' } | LockFailure

/**
 * Taken until the transaction ends; taking it again inside of it is granted at once. Excludes `postgres-advisory` locks
 * of the same name, both ways.
 */
export async function xactLock(
  client: PostgresTransactionClient,
  name: string,
  options: XactLockOptions = {},
): Promise<XactLockResult> {
  const { shared = false, wait } = options
  checkKey(name)
  const rowWait = rowWaitOf(wait)
  if (rowWait.how === 'skipLocked') throw new TypeError(`wait must be a duration; got 'skipLocked'`)
  const verb = `pg_${rowWait.how === 'nowait' ? 'try_' : ''}advisory_xact_lock${shared ? '_shared' : ''}`
  return await locking<XactLockResult>(client, 'xactLock', rowWait, async (ask) => {
    const { rows } = await ask(`SELECT ${verb}($1::bigint) AS won`, [String(advisoryKey(name))])
    return rows[0]?.won === false ? { state: 'busy' } : { state: 'locked' }
  })
}
