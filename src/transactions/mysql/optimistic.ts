/** Optimistic changes on MySQL and MariaDB. */

import { ERRNO, errnoOf } from '../../clients/mysql/errors.ts'
import { type OptimisticOptions, type OptimisticResult, tryOptimistically } from '../optimistic.ts'
import { changeRow, type OptimisticRowOptions, type Row, type RowAccess } from '../optimistic-row.ts'
import { checkClient, dialect, doneBy, type MysqlTransactionClient, rowsOf } from './client.ts'

/**
 * Change what was read, unless another writer was faster, and then try again: a row of a table, or whatever you read
 * and write.
 */
export function optimistic<Columns extends object = Row>(
  options: OptimisticRowOptions<MysqlTransactionClient, Columns>,
): Promise<OptimisticResult<Columns>>
export function optimistic<Before, After = Before>(
  options: OptimisticOptions<Before, After>,
): Promise<OptimisticResult<Before, After>>
export async function optimistic(
  options: OptimisticRowOptions<MysqlTransactionClient> | OptimisticOptions<unknown>,
): Promise<OptimisticResult<unknown>> {
  if ('write' in options) return await tryOptimistically(options)
  checkClient(options.client)
  return await changeRow(rowsBy(options.client), options)
}

function rowsBy(client: MysqlTransactionClient): RowAccess {
  return {
    dialect,
    read: (statement) => rowsOf(client, statement),
    write: async (statement) => {
      try {
        const { affectedRows, inTransaction } = await doneBy(client, statement)
        if (affectedRows > 0) return 'written'
        return inTransaction ? 'missedInside' : 'missed'
      } catch (error) {
        // MariaDB 11.8 says so by itself: the row was changed after the snapshot of this transaction.
        if (errnoOf(error) !== ERRNO.snapshotChanged) throw error
        return 'stale'
      }
    },
  }
}
