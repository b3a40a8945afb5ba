/** From a URL to the engine, on clients that we make. */

import { poolAt } from '../../clients/postgres/connect.ts'
import { type PgPool, PgPoolWire } from '../../clients/postgres/pg-pool.ts'
import { split } from '../../clients/postgres/url.ts'
import type { PostgresEngine } from './engine.ts'
import { type CommonOptions, engineOn } from './setup.ts'

/**
 * The engine behind a URL; see url.ts for what one looks like. It connects by itself, and closes its connections when
 * it is closed.
 */
export async function openPostgres(url: string, options: CommonOptions = {}): Promise<PostgresEngine> {
  const { url: theirs, options: said } = split(url)
  const pool = await poolAt(theirs)
  return engineOn((limits) => new PgPoolWire(pool as unknown as PgPool, limits, () => pool.end()), {
    ...said,
    ...options,
  })
}
