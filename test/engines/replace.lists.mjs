/**
 * The members of a group, on each kind of database, where the record of the list is: a batch of rows and its record in
 * one transaction, and a reader who reads the generation and the rows in one statement. Used by the tests of `replace`
 * and by their processes; SQLite by what `npm run build` made.
 */
import { loadDriver } from '../../dist/src/clients/sqlite/driver.js'

const TABLES = [
  'create table if not exists email_groups (id int primary key, generation bigint)',
  `create table if not exists members (
    group_id int not null, generation bigint not null, batch int not null, email varchar(100) not null)`,
]

const SEEN = `select m.generation, m.batch, m.email from email_groups g
  join members m on m.group_id = g.id and m.generation = g.generation where g.id = 1 order by m.batch, m.email`

const INSERT = 'insert into members (group_id, generation, batch, email) values '
const ALL = 'select distinct generation from members where group_id = 1'

/**
 * Each opens the database. `begin` runs its work in a transaction, and calls `before` right before the commit: the
 * process may be killed there.
 */
export const lists = {
  async sqlite(url) {
    const database = (await loadDriver()).open(url.slice('sqlite:'.length))
    // A transaction waits for its begin with blocked hands: those of other processes are short.
    database.exec('pragma journal_mode = wal; pragma busy_timeout = 20000')
    return listOf({
      async begin(work, before) {
        database.exec('begin immediate')
        try {
          const value = await work(database)
          await before()
          database.exec('commit')
          return value
        } catch (error) {
          database.exec('rollback')
          throw error
        }
      },
      change: async (_, text, values) => database.prepare(text).run(...values),
      read: async (text) => database.prepare(text).all(),
      placeholder: () => '?',
      close: async () => database.close(),
    })
  },

  async pg(url) {
    const { default: pg } = await import('pg')
    const pool = new pg.Pool({ connectionString: url, max: 2 })
    pool.on('error', () => {})
    return listOf({
      async begin(work, before) {
        const client = await pool.connect()
        try {
          await client.query('begin')
          const value = await work(client)
          await before()
          await client.query('commit')
          return value
        } catch (error) {
          await client.query('rollback')
          throw error
        } finally {
          client.release()
        }
      },
      change: (client, text, values) => (client ?? pool).query(text, values),
      read: async (text) => (await pool.query(text)).rows,
      placeholder: (position) => `$${position}`,
      close: () => pool.end(),
    })
  },

  async postgresjs(url) {
    const { default: postgres } = await import('postgres')
    const sql = postgres(url, { max: 2, onnotice: () => {} })
    return listOf({
      begin: (work, before) =>
        sql.begin(async (tx) => {
          const value = await work(tx)
          await before()
          return value
        }),
      change: (tx, text, values) => (tx ?? sql).unsafe(text, values),
      read: (text) => sql.unsafe(text),
      placeholder: (position) => `$${position}`,
      close: () => sql.end(),
    })
  },

  async mysql(url) {
    const { createPool } = await import('mysql2/promise')
    const pool = createPool({ uri: url.replace('mariadb:', 'mysql:'), connectionLimit: 2 })
    return listOf({
      async begin(work, before) {
        const connection = await pool.getConnection()
        try {
          await connection.beginTransaction()
          const value = await work(connection)
          await before()
          await connection.commit()
          return value
        } catch (error) {
          await connection.rollback()
          throw error
        } finally {
          connection.release()
        }
      },
      change: (connection, text, values) => (connection ?? pool).query(text, values),
      read: async (text) => (await pool.query(text))[0],
      placeholder: () => '?',
      close: () => pool.end(),
    })
  },
}

function listOf({ begin, change, read, placeholder, close }) {
  const some = (count, from = 0) =>
    Array.from({ length: count }, (_, index) => placeholder(from + index + 1)).join(', ')
  return {
    begin: (work, before = () => {}) => begin(work, before),
    close,
    async setup() {
      for (const text of TABLES) await change(undefined, text, [])
      await change(undefined, 'insert into email_groups (id) values (1)', [])
    },
    /** `change` is given undefined outside of a transaction. */
    async insert(tx, generation, batch, emails) {
      const rows = emails.map((_, index) => `(1, ${some(3, 3 * index)})`).join(', ')
      await change(
        tx,
        INSERT + rows,
        emails.flatMap((email) => [generation, batch, email]),
      )
    },
    async flip(tx, generation) {
      await change(tx, `update email_groups set generation = ${placeholder(1)} where id = 1`, [generation])
    },
    async remove(tx, generations) {
      const text = `delete from members where group_id = 1 and generation in (${some(generations.length)})`
      await change(tx, text, generations)
    },
    /** What readers see, by one statement. */
    async seen() {
      return (await read(SEEN)).map(({ generation, batch, email }) => ({
        generation: Number(generation),
        batch,
        email,
      }))
    },
    /** All generations of which there is a row. */
    async generations() {
      return (await read(ALL)).map(({ generation }) => Number(generation)).sort((a, b) => a - b)
    },
  }
}
