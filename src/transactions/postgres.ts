/**
 * Locks inside of the caller's own transaction on PostgreSQL: the door. `holdfast/postgres` exports it again.
 * docs/transactions.md says when to use which.
 */

export type { PgClient, PostgresJsSql, TransactionClient } from '../clients/postgres/transaction.ts'
export type { OptimisticOptions, OptimisticResult, RetryOptions } from './optimistic.ts'
export { optimistic } from './postgres/optimistic.ts'
export { rowLock } from './postgres/row-lock.ts'
export { type XactLockOptions, type XactLockResult, xactLock } from './postgres/xact-lock.ts'
export type { ConflictReason, LockFailure, RowLockOptions, RowLockResult } from './row-lock.ts'
export type { Table, Where } from './statements.ts'
export type { OptimisticRowOptions, Row } from './table.ts'
