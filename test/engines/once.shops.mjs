/**
 * A table of orders on each kind of database, in the one where the records of `once` are: an order, and the record of
 * it, in one transaction. Used by the processes of once.processes.test.ts; it uses what `npm run build` made.
 */
import { loadDriver } from '../../dist/src/clients/sqlite/driver.js'

const TABLE =
  'create table if not exists orders (name varchar(200) not null, attempt varchar(64) not null, number int not null)'

/** Each opens the database. `order` calls `gate` between all that it does: the process may be killed there. */
export const shops = {
  async sqlite(url) {
    const database = (await loadDriver()).open(url.slice('sqlite:'.length))
    // A transaction waits for its end with blocked hands: those of other processes are short.
    database.exec('pragma journal_mode = wal; pragma busy_timeout = 20000')
    return {
      setup: async () => database.exec(TABLE),
      async order(attempt, gate) {
        database.exec('begin immediate')
        try {
          database.prepare('insert into orders values (?, ?, ?)').run(attempt.key, attempt.id, attempt.number)
          const value = await attempt.commit(database, { order: attempt.key, number: attempt.number })
          await gate('committing')
          database.exec('commit')
          return value
        } catch (error) {
          database.exec('rollback')
          throw error
        }
      },
      orders: async (name) => database.prepare('select attempt, number from orders where name = ?').all(name),
      close: async () => database.close(),
    }
  },

  async postgres(url) {
    const { default: pg } = await import('pg')
    const pool = new pg.Pool({ connectionString: url, max: 4 })
    pool.on('error', () => {})
    return {
      setup: () => pool.query(TABLE),
      async order(attempt, gate) {
        const client = await pool.connect()
        try {
          await client.query('begin')
          await client.query('insert into orders values ($1, $2, $3)', [attempt.key, attempt.id, attempt.number])
          await gate('inserted')
          const value = await attempt.commit(client, { order: attempt.key, number: attempt.number })
          await gate('committing')
          await client.query('commit')
          return value
        } catch (error) {
          await client.query('rollback')
          throw error
        } finally {
          client.release()
        }
      },
      orders: async (name) => (await pool.query('select attempt, number from orders where name = $1', [name])).rows,
      close: () => pool.end(),
    }
  },

  async mysql(url) {
    const { createPool } = await import('mysql2/promise')
    const pool = createPool({ uri: url.replace('mariadb:', 'mysql:'), connectionLimit: 4 })
    return {
      setup: () => pool.query(TABLE),
      async order(attempt, gate) {
        const connection = await pool.getConnection()
        try {
          await connection.beginTransaction()
          await connection.query('insert into orders values (?, ?, ?)', [attempt.key, attempt.id, attempt.number])
          await gate('inserted')
          const value = await attempt.commit(connection, { order: attempt.key, number: attempt.number })
          await gate('committing')
          await connection.commit()
          return value
        } catch (error) {
          await connection.rollback()
          throw error
        } finally {
          connection.release()
        }
      },
      orders: async (name) => (await pool.query('select attempt, number from orders where name = ?', [name]))[0],
      close: () => pool.end(),
    }
  },
}
