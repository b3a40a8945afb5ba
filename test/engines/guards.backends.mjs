/**
 * A number in each kind of resource, to be read and written back: behind a guard, or bare. Used by the processes of
 * guards.processes.test.ts and by the test itself; it uses what `npm run build` made.
 */
import { readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { loadDriver } from '../../dist/src/clients/sqlite/driver.js'
import { guard as filesGuard } from '../../dist/src/guards/files.js'
import { guard as mongodbGuard } from '../../dist/src/guards/mongodb.js'
import { guard as mysqlGuard } from '../../dist/src/guards/mysql.js'
import { guard as postgresGuard } from '../../dist/src/guards/postgres.js'
import { guard as redisGuard } from '../../dist/src/guards/redis.js'
import { guard as sqliteGuard } from '../../dist/src/guards/sqlite.js'

/** Each opens the resource; `lease` is undefined where it is to be bare. `key` names the number. */
export const backends = {
  async sqlite(file) {
    const database = (await loadDriver()).open(file)
    database.exec('pragma journal_mode = wal; pragma busy_timeout = 10000')
    database.exec('create table if not exists number (key text primary key, value integer not null)')
    const guarded = sqliteGuard()
    guarded.setup(database)
    const inside = async (work) => {
      database.exec('begin immediate')
      try {
        const result = work()
        database.exec('commit')
        return result
      } catch (error) {
        database.exec('rollback')
        throw error
      }
    }
    return {
      read: (key, lease) =>
        inside(() => {
          if (lease) guarded.read(database, lease, key)
          return database.prepare('select value from number where key = ?').all(key)[0]?.value ?? 0
        }),
      write: (key, value, lease) =>
        inside(() => {
          if (lease) guarded.write(database, lease, key)
          database.prepare('insert or replace into number values (?, ?)').run(key, value)
        }),
      close: async () => database.close(),
    }
  },

  async postgres(url) {
    const { default: pg } = await import('pg')
    const client = new pg.Client({ connectionString: url })
    await client.connect()
    const guarded = postgresGuard()
    const inside = async (work) => {
      await client.query('BEGIN')
      try {
        const result = await work()
        await client.query('COMMIT')
        return result
      } catch (error) {
        await client.query('ROLLBACK')
        throw error
      }
    }
    return {
      setup: async () => {
        await guarded.setup(client)
        await client.query('CREATE TABLE number (key text PRIMARY KEY, value int NOT NULL)')
      },
      read: (key, lease) =>
        inside(async () => {
          if (lease) await guarded.read(client, lease, key)
          return (await client.query('SELECT value FROM number WHERE key = $1', [key])).rows[0]?.value ?? 0
        }),
      write: async (key, value, lease) => {
        const text = 'INSERT INTO number VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value'
        if (lease === undefined) return await client.query(text, [key, value])
        // Both ways, by turns.
        if (value % 2 === 0) return await guarded.writeStatement(client, lease, { text, values: [key, value] }, key)
        return await inside(async () => {
          await guarded.write(client, lease, key)
          await client.query(text, [key, value])
        })
      },
      close: () => client.end(),
    }
  },

  async mysql(url) {
    const { createConnection } = await import('mysql2/promise')
    const client = await createConnection(url)
    const guarded = mysqlGuard({ table: [new URL(url).pathname.slice(1), 'holdfast_marks'] })
    const inside = async (work) => {
      await client.beginTransaction()
      try {
        const result = await work()
        await client.commit()
        return result
      } catch (error) {
        await client.rollback()
        throw error
      }
    }
    return {
      setup: async () => {
        await guarded.setup(client)
        await client.query('CREATE TABLE number (name varchar(20) PRIMARY KEY, value int NOT NULL) ENGINE = InnoDB')
        await client.query("INSERT INTO number VALUES ('bare', 0), ('guarded', 0)")
        // Rows that are there are locked without locking the gaps beside them.
        await inside(() => guarded.read(client, { key: 'guarded', token: 0n, shared: false }))
      },
      read: (key, lease) =>
        inside(async () => {
          if (lease) await guarded.read(client, lease, key)
          return (await client.query('SELECT value FROM number WHERE name = ?', [key]))[0][0].value
        }),
      write: (key, value, lease) =>
        inside(async () => {
          if (lease) await guarded.write(client, lease, key)
          await client.query('UPDATE number SET value = ? WHERE name = ?', [value, key])
        }),
      close: () => client.end(),
    }
  },

  async mongodb(url) {
    const { MongoClient } = await import('mongodb')
    const client = new MongoClient(url)
    const numbers = client.db().collection('number')
    const guarded = mongodbGuard({ client })
    return {
      setup: async () => {
        await numbers.insertMany(['bare', 'guarded'].map((_id) => ({ _id, value: 0 })))
      },
      read: async (key, lease) =>
        (lease ? await guarded.findOne(numbers, lease, { _id: key }) : await numbers.findOne({ _id: key })).value,
      write: (key, value, lease) =>
        lease
          ? guarded.updateOne(numbers, lease, { _id: key }, { $set: { value } })
          : numbers.updateOne({ _id: key }, { $set: { value } }),
      close: () => client.close(),
    }
  },

  async redis(url) {
    const { Redis } = await import('ioredis')
    const client = new Redis(url)
    const guarded = redisGuard({ client })
    return {
      read: async (key, lease) =>
        Number(lease ? (await guarded.read(lease, [['GET', key]], key))[0] : await client.get(key)),
      write: (key, value, lease) => (lease ? guarded.write(lease, [['SET', key, value]], key) : client.set(key, value)),
      close: async () => client.disconnect(),
    }
  },

  async files(folder) {
    const guarded = filesGuard({ folder })
    return {
      read: async (key, lease) =>
        Number(
          (lease ? await guarded.read(lease, key) : await readFile(join(folder, key)).catch(() => undefined)) ?? 0,
        ),
      write: async (key, value, lease) => {
        if (lease) return await guarded.write(lease, key, String(value))
        await writeFile(join(folder, `${key}.${process.pid}`), String(value))
        await rename(join(folder, `${key}.${process.pid}`), join(folder, key))
      },
      close: () => guarded[Symbol.asyncDispose](),
    }
  },
}
