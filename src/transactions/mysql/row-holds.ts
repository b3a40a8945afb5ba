/** Holds of rows in the caller's transaction, on MySQL and MariaDB. What they mean is in ../row-holds.ts. */
import type {
  CancelRowResult,
  ConfirmRowOptions,
  ConfirmRowResult,
  ExtendRowOptions,
  ExtendRowResult,
  ReserveRowOptions,
  ReserveRowResult,
  RowHoldOptions,
} from '../row-hold-options.ts'
import { ROW_HOLDS_TABLE, type RowHoldsServer, withLockedRow } from '../row-holds.ts'
import { type Table, tableName } from '../statements.ts'
import { checkClient, dialect, type MysqlTransactionClient, rowsOf } from './client.ts'
import { lockRows } from './row-lock.ts'

const server: RowHoldsServer<MysqlTransactionClient> = {
  dialect: {
    ...dialect,
    nowMs: "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000)",
    // At REPEATABLE READ a plain look shows what was there when the transaction began.
    current: 'FOR UPDATE',
  },
  lockRows,
  ask: rowsOf,
}

/** Make the table of holds, if it is not there: once, by a user who may, outside of a transaction. */
export async function setupRowHolds(
  client: MysqlTransactionClient,
  { holds = ROW_HOLDS_TABLE }: { readonly holds?: Table } = {},
): Promise<void> {
  checkClient(client)
  await client.query(`CREATE TABLE IF NOT EXISTS ${tableName(dialect, holds)} (
    row_key CHAR(64) CHARACTER SET ascii NOT NULL, id VARBINARY(256) NOT NULL, state VARCHAR(8) NOT NULL,
    quantity BIGINT NOT NULL, due_at BIGINT NOT NULL, row_of VARCHAR(200) CHARACTER SET utf8mb4 NOT NULL,
    PRIMARY KEY (row_key, id), KEY due (row_key, due_at)
  ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC`)
}

/**
 * Hold units of a row of yours for a while, inside of your transaction: `client` is as for `rowLock`. The column `left`
 * is what is neither sold nor held; what has lapsed is given back to it first.
 */
export function reserveRow(client: MysqlTransactionClient, options: ReserveRowOptions): Promise<ReserveRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.reserve(rows, options.quantity, options.hold))
}

/** Let a hold live for longer, from now on; never shorter than it would anyway. */
export function extendRow(client: MysqlTransactionClient, options: ExtendRowOptions): Promise<ExtendRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.extend(rows, options.hold))
}

/** What is held is sold: it does not come back any more. Twice is once. */
export function confirmRow(client: MysqlTransactionClient, options: ConfirmRowOptions): Promise<ConfirmRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.confirm(rows, options))
}

/** Give back what is held. */
export function cancelRow(client: MysqlTransactionClient, options: RowHoldOptions): Promise<CancelRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.cancel(rows))
}
