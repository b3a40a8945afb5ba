/** The guard of MySQL, on a real MariaDB, with mysql2. */
import { type Connection, createPool, type Pool, type RowDataPacket } from 'mysql2/promise'
import { beforeAll, expect, test } from 'vitest'
import { EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { guard, type MysqlGuard } from '../../src/guards/mysql.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { startsMysql } from '../servers/mysql.ts'
import { describeServer } from '../servers/suite.ts'
import { expectForgetting, expectRule, leaseLike } from './guards.rule.ts'

await describeServer('the guard of MariaDB', findMariadb, (source) => {
  let guarded: MysqlGuard
  let server: MariadbServer
  let mine: Connection
  let rival: Connection
  let pool: Pool

  beforeAll(async () => {
    server = await MariadbServer.start(source)
    ;[mine, rival] = [await server.connect(), await server.connect()]
    pool = createPool({ uri: server.url, connectionLimit: 2 })
    guarded = guard({ table: [server.database, 'holdfast_marks'] })
    await guarded.setup(pool)
    await guarded.setup(pool)
    await pool.query('create table account (id int primary key, balance int not null) engine = innodb')
    await pool.query('insert into account values (7, 100)')
    return async () => {
      await pool.end()
      for (const connection of [mine, rival]) connection.destroy()
      await server[Symbol.asyncDispose]()
    }
  })

  async function inside<Result>(work: () => Promise<Result>): Promise<Result> {
    await mine.beginTransaction()
    try {
      const result = await work()
      await mine.commit()
      return result
    } catch (error) {
      await mine.rollback()
      throw error
    }
  }

  // How an UPDATE sees its own assignments is a setting of MariaDB, which MySQL does not have.
  test.each(startsMysql(source) ? [''] : ['', 'SIMULTANEOUS_ASSIGNMENT'])(
    'decides as the pure rule does, with the mode %s',
    async (mode) => {
      await mine.query(`SET SESSION sql_mode = '${mode}'`)
      await expectRule(
        {
          check: (access, lease) =>
            inside(() => (access === 'read' ? guarded.read(mine, lease) : guarded.write(mine, lease))),
          list: (prefix) => guarded.list(pool, prefix),
        },
        25,
      )
    },
  )

  test('marks are forgotten after the time that the user chose since their last use, and never before', async () => {
    await expectForgetting({
      check: async (forget, access, lease) => {
        const other = guard({ table: [server.database, 'holdfast_marks'], ...(forget === undefined ? {} : { forget }) })
        await inside(() => (access === 'read' ? other.read(mine, lease) : other.write(mine, lease)))
      },
      list: (prefix) => guarded.list(pool, prefix),
      pass: async (ms) =>
        void (await pool.query('update holdfast_marks set kept_until = kept_until - ? where kept_until < ~0 >> 1', [
          ms,
        ])),
      forget: () => guarded.forget(pool),
    })
  })

  test('a mark that a transaction uses is not forgotten, and what is used is put off', async () => {
    const brief = guard({ table: [server.database, 'holdfast_marks'], forget: 1 })
    await inside(() => brief.write(mine, leaseLike(9n, 'busy')))
    await pool.query("update holdfast_marks set kept_until = 1 where resource = 'busy'")
    await mine.beginTransaction()
    await guarded.write(mine, leaseLike(9n, 'busy'))
    const forgetting = guarded.forget(rival)
    await mine.commit()
    expect(await forgetting).toBe(0)
    await expect(inside(() => guarded.write(mine, leaseLike(8n, 'busy')))).rejects.toThrow(StaleTokenError)
  })

  test('what is refused changes no mark, even if it is committed', async () => {
    await inside(() => guarded.write(mine, leaseLike(9n, 'kept')))
    await inside(async () => await expect(guarded.write(mine, leaseLike(8n, 'kept'))).rejects.toThrow(StaleTokenError))
    await inside(async () => await expect(guarded.read(mine, leaseLike(8n, 'kept'))).rejects.toThrow(StaleTokenError))
    expect(await guarded.list(pool, 'kept')).toEqual([{ resource: 'kept', seen: 9n, written: 9n }])
  })

  test('a connection that is in another database finds the same marks', async () => {
    await inside(() => guarded.write(mine, leaseLike(9n, 'elsewhere')))
    await mine.query('USE information_schema')
    await expect(inside(() => guarded.write(mine, leaseLike(8n, 'elsewhere')))).rejects.toThrow(StaleTokenError)
    await mine.query(`USE \`${server.database}\``)
  })

  test('a table without its database is refused: it would be another one on another connection', () => {
    for (const make of [
      () => guard({ table: 'holdfast_marks' }),
      () => guard({} as never),
      () => guard(undefined as never),
    ])
      expect(make).toThrow(/must name its database/)
  })

  test('outside of a transaction it refuses', async () => {
    await expect(guarded.write(mine, leaseLike(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
    await expect(guarded.read(pool, leaseLike(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
  })

  test('a writer that is replaced while waiting for the row is refused', async () => {
    await inside(() => guarded.read(mine, leaseLike(4n, 'waited')))
    await rival.beginTransaction()
    await guarded.read(rival, leaseLike(6n, 'waited'))
    await mine.beginTransaction()
    const late = expect(guarded.write(mine, leaseLike(5n, 'waited'))).rejects.toThrow(StaleTokenError)
    await rival.commit()
    await late
    await mine.rollback()
  })

  test('a read after the guard sees what was committed before it, at REPEATABLE READ too', async () => {
    await inside(() => guarded.read(mine, leaseLike(1n, 'read')))
    await mine.beginTransaction()
    await rival.beginTransaction()
    await guarded.read(rival, leaseLike(2n, 'read'))
    const reading = guarded.read(mine, leaseLike(3n, 'read'))
    await rival.query('update account set balance = 150')
    await rival.commit()
    await reading
    const [rows] = await mine.query<RowDataPacket[]>('select balance from account')
    expect(rows[0]?.balance).toBe(150)
    await mine.rollback()
  })

  test('names are compared byte by byte', async () => {
    await inside(() => guarded.write(mine, leaseLike(5n, 'x:a')))
    for (const name of ['x:A', 'x:a ', 'x:á']) await inside(() => guarded.write(mine, leaseLike(1n, name)))
    expect((await guarded.list(pool, 'x:')).map(({ resource }) => resource)).toEqual(['x:A', 'x:a', 'x:a ', 'x:á'])
  })

  test('marks of a newer version are refused and left alone; marks are reset only with their present value', async () => {
    await pool.query(
      "insert into holdfast_marks (resource, format, seen, written, kept_until) values ('future', 2, 1, 1, 1)",
    )
    await expect(inside(() => guarded.write(mine, leaseLike(5n, 'future')))).rejects.toThrow(EngineError)
    await expect(inside(() => guarded.read(mine, leaseLike(5n, 'future')))).rejects.toThrow(EngineError)
    expect(await guarded.forget(pool)).toBe(0)
    expect(await guarded.list(pool, 'future')).toEqual([{ resource: 'future', seen: 1n, written: 1n }])
    expect([await guarded.reset(pool, 'future', 4n), await guarded.reset(pool, 'future', 1n)]).toEqual([false, true])
  })
})
