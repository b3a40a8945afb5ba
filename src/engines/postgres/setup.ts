/** The options that do not depend on how the client was had, checked, and the engine they make. */

import { clientAt } from '../../clients/postgres/connect.ts'
import { PgListenConnection } from '../../clients/postgres/pg-listen.ts'
import type { PostgresWire } from '../../clients/postgres/wire.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { PostgresEngine } from './engine.ts'
import { checkNames, DEFAULT_NAMES } from './names.ts'

export interface CommonOptions {
  /** The schema of our tables and functions; `public` unless given. Made, like them, on first use. */
  readonly schema?: string
  /** What their names begin with; `holdfast` unless given. Processes that shall exclude each other use the same. */
  readonly name?: string
  /**
   * The URL of the server itself, to listen on, where `client` (or the URL) leads to a pooler that gives a connection
   * for one transaction only, such as PgBouncer: LISTEN does not work there. Without it waiters behind such a pooler
   * poll. Needs pg.
   */
  readonly listenUrl?: string
  /** `false`: have no connection that listens. Waiters poll. */
  readonly listen?: boolean
  /** For tests: where time comes from. */
  readonly clock?: Clock
}

export function engineOn(makeWire: (limits: CallLimits) => PostgresWire, options: CommonOptions): PostgresEngine {
  const {
    schema = DEFAULT_NAMES.schema,
    name = DEFAULT_NAMES.name,
    listenUrl,
    listen = true,
    clock = systemClock,
  } = options
  const names = checkNames({ schema, name })
  if (listenUrl !== undefined && !/^postgres(?:ql)?:\/\//.test(listenUrl))
    throw new TypeError('listenUrl must be a postgres:// URL')
  const wire = makeWire(new CallLimits(clock))
  const listens: PostgresWire['listen'] =
    listenUrl === undefined
      ? wire.listen
      : (channel, listener) => PgListenConnection.open(() => clientAt(listenUrl), clock, channel, listener)
  return new PostgresEngine({ wire, listen: listen ? listens : undefined, names, clock, client: systemChance.id() })
}
