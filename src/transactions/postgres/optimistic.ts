/** Optimistic changes on PostgreSQL. */

import { SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import { type OptimisticOptions, type OptimisticResult, tryOptimistically } from '../optimistic.ts'
import { changeRow, type OptimisticRowOptions, type Row, type RowAccess } from '../optimistic-row.ts'
import { type AskPostgres, askerOf, dialect, type PostgresTransactionClient } from './client.ts'

/**
 * Change what was read unless another writer was faster, and then try again: a row of a table, or whatever you read and
 * write.
 */
export function optimistic<Columns extends object = Row>(
  options: OptimisticRowOptions<PostgresTransactionClient, Columns>,
): Promise<OptimisticResult<Columns>>
export function optimistic<Before, After = Before>(
  options: OptimisticOptions<Before, After>,
): Promise<OptimisticResult<Before, After>>
export async function optimistic(
  options: OptimisticRowOptions<PostgresTransactionClient> | OptimisticOptions<unknown>,
): Promise<OptimisticResult<unknown>> {
  return 'write' in options
    ? await tryOptimistically(options)
    : await changeRow(rowsOf(askerOf(options.client)), options)
}

function rowsOf(ask: AskPostgres): RowAccess {
  return {
    dialect,
    read: async ({ text, values }) => (await ask(text, values)).rows,
    write: async ({ text, values }) => {
      try {
        return (await ask(text, values)).count > 0 ? 'written' : 'missed'
      } catch (error) {
        // The row was changed after our snapshot. A statement on its own gets a new one; a transaction is aborted.
        if (sqlStateOf(error) !== SQLSTATE.serializationFailure) throw error
        return await ask('SELECT 1').then(
          () => 'missed' as const,
          () => 'stale' as const,
        )
      }
    },
  }
}
