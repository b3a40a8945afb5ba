/**
 * `holdfast/mysql`: locks on the MariaDB or MySQL you already run, without a connection for each of them; and locks
 * inside of your own transactions, which are in ../../transactions/.
 *
 * Read in this order: sql/tables.sql (what is stored), sql/enter.sql, renew.sql, leave.sql and line.sql (what is
 * decided), engine.ts (how it is asked), ear.ts and ../rechecks.ts (how a waiter hears), wires/ (your client).
 */

import { databaseOf } from '../../clients/mysql/connect.ts'
import { type MysqlClient, wireOf } from '../../clients/mysql/detect.ts'
import type { MysqlEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

export type { MysqlClient } from '../../clients/mysql/detect.ts'
export * from '../../transactions/mysql.ts'
export type { Diagnosis } from './diagnose.ts'
export type { MysqlEngine } from './engine.ts'
export { openMysql } from './open.ts'
export type { CommonOptions } from './setup.ts'

export interface MysqlOptions extends CommonOptions {
  /**
   * Your client: a `Pool` of mysql2, with promises or without. You close it. Also a `Connection` that is for nothing
   * else: a transaction of yours on it would be committed by the first lock.
   */
  readonly client: MysqlClient
}

/** An engine on a client of yours. For one by URL: `openMysql(url)`, or `connect(url)`. */
export function mysql(options: MysqlOptions): MysqlEngine {
  const wire = wireOf(options.client)
  return engineOn(wire, options, databaseOf(options.client))
}
