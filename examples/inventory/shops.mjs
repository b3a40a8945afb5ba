/**
 * The same shop on PostgreSQL and on MySQL or MariaDB: how to ask, how to have a transaction, and what to lock with.
 */
import mysql2 from 'mysql2/promise'
import pg from 'pg'
import * as mysql from '../../dist/src/engines/mysql/index.js'
import * as postgres from '../../dist/src/engines/postgres/index.js'
import { createLocks } from '../../dist/src/index.js'

/**
 * Connections of one process: as many as it has buyers. Leases have no connections of their own: they ask on the same
 * ones.
 */
const CONNECTIONS = 2

export function openShop(url) {
  return /^postgres/.test(url) ? openPostgres(url) : openMysql(url)
}

/** What both can do with a connection, given `ask`, which answers `{ rows, changed }`. */
function counter(ask) {
  return {
    query: async (text, values = []) => (await ask(text, values)).changed,
    left: async (ticket) => (await ask('SELECT remaining FROM tickets WHERE id = ?', [ticket])).rows[0].remaining,
    sell: async (ticket, buyer) => void (await ask('INSERT INTO sales VALUES (?, ?)', [ticket, buyer])),
    value: async (text) => Number(Object.values((await ask(text, [])).rows[0])[0]),
  }
}

function openPostgres(connectionString) {
  const pool = new pg.Pool({ connectionString, max: CONNECTIONS })
  const asking = (client) => async (text, values) => {
    let position = 0
    const { rows, rowCount } = await client.query(
      text.replaceAll('?', () => `$${++position}`),
      values,
    )
    return { rows, changed: rowCount }
  }
  return {
    ...counter(asking(pool)),
    locks: createLocks(postgres.postgres({ client: pool })),
    optimistic: (options) => postgres.optimistic({ client: pool, ...options }),
    async transaction(work) {
      const client = await pool.connect()
      try {
        await client.query('BEGIN')
        const result = await work({
          ...counter(asking(client)),
          rowLock: (options) => postgres.rowLock(client, options),
        })
        await client.query('COMMIT')
        return result
      } catch (error) {
        await client.query('ROLLBACK')
        throw error
      } finally {
        client.release()
      }
    },
    close: () => pool.end(),
  }
}

function openMysql(uri) {
  const pool = mysql2.createPool({ uri, connectionLimit: CONNECTIONS })
  const asking = (client) => async (text, values) => {
    const [result] = await client.execute(text, values)
    return { rows: result, changed: result.affectedRows }
  }
  return {
    ...counter(asking(pool)),
    locks: createLocks(mysql.mysql({ client: pool })),
    optimistic: (options) => mysql.optimistic({ client: pool, ...options }),
    async transaction(work) {
      const client = await pool.getConnection()
      try {
        await client.beginTransaction()
        const result = await work({ ...counter(asking(client)), rowLock: (options) => mysql.rowLock(client, options) })
        await client.commit()
        return result
      } catch (error) {
        await client.rollback()
        throw error
      } finally {
        client.release()
      }
    },
    close: () => pool.end(),
  }
}
