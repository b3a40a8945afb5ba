/**
 * Which driver is it? Told by its methods, for engines and guards. What a transaction of a user is, each driver has its
 * own way to say: transactions/postgres/client.ts tells those apart.
 */

import type { CallLimits } from '../shared/call-limits.ts'
import { hasMethods } from '../shared/drivers.ts'
import { type PgClient, PgClientWire } from './pg-client.ts'
import { type PgPool, PgPoolWire } from './pg-pool.ts'
import { type PostgresJs, PostgresJsWire } from './postgres-js.ts'
import type { PostgresWire } from './wire.ts'

/** A `Pool` or a `Client` of pg, or a `Sql` of postgres.js. */
export type PostgresClient = PgPool | PgClient | PostgresJs

/** Whether it is the `sql` of postgres.js, also one that it gives to a transaction. */
export function isPostgresJs<Client>(client: Client): client is Extract<Client, { unsafe: unknown }> {
  return hasMethods(client, 'unsafe')
}

export function wireOf(client: PostgresClient, limits: CallLimits): PostgresWire {
  if (isPostgresJs(client) && hasMethods(client, 'listen')) return new PostgresJsWire(client, limits)
  if (hasMethods(client, 'connect', 'on') && 'totalCount' in client) return new PgPoolWire(client, limits)
  if (hasMethods(client, 'query', 'on', 'removeListener')) return new PgClientWire(client as PgClient, limits)
  throw new TypeError('client must be a Pool or a Client of pg, or a Sql of postgres.js')
}
