/**
 * `holdfast/mysql`: locks on the MariaDB or MySQL you already run, without a connection for each of them; and locks
 * inside of your own transactions, which are in ../../transactions/.
 *
 * Read in this order:
 *
 *     sql/tables.sql                                 what is stored
 *     sql/enter.sql, renew.sql, leave.sql, line.sql  what is decided
 *     engine.ts                                      the verbs
 *     plain-statements.ts                            what is done without a procedure
 *     procedure-calls.ts, codec.ts                   how a call is written, sent and read
 *     listen.ts, ../shared/recheck-timer.ts          how a waiter hears that it holds
 *     sql/records.sql, store.ts, record-codec.ts     records beside the lines
 *     ../../clients/mysql/                           your client
 *     errors.ts                                      what an error means for the core
 *     names.ts, migration.ts, diagnose.ts            names of tables, making them, and `holdfast doctor`
 */

import { databaseOf, parseUrl, poolAt } from '../../clients/mysql/connect.ts'
import { type MysqlClient, wireOf } from '../../clients/mysql/detect.ts'
import type { MysqlWire } from '../../clients/mysql/wire.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { MysqlEngine } from './engine.ts'
import { checkNames, DEFAULT_NAME } from './names.ts'

export type { MysqlClient } from '../../clients/mysql/detect.ts'
export * from '../../transactions/mysql.ts'
export type { MysqlEngine } from './engine.ts'

/** What does not depend on how the client was had. */
export interface MysqlEngineOptions {
  /**
   * The database of our tables and procedures; that of the client unless given. It has to be there; they are made on
   * first use.
   */
  readonly database?: string
  /** What their names begin with; `holdfast` unless given. Processes that shall exclude each other use the same. */
  readonly name?: string
  /** `false`: have no connection that listens. Waiters poll. */
  readonly listen?: boolean
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

/** Options of `mysql()`. */
export interface MysqlOptions extends MysqlEngineOptions {
  /**
   * Your client: a `Pool` of mysql2, with promises or without. You close it. Also a `Connection` that is for nothing
   * else: a transaction of yours on it would be committed by the first lock.
   */
  readonly client: MysqlClient
}

const ENGINE_OPTIONS: OptionNames<MysqlEngineOptions> = { database: true, name: true, listen: true, clock: true }
const OPTIONS: OptionNames<MysqlOptions> = { client: true, ...ENGINE_OPTIONS }

/** An engine on a client of yours. For one by URL: `openMysql(url)`, or `connect(url)`. */
export function mysql(options: MysqlOptions): MysqlEngine {
  checkOptions('mysql()', options, OPTIONS)
  const wire = wireOf(options.client)
  return showEngine(engineOn(wire, options, databaseOf(options.client)))
}

/**
 * The engine behind a URL:
 *
 *     mysql://user:password@host:3306/database
 *
 * or `mariadb://`, with the options that clients/mysql/connect.ts lists as a query. It connects by itself, and closes
 * its connections when it is closed.
 */
export async function openMysql(url: string, options: MysqlEngineOptions = {}): Promise<MysqlEngine> {
  checkOptions('openMysql()', options, ENGINE_OPTIONS)
  const { target, options: urlOptions } = parseUrl(url)
  return showEngine(engineOn(await poolAt(target), { ...urlOptions, ...withoutUndefined(options) }), { url })
}

/**
 * `home`: the database that the client was made for. It is named in what we ask, because a connection of the user's
 * pool may be in another one by now (USE). Lines there would be other lines, and two would hold.
 */
function engineOn(wire: MysqlWire, options: MysqlEngineOptions, home?: string): MysqlEngine {
  const { database, name = DEFAULT_NAME, listen = true, clock = systemClock } = options
  const names = { ...checkNames({ database, name }), database: database ?? home }
  return new MysqlEngine({ wire, listens: listen, names, clock, engineId: systemChance.id() })
}
