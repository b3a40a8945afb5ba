/**
 * What people use on MySQL and MariaDB today, each as its own documentation shows it: the hand-written protocol and a
 * library, on as many connections as we have.
 */
import { randomUUID } from 'node:crypto'
import { LockFactory } from '@verrou/core'
import { knexStore } from '@verrou/core/drivers/knex'
import knex from 'knex'
import { createPool, type ResultSetHeader } from 'mysql2/promise'
import type { Peer } from './ours.ts'

const TTL_MS = 30_000

const TABLE =
  'CREATE TABLE hand_written (name VARCHAR(255) PRIMARY KEY, owner CHAR(36) NOT NULL, expires_at DATETIME(3) NOT NULL)'
const ACQUIRE = 'INSERT IGNORE INTO hand_written VALUES (?, ?, NOW(3) + INTERVAL ? MICROSECOND)'
const RELEASE = 'DELETE FROM hand_written WHERE name = ? AND owner = ?'

const mustHold = (held: unknown): void => {
  if (!held) throw new Error('a lock that no other caller asks for was not had')
}

/** All of them, the hand-written one first. `close` ends their connections. */
export async function peers(
  uri: string,
  connections: number,
): Promise<{ peers: readonly Peer[]; close(): Promise<void> }> {
  const pool = createPool({ uri, connectionLimit: connections })
  await pool.query('DROP TABLE IF EXISTS hand_written')
  await pool.query(TABLE)
  const database = knex({ client: 'mysql2', connection: uri, pool: { min: 0, max: connections } })
  const verrou = new LockFactory(knexStore({ connection: database, autoCreateTable: true }).factory())
  const changed = async (sql: string, values: readonly unknown[]): Promise<number> =>
    (await pool.query<ResultSetHeader>(sql, [...values]))[0].affectedRows
  const list: Peer[] = [
    {
      name: 'hand-written: INSERT IGNORE, DELETE',
      async pair(caller) {
        const [key, owner] = [`hand:${caller}`, randomUUID()]
        mustHold((await changed(ACQUIRE, [key, owner, TTL_MS * 1000])) === 1)
        mustHold((await changed(RELEASE, [key, owner])) === 1)
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
  ]
  const close = async (): Promise<void> => {
    await Promise.all([pool.end(), database.destroy()])
  }
  return { peers: list, close }
}
