/** From a URL to the engine, on clients that we make. */
import type { PostgresEngine } from './engine.ts'
import { poolAt } from './load.ts'
import { type CommonOptions, engineOn } from './setup.ts'
import { split } from './url.ts'
import { type PgPool, PgPoolWire } from './wires/pg-pool.ts'

/** The engine behind a URL; see url.ts for what one looks like. It connects by itself, and closes its connections when it is closed. */
export async function openPostgres(url: string, options: CommonOptions = {}): Promise<PostgresEngine> {
  const { url: theirs, options: said } = split(url)
  const pool = await poolAt(theirs)
  return engineOn((watch) => new PgPoolWire(pool as unknown as PgPool, watch, () => pool.end()), { ...said, ...options })
}
