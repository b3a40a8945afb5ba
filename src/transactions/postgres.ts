/**
 * Locks inside of the caller's own transaction on PostgreSQL: the door. `holdfast/postgres` exports it again.
 * docs/transactions.md says when to use which.
 */

export type { OptimisticOptions, OptimisticResult, RetryOptions } from './optimistic.ts'
export type { OptimisticRowOptions, Row } from './optimistic-row.ts'
export type { PgTransactionClient, PostgresJsSql, PostgresTransactionClient } from './postgres/client.ts'
export { optimistic } from './postgres/optimistic.ts'
export { cancelRow, confirmRow, extendRow, reserveRow, setupRowHolds } from './postgres/row-holds.ts'
export { rowLock } from './postgres/row-lock.ts'
export { type XactLockOptions, type XactLockResult, xactLock } from './postgres/xact-lock.ts'
export type {
  CancelRowResult,
  ConfirmRowOptions,
  ConfirmRowResult,
  ExtendRowOptions,
  ExtendRowResult,
  ReserveRowOptions,
  ReserveRowResult,
  RowHoldOptions,
  RowNotHad,
} from './row-hold-options.ts'
export type { ConflictReason, LockFailure, RowLockOptions, RowLockResult } from './row-lock.ts'
export type { Table, Where } from './statements.ts'
