/**
 * `holdfast/postgres`: locks on the PostgreSQL you already run, without a connection for each of them; and, for rows of
 * your own, locks inside your own transaction (../../transactions/).
 *
 * Read in this order: sql/tables.sql (what is stored), sql/enter.sql, renew.sql, leave.sql and line.sql (what is
 * decided), engine.ts (how it is asked), letterbox.ts and ../rechecks.ts (how a waiter hears), wires/ (your client).
 */

import { type PostgresClient, wireOf } from '../../clients/postgres/detect.ts'
import type { PostgresEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

export type { PostgresClient } from '../../clients/postgres/detect.ts'
export * from '../../transactions/postgres.ts'
export type { Diagnosis } from './diagnose.ts'
export type { PostgresEngine } from './engine.ts'
export { openPostgres } from './open.ts'
export type { CommonOptions } from './setup.ts'

export interface PostgresOptions extends CommonOptions {
  /**
   * Your client: a `Pool` of pg, or a `Sql` of postgres.js. You close it. Also a `Client` of pg that is for nothing
   * else: in a transaction of yours, locks would be taken when you commit.
   */
  readonly client: PostgresClient
}

/** An engine on a client of yours. For one by URL: `openPostgres(url)`, or `connect(url)`. */
export function postgres(options: PostgresOptions): PostgresEngine {
  return engineOn((limits) => wireOf(options.client, limits), options)
}
