/**
 * Locks inside of the caller's own transaction on MySQL and MariaDB: the door. `holdfast/mysql` exports it again.
 * docs/transactions.md says when to use which.
 */
export type { MysqlTransactionClient } from './mysql/client.ts'
export { optimistic } from './mysql/optimistic.ts'
export { cancelRow, confirmRow, extendRow, reserveRow, setupRowHolds } from './mysql/row-holds.ts'
export { rowLock } from './mysql/row-lock.ts'
export type { OptimisticOptions, OptimisticResult, RetryOptions } from './optimistic.ts'
export type { OptimisticRowOptions, Row } from './optimistic-row.ts'
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
