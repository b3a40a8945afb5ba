/**
 * What people use on PostgreSQL today, each as its own documentation shows it: the hand-written protocol and the
 * libraries, on as many connections as we have.
 */
import { randomUUID } from 'node:crypto'
import { LockFactory } from '@verrou/core'
import { knexStore } from '@verrou/core/drivers/knex'
import advisory from 'advisory-lock'
import knex from 'knex'
import pg from 'pg'
import type { Peer } from './ours.ts'

const TTL_MS = 30_000

const TABLE = 'CREATE TABLE hand_written (key text PRIMARY KEY, owner text NOT NULL, expires_at timestamptz NOT NULL)'
/** Take it if it is free, or if its holder is late. */
const ACQUIRE = `INSERT INTO hand_written VALUES ($1, $2, clock_timestamp() + $3 * interval '1 ms')
  ON CONFLICT (key) DO UPDATE SET owner = excluded.owner, expires_at = excluded.expires_at WHERE hand_written.expires_at < clock_timestamp()
  RETURNING key`
const RELEASE = 'DELETE FROM hand_written WHERE key = $1 AND owner = $2'

const mustHold = (held: unknown): void => {
  if (!held) throw new Error('a lock that no other process asks for was not had')
}

/** All of them, the hand-written one first. `close` ends their connections. */
export async function peers(
  url: string,
  connections: number,
): Promise<{ peers: readonly Peer[]; close(): Promise<void> }> {
  const pool = new pg.Pool({ connectionString: url, max: connections })
  await pool.query(`DROP TABLE IF EXISTS hand_written; ${TABLE}`)
  const database = knex({ client: 'pg', connection: url, pool: { min: 0, max: connections } })
  const verrou = new LockFactory(knexStore({ connection: database, autoCreateTable: true }).factory())
  const createMutex = advisory.default(url)
  const list: Peer[] = [
    {
      name: 'hand-written: INSERT ON CONFLICT, DELETE',
      async pair(caller) {
        const [key, owner] = [`hand:${caller}`, randomUUID()]
        mustHold((await pool.query(ACQUIRE, [key, owner, TTL_MS])).rowCount === 1)
        mustHold((await pool.query(RELEASE, [key, owner])).rowCount === 1)
      },
    },
    {
      name: '@verrou/core on knex',
      async pair(caller) {
        const lock = verrou.createLock(`verrou:${caller}`, TTL_MS)
        mustHold(await lock.acquire())
        await lock.release()
      },
    },
    {
      name: 'advisory-lock (a connection for each lock)',
      async pair(caller) {
        const unlock = await createMutex(`advisory:${caller}`).lock()
        await unlock()
      },
    },
  ]
  const close = async (): Promise<void> => {
    await Promise.all([pool.end(), database.destroy()])
  }
  return { peers: list, close }
}
