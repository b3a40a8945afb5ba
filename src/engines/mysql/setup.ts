/** The options that do not depend on how the client was had, checked, and the engine they make. */

import type { MysqlWire } from '../../clients/mysql/wire.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { type MysqlEngine, MysqlLines } from './engine.ts'
import { checkNames, DEFAULT_NAME } from './names.ts'

export interface CommonOptions {
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

/**
 * `home`: the database that the client was made for. It is named in what we ask, because a connection of somebody
 * else's pool may be in another one by now (USE): lines there would be other lines, and two would hold.
 */
export function engineOn(wire: MysqlWire, options: CommonOptions, home?: string): MysqlEngine {
  const { database, name = DEFAULT_NAME, listen = true, clock = systemClock } = options
  const names = { ...checkNames({ database, name }), database: database ?? home }
  return new MysqlLines({ wire, listens: listen, names, clock, client: systemChance.id() })
}
