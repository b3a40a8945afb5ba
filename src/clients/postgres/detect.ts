/**
 * Which client was brought? Told by its methods: names of classes do not survive bundlers and second copies of a
 * package.
 */

import type { PgClient } from './pg-client.ts'
import { type PgPool, PgPoolWire } from './pg-pool.ts'
import { PgClientWire } from './pg-single.ts'
import { type PostgresJs, PostgresJsWire } from './postgres-js.ts'
import type { Watch } from './watch.ts'
import type { Wire } from './wire.ts'

/** A `Pool` or a `Client` of pg, or a `Sql` of postgres.js. */
export type PostgresClient = PgPool | PgClient | PostgresJs

export function wireOf(client: PostgresClient, watch: Watch): Wire {
  if (has(client, 'unsafe', 'listen')) return new PostgresJsWire(client as PostgresJs, watch)
  if (has(client, 'connect', 'on') && 'totalCount' in client) return new PgPoolWire(client, watch)
  if (has(client, 'query', 'on', 'removeListener')) return new PgClientWire(client as PgClient, watch)
  throw new TypeError('client must be a Pool or a Client of pg, or a Sql of postgres.js')
}

function has(client: unknown, ...methods: readonly string[]): client is object {
  if ((typeof client !== 'object' && typeof client !== 'function') || client === null) return false
  return methods.every((method) => typeof (client as Record<string, unknown>)[method] === 'function')
}
