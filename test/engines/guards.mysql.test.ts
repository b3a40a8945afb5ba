/** The guard of MySQL, on a real MariaDB, with mysql2. */
import { type Connection, createPool, type Pool, type RowDataPacket } from 'mysql2/promise'
import { beforeAll, expect, test } from 'vitest'
import { EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { guard } from '../../src/guards/mysql.ts'
import { findMariadb, MariadbServer } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'
import { bearer, expectRule } from './guards.rule.ts'

await describeServer('the guard of MariaDB', findMariadb, (source) => {
  const fence = guard()
  let server: MariadbServer
  let mine: Connection
  let rival: Connection
  let pool: Pool

  beforeAll(async () => {
    server = await MariadbServer.start(source)
    ;[mine, rival] = [await server.connect(), await server.connect()]
    pool = createPool({ uri: server.url, connectionLimit: 2 })
    await fence.setup(pool)
    await fence.setup(pool)
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

  // How an UPDATE sees its own assignments is a setting of MariaDB.
  test.each(['', 'SIMULTANEOUS_ASSIGNMENT'])('decides as the pure rule does, with the mode %s', async (mode) => {
    await mine.query(`SET SESSION sql_mode = '${mode}'`)
    await expectRule(
      {
        come: (touch, coming) =>
          inside(() => (touch === 'read' ? fence.touch(mine, coming) : fence.write(mine, coming))),
        list: (prefix) => fence.list(pool, prefix),
      },
      25,
    )
  })

  test('what is refused changes no mark, even if it is committed', async () => {
    await inside(() => fence.write(mine, bearer(9n, 'kept')))
    await inside(async () => await expect(fence.write(mine, bearer(8n, 'kept'))).rejects.toThrow(StaleTokenError))
    await inside(async () => await expect(fence.touch(mine, bearer(8n, 'kept'))).rejects.toThrow(StaleTokenError))
    expect(await fence.list(pool, 'kept')).toEqual([{ resource: 'kept', seen: 9n, written: 9n }])
  })

  test('outside of a transaction it refuses', async () => {
    await expect(fence.write(mine, bearer(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
    await expect(fence.touch(pool, bearer(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
  })

  test('whoever is replaced while waiting for the row is refused', async () => {
    await inside(() => fence.touch(mine, bearer(4n, 'waited')))
    await rival.beginTransaction()
    await fence.touch(rival, bearer(6n, 'waited'))
    await mine.beginTransaction()
    const late = expect(fence.write(mine, bearer(5n, 'waited'))).rejects.toThrow(StaleTokenError)
    await rival.commit()
    await late
    await mine.rollback()
  })

  test('a read after the touch sees what was committed before it, at REPEATABLE READ too', async () => {
    await inside(() => fence.touch(mine, bearer(1n, 'read')))
    await mine.beginTransaction()
    await rival.beginTransaction()
    await fence.touch(rival, bearer(2n, 'read'))
    const touching = fence.touch(mine, bearer(3n, 'read'))
    await rival.query('update account set balance = 150')
    await rival.commit()
    await touching
    const [rows] = await mine.query<RowDataPacket[]>('select balance from account')
    expect(rows[0]?.balance).toBe(150)
    await mine.rollback()
  })

  test('names are compared byte by byte', async () => {
    await inside(() => fence.write(mine, bearer(5n, 'x:a')))
    for (const name of ['x:A', 'x:a ', 'x:á']) await inside(() => fence.write(mine, bearer(1n, name)))
    expect((await fence.list(pool, 'x:')).map(({ resource }) => resource)).toEqual(['x:A', 'x:a', 'x:a ', 'x:á'])
  })

  test('marks of a newer version are refused and left alone; marks are reset by whoever knows them', async () => {
    await pool.query("insert into holdfast_fence values ('future', 2, 1, 1)")
    await expect(inside(() => fence.write(mine, bearer(5n, 'future')))).rejects.toThrow(EngineError)
    await expect(inside(() => fence.touch(mine, bearer(5n, 'future')))).rejects.toThrow(EngineError)
    expect(await fence.list(pool, 'future')).toEqual([{ resource: 'future', seen: 1n, written: 1n }])
    expect([await fence.reset(pool, 'future', 4n), await fence.reset(pool, 'future', 1n)]).toEqual([false, true])
  })
})
