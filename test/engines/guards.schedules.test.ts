/**
 * Random schedules of holders who overlap, at the guards of all backends, at every isolation of transactions. What a
 * schedule is, guards.schedules.ts says.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { Connection, RowDataPacket } from 'mysql2/promise'
import { beforeAll, describe, test } from 'vitest'
import { loadDriver } from '../../src/clients/sqlite/driver.ts'
import { codeOf, isBusy } from '../../src/clients/sqlite/errors.ts'
import { guard as filesGuard } from '../../src/guards/files.ts'
import { guard as mysqlGuard } from '../../src/guards/mysql.ts'
import { guard as postgresGuard } from '../../src/guards/postgres.ts'
import { guard as redisGuard } from '../../src/guards/redis.ts'
import { guard as sqliteGuard } from '../../src/guards/sqlite.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { findPostgres, type PostgresConnection, PostgresServer } from '../servers/postgres.ts'
import { findRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { expectNothingLost, expectSomeLosing, type Session, type Stage } from './guards.schedules.ts'

const HOLDERS = 3
const LEVELS = ['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'] as const
const RUNS = 60 * Number(process.env.HOLDFAST_ROUNDS ?? 1)
/** What there is not where check and write are one step always. */
const TWO_STEPS = ['guard the read, then the write', 'write alone', 'write later', 'read before the guard'] as const
const nothing = async (): Promise<void> => undefined

await describeServer('no schedule loses an update behind the guard of PostgreSQL', findPostgres, (source) => {
  const guarded = postgresGuard()
  let connections: readonly PostgresConnection[]

  beforeAll(async () => {
    const server = await PostgresServer.start(source)
    const url = await server.database()
    connections = await Promise.all(Array.from({ length: HOLDERS + 1 }, () => server.connect(url)))
    await guarded.setup((connections[0] as PostgresConnection).client)
    await connections[0]?.query('CREATE TABLE account (name text PRIMARY KEY, value int NOT NULL)')
    // A second, for each deadlock, is long.
    for (const connection of connections) await connection.query("SET deadlock_timeout = '10ms'")
    return async () => {
      for (const connection of connections) await connection[Symbol.asyncDispose]()
      await server[Symbol.asyncDispose]()
    }
  })

  function sessionOn({ client }: PostgresConnection, level: string): Session {
    const ask = async (text: string): Promise<void> => void (await client.query(text))
    return {
      begin: () => ask(`BEGIN ISOLATION LEVEL ${level}`),
      guardRead: (lease) => guarded.read(client, lease),
      guardWrite: (lease) => guarded.write(client, lease),
      read: async (account) =>
        (await client.query<{ value: number }>('SELECT value FROM account WHERE name = $1', [account])).rows[0]
          ?.value ?? Number.NaN,
      set: async (account, value, lease) => {
        const statement = { text: 'UPDATE account SET value = $1 WHERE name = $2', values: [value, account] }
        if (lease === undefined) await client.query(statement)
        else await guarded.writeStatement(client, lease, statement)
      },
      // With a read that goes by the begin of the statement, whatever the row has become when it is written.
      add: async (account, lease) => {
        const text = 'UPDATE account SET value = (SELECT value + 1 FROM account WHERE name = $1) WHERE name = $1'
        if (lease === undefined) await client.query(text, [account])
        else await guarded.writeStatement(client, lease, { text, values: [account] })
      },
      commit: () => ask('COMMIT'),
      rollback: () => ask('ROLLBACK'),
    }
  }

  function stageAt(level: string): Stage {
    const [looker, ...players] = connections as [PostgresConnection, ...PostgresConnection[]]
    const waiting =
      "SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return {
      sessions: players.map((connection) => sessionOn(connection, level)),
      prepare: async (account) => void (await looker.query('INSERT INTO account VALUES ($1, 0)', [account])),
      value: async (account) => Number(await looker.value('SELECT value FROM account WHERE name = $1', [account])),
      waiting: async () => Number(await looker.value(waiting)),
      // serialization_failure, deadlock_detected
      isConflict: (error) => ['40001', '40P01'].includes((error as { code: string }).code),
    }
  }

  // At READ COMMITTED every statement sees what is newest, so that looking early does no harm; above it, the server
  // notices.
  test.each(LEVELS)('at %s', async (level) => await expectNothingLost(stageAt(level), RUNS))
})

await describeServer('no schedule loses an update behind the guard of MariaDB', findOwnMariadb, (source) => {
  const guarded = mysqlGuard({ table: 'holdfast.holdfast_marks' })
  let connections: readonly Connection[]

  beforeAll(async () => {
    const server = await MariadbServer.start(source)
    connections = await Promise.all(Array.from({ length: HOLDERS + 1 }, () => server.connect()))
    await guarded.setup(connections[0] as Connection)
    await connections[0]?.query(
      'CREATE TABLE account (name varchar(40) PRIMARY KEY, value int NOT NULL) ENGINE = InnoDB',
    )
    return async () => {
      for (const connection of connections) connection.destroy()
      await server[Symbol.asyncDispose]()
    }
  })

  function sessionOn(client: Connection): Session {
    return {
      begin: () => client.beginTransaction(),
      guardRead: (lease) => guarded.read(client, lease),
      guardWrite: (lease) => guarded.write(client, lease),
      read: async (account) =>
        (await client.execute<RowDataPacket[]>('SELECT value FROM account WHERE name = ?', [account]))[0][0]
          ?.value as number,
      set: async (account, value, lease) => {
        if (lease !== undefined) await client.beginTransaction()
        if (lease !== undefined) await guarded.write(client, lease)
        await client.execute('UPDATE account SET value = ? WHERE name = ?', [value, account])
        if (lease !== undefined) await client.commit()
      },
      commit: () => client.commit(),
      rollback: () => client.rollback(),
    }
  }

  async function stageAt(settings: string): Promise<Stage> {
    const [looker, ...players] = connections as [Connection, ...Connection[]]
    for (const player of players) await player.query(settings)
    const asked = async (text: string): Promise<RowDataPacket | undefined> =>
      (await looker.query<RowDataPacket[]>(text))[0][0]
    return {
      sessions: players.map(sessionOn),
      prepare: async (account) => void (await looker.execute('INSERT INTO account VALUES (?, 0)', [account])),
      value: async (account) => Number((await asked(`SELECT value FROM account WHERE name = '${account}'`))?.value),
      waiting: async () => Number((await asked("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'"))?.Value),
      // ER_LOCK_DEADLOCK, ER_CHECKREAD
      isConflict: (error) => [1213, 1020].includes((error as { errno: number }).errno),
    }
  }

  test.each(LEVELS)('at %s', async (level) => {
    const except = level === 'REPEATABLE READ' ? (['read before the guard'] as const) : []
    await expectNothingLost(await stageAt(`SET SESSION TRANSACTION ISOLATION LEVEL ${level}`), RUNS, except)
  })

  test('at REPEATABLE READ, a transaction that reads before the guard goes on seeing that: ask the guard first', async () => {
    const stage = await stageAt('SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ')
    await expectSomeLosing(stage, 'read before the guard', RUNS)
  })
})

await describeServer('no schedule loses an update behind the guard of Redis', findRedis, (source) => {
  test('with a script for each step', async () => {
    await using server = await RedisServer.start(source)
    const client = new Redis(server.url)
    const guarded = redisGuard({ client })
    const session = (): Session => ({
      begin: nothing,
      guardRead: async (lease) => void (await guarded.read(lease)),
      guardWrite: nothing,
      read: async (account) => Number(await client.get(account)),
      set: async (account, value, lease) =>
        void (lease ? await guarded.write(lease, [['SET', account, value]]) : await client.set(account, value)),
      add: async (account, lease) =>
        void (lease ? await guarded.write(lease, [['INCR', account]]) : await client.incr(account)),
      commit: nothing,
      rollback: nothing,
    })
    const stage: Stage = {
      sessions: Array.from({ length: HOLDERS }, session),
      prepare: async (account) => void (await client.set(account, 0)),
      value: async (account) => Number(await client.get(account)),
      waiting: async () => 0,
      isConflict: () => false,
    }
    await expectNothingLost(stage, RUNS, TWO_STEPS)
    client.disconnect()
  })
})

describe('no schedule loses an update behind the guard', () => {
  test.each(['begin', 'begin immediate'])('of SQLite, with %s', async (begin) => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-schedules-'))
    const driver = await loadDriver()
    const databases = Array.from({ length: HOLDERS + 1 }, () => driver.open(join(folder, 'bank.db')))
    const [looker, ...players] = databases as [(typeof databases)[0], ...typeof databases]
    for (const database of databases) database.exec('pragma journal_mode = wal; pragma busy_timeout = 0')
    looker.exec('create table account (name text primary key, value integer not null)')
    const guarded = sqliteGuard()
    guarded.setup(looker)
    const valueAt = (database: typeof looker, account: string): number =>
      (database.prepare('select value from account where name = ?').all(account) as { value: number }[])[0]?.value ??
      Number.NaN
    const sessionOn = (database: typeof looker): Session => ({
      begin: async () => void database.exec(begin),
      guardRead: async (lease) => guarded.read(database, lease),
      guardWrite: async (lease) => guarded.write(database, lease),
      read: async (account) => valueAt(database, account),
      set: async (account, value, lease) => {
        if (lease !== undefined) database.exec(begin)
        if (lease !== undefined) guarded.write(database, lease)
        database.prepare('update account set value = ? where name = ?').run(value, account)
        if (lease !== undefined) database.exec('commit')
      },
      commit: async () => void database.exec('commit'),
      rollback: async () => {
        try {
          database.exec('rollback')
        } catch (error) {
          // There was none to roll back.
          if (codeOf(error) !== undefined && codeOf(error) !== 1) throw error
        }
      },
    })
    const stage: Stage = {
      sessions: players.map(sessionOn),
      prepare: async (account) => void looker.prepare('insert into account values (?, 0)').run(account),
      value: async (account) => valueAt(looker, account),
      waiting: async () => 0,
      isConflict: isBusy,
    }
    await expectNothingLost(stage, 5 * RUNS)
    for (const database of databases) database.close()
    rmSync(folder, { recursive: true })
  })

  test('of files', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'holdfast-schedules-'))
    const guards = Array.from({ length: HOLDERS }, () => filesGuard({ folder }))
    const valueIn = async (account: string): Promise<number> => Number(await readFile(join(folder, account), 'utf8'))
    const set = async (account: string, value: number): Promise<void> =>
      await writeFile(join(folder, account), `${value}`)
    const stage: Stage = {
      sessions: guards.map((guarded) => ({
        begin: nothing,
        guardRead: async (lease) => void (await guarded.read(lease, lease.key)),
        guardWrite: nothing,
        read: valueIn,
        set: (account, value, lease) =>
          lease === undefined ? set(account, value) : guarded.write(lease, account, `${value}`),
        commit: nothing,
        rollback: nothing,
      })),
      prepare: (account) => set(account, 0),
      value: valueIn,
      waiting: async () => 0,
      isConflict: () => false,
    }
    await expectNothingLost(stage, RUNS, TWO_STEPS)
    for (const guarded of guards) await guarded[Symbol.asyncDispose]()
    rmSync(folder, { recursive: true })
  })
})
