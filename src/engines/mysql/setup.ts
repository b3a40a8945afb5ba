/** The options that do not depend on how the client was had, checked, and the engine they make. */
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { type MysqlEngine, MysqlLines } from './engine.ts'
import { checkNames, DEFAULT_NAME } from './names.ts'
import type { Wire } from './wires/wire.ts'

export interface CommonOptions {
  /** The database of our tables and procedures; that of the connection unless given. It has to be there; they are made on first use. */
  readonly database?: string
  /** What their names begin with; `holdfast` unless given. Processes that shall exclude each other use the same. */
  readonly name?: string
  /** `false`: have no connection that listens. Waiters poll. */
  readonly listen?: boolean
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

export function engineOn(wire: Wire, options: CommonOptions): MysqlEngine {
  const { database, name = DEFAULT_NAME, listen = true, clock = systemClock } = options
  const names = checkNames({ database, name })
  return new MysqlLines({ wire, listens: listen, names, clock, client: systemChance.id() })
}
