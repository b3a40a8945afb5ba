/** Holds of rows in the caller's transaction, on PostgreSQL. What they mean is in ../row-holds.ts. */
import { advisoryKey } from '../../clients/postgres/advisory-key.ts'
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
import { fixedTable, type Table } from '../statements.ts'
import { askerOf, dialect, type PostgresTransactionClient } from './client.ts'
import { lockRows } from './row-lock.ts'

const server: RowHoldsServer<PostgresTransactionClient> = {
  dialect: {
    ...dialect,
    // One moment for all rows that a statement looks at. The row was locked by a statement before it.
    nowMs: 'floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint',
    current: '',
  },
  lockRows,
  ask: async (client, { text, values }) => (await askerOf(client)(text, values)).rows,
}

/** Make the table of holds, if it is not there: once, by a user who may, outside of a transaction. */
export async function setupRowHolds(
  client: PostgresTransactionClient,
  { holds = ROW_HOLDS_TABLE }: { readonly holds?: Table } = {},
): Promise<void> {
  const table = fixedTable(dialect, holds, 'public')
  // Of several who make a table at once, all but one can fail, in spite of IF NOT EXISTS.
  await askerOf(client)(`DO $holdfast$ BEGIN
    PERFORM pg_advisory_xact_lock(${advisoryKey(`the row holds of ${table}`)});
    CREATE TABLE IF NOT EXISTS ${table} (
      row_key text COLLATE "C" NOT NULL, id text COLLATE "C" NOT NULL, state text NOT NULL, quantity bigint NOT NULL,
      due_at bigint NOT NULL, row_of text NOT NULL, PRIMARY KEY (row_key, id)
    );
    CREATE INDEX IF NOT EXISTS ${dialect.quote(`${table.replaceAll(/\W+/g, '_')}_due`)} ON ${table} (row_key, due_at);
  END $holdfast$`)
}

/**
 * Hold units of a row of yours for a while, inside of your transaction: `client` is as for `rowLock`. The column `left`
 * is what is neither sold nor held; what has lapsed is given back to it first.
 */
export function reserveRow(client: PostgresTransactionClient, options: ReserveRowOptions): Promise<ReserveRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.reserve(rows, options.quantity, options.hold))
}

/** Let a hold live for longer, from now on; never shorter than it would anyway. */
export function extendRow(client: PostgresTransactionClient, options: ExtendRowOptions): Promise<ExtendRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.extend(rows, options.hold))
}

/** What is held is sold: it does not come back any more. Twice is once. */
export function confirmRow(client: PostgresTransactionClient, options: ConfirmRowOptions): Promise<ConfirmRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.confirm(rows, options))
}

/** Give back what is held. */
export function cancelRow(client: PostgresTransactionClient, options: RowHoldOptions): Promise<CancelRowResult> {
  return withLockedRow(server, client, options, (holds, rows) => holds.cancel(rows))
}
