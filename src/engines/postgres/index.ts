/**
 * `holdfast/postgres`: locks on the PostgreSQL you already run, without a connection for each of them; and, for rows of
 * your own, locks inside your own transaction (../../transactions/).
 *
 * Read in this order:
 *
 *     sql/tables.sql                                 what is stored
 *     sql/enter.sql, renew.sql, leave.sql, line.sql  what is decided
 *     engine.ts                                      the verbs, each one call of such a function
 *     function-calls.ts, codec.ts                    how a call is written, sent and read
 *     ../shared/news-channel.ts                      how a waiter hears that it holds
 *     sql/records.sql, store.ts, record-codec.ts     records beside the lines
 *     ../../clients/postgres/                        your client
 *     errors.ts                                      what an error means for the core
 *     names.ts, migration.ts, diagnose.ts            names of tables, making them, and `holdfast doctor`
 */

import { clientAt, poolAt, splitUrl } from '../../clients/postgres/connect.ts'
import { type PostgresClient, wireOf } from '../../clients/postgres/detect.ts'
import { PgListenConnection } from '../../clients/postgres/pg-client.ts'
import { type PgPool, PgPoolWire } from '../../clients/postgres/pg-pool.ts'
import type { PostgresWire } from '../../clients/postgres/wire.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import { type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { PostgresEngine } from './engine.ts'
import { checkNames, DEFAULT_NAMES } from './names.ts'

export type { PostgresClient } from '../../clients/postgres/detect.ts'
export * from '../../transactions/postgres.ts'
export type { PostgresEngine } from './engine.ts'

/** What does not depend on how the client was had. */
export interface PostgresEngineOptions {
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

/** Options of `postgres()`. */
export interface PostgresOptions extends PostgresEngineOptions {
  /**
   * Your client: a `Pool` of pg, or a `Sql` of postgres.js. You close it. Also a `Client` of pg that is for nothing
   * else: in a transaction of yours, locks would be taken when you commit.
   */
  readonly client: PostgresClient
}

const ENGINE_OPTIONS: OptionNames<PostgresEngineOptions> = {
  schema: true,
  name: true,
  listenUrl: true,
  listen: true,
  clock: true,
}
const OPTIONS: OptionNames<PostgresOptions> = { client: true, ...ENGINE_OPTIONS }

/** An engine on a client of yours. For one by URL: `openPostgres(url)`, or `connect(url)`. */
export function postgres(options: PostgresOptions): PostgresEngine {
  checkOptions('postgres()', options, OPTIONS)
  return showEngine(engineOn((limits) => wireOf(options.client, limits), options))
}

/**
 * The engine behind a URL:
 *
 *     postgres://user:password@host:5432/database
 *
 * with what pg takes as a query (`sslmode`, `application_name`, ...), and of our own `schema`, `name` and `listenUrl`.
 * It connects by itself, and closes its connections when it is closed.
 */
export async function openPostgres(url: string, options: PostgresEngineOptions = {}): Promise<PostgresEngine> {
  checkOptions('openPostgres()', options, ENGINE_OPTIONS)
  const { url: pgUrl, options: urlOptions } = splitUrl(url)
  const pool = await poolAt(pgUrl)
  const makeWire = (limits: CallLimits): PostgresWire =>
    new PgPoolWire(pool as unknown as PgPool, limits, () => pool.end())
  return showEngine(engineOn(makeWire, { ...urlOptions, ...withoutUndefined(options) }), { url })
}

function engineOn(makeWire: (limits: CallLimits) => PostgresWire, options: PostgresEngineOptions): PostgresEngine {
  const { schema = DEFAULT_NAMES.schema, name = DEFAULT_NAMES.name, listenUrl, clock = systemClock } = options
  const names = checkNames({ schema, name })
  if (listenUrl !== undefined && !/^postgres(?:ql)?:\/\//.test(listenUrl))
    throw new TypeError('listenUrl must be a postgres:// URL')
  const wire = makeWire(new CallLimits(clock))
  const listen: PostgresWire['listen'] =
    listenUrl === undefined
      ? wire.listen
      : (channel, listener) => PgListenConnection.open(() => clientAt(listenUrl), clock, channel, listener)
  const engineId = systemChance.id()
  return new PostgresEngine({ wire, listen: options.listen === false ? undefined : listen, names, clock, engineId })
}
