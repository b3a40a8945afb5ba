/**
 * Locks inside of the caller's transaction on MariaDB, with mysql2, against other connections that hold what is asked
 * for.
 */
import { type Connection, createPool, type Pool, type RowDataPacket } from 'mysql2/promise'
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest'
import { ConflictError } from '../../src/core/errors.ts'
import { type MysqlTransactionClient, optimistic, rowLock } from '../../src/transactions/mysql.ts'
import { findOwnMariadb, MariadbServer } from '../servers/mariadb.ts'
import { startsMysql } from '../servers/mysql.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const LONG = '60s'

interface Ticket {
  readonly id: number
  readonly left: number
}

await describeServer('locks inside of a transaction of MariaDB', findOwnMariadb, (source) => {
  let server: MariadbServer
  let mine: Connection
  let rival: Connection
  let pool: Pool

  beforeAll(async () => {
    server = await MariadbServer.start(source)
    ;[mine, rival] = [await server.connect(), await server.connect()]
    pool = createPool({ uri: server.url, connectionLimit: 4 })
    await rival.query(
      'create table tickets (id int primary key, `left` int not null, version bigint not null default 1, note varchar(20)) engine = innodb',
    )
    await rival.query('create table `odd ``tickets.v1` (id int primary key, `left` int not null) engine = innodb')
    return async () => {
      await pool.end()
      for (const connection of [mine, rival]) connection.destroy()
      await server[Symbol.asyncDispose]()
    }
  })

  beforeEach(async () => {
    await rival.query('delete from tickets')
    await rival.query('insert into tickets (id, `left`) values (1, 10), (2, 10), (3, 10)')
  })

  afterEach(async () => {
    for (const connection of [mine, rival]) await connection.rollback()
  })

  async function value(connection: Connection, sql: string): Promise<unknown> {
    const [rows] = await connection.query<RowDataPacket[]>(sql)
    return Object.values(rows[0] ?? {})[0]
  }

  /** The rival has that row for itself. */
  async function taken(id: number): Promise<void> {
    await rival.beginTransaction()
    await rival.query(`select 1 from tickets where id = ${id} for update`)
  }

  /** Until some transaction waits for a row. */
  async function untilBlocked(): Promise<void> {
    const waiting = "select * from information_schema.innodb_trx where trx_state = 'LOCK WAIT'"
    await vi.waitFor(async () => expect(await server.asRoot(waiting)).toHaveLength(1), LIMIT)
  }

  const row = (id: number): { table: string; where: { id: number } } => ({ table: 'tickets', where: { id } })

  test('a locked row is read, kept from others until the transaction ends, and its neighbours are not', async () => {
    await mine.beginTransaction()
    const result = await rowLock<Ticket>(mine, { ...row(1), columns: ['id', 'left'] })
    expect(result).toEqual({ state: 'locked', rows: [{ id: 1, left: 10 }] })
    await expect(rival.query('select 1 from tickets where id = 1 for update nowait')).rejects.toMatchObject({
      // MySQL has a number of its own for NOWAIT.
      errno: startsMysql(source) ? 3572 : 1205,
    })
    await rival.query('select 1 from tickets where id = 2 for update nowait')
    await mine.commit()
    await rival.query('select 1 from tickets where id = 1 for update nowait')
  })

  test('a client whose errors have no SQLSTATE, as a wrapper may leave it out, is understood as well', async () => {
    const bare = async <Answer>(answer: Promise<Answer>): Promise<Answer> =>
      answer.catch((error: NodeJS.ErrnoException) => {
        throw Object.assign(new Error(error.message), { errno: error.errno })
      })
    const wrapped: MysqlTransactionClient = {
      query: (text) => bare(mine.query(text)),
      execute: (text, values) => bare(mine.execute(text, values)),
    }
    await taken(1)
    await mine.beginTransaction()
    expect(await rowLock(wrapped, { ...row(1), wait: 0 })).toEqual({ state: 'busy' })
  })

  test('a row that another transaction has is busy: at once, or when the wait is over; and the transaction goes on', async () => {
    await taken(1)
    await mine.beginTransaction()
    await mine.query('update tickets set note = "mine" where id = 3')
    for (const wait of [0, '50ms', 'skipLocked'] as const)
      expect(await rowLock(mine, { ...row(1), wait })).toEqual({ state: 'busy' })
    await mine.commit()
    expect(await value(mine, 'select note from tickets where id = 3')).toBe('mine')
  })

  test('a wait ends with the lock when the other lets go, and shows the row as it is then, not as the snapshot has it', async () => {
    await mine.beginTransaction()
    await mine.query('select * from tickets')
    await rival.beginTransaction()
    await rival.query('update tickets set `left` = 4 where id = 1')
    const asked = rowLock<Ticket>(mine, { ...row(1), wait: LONG })
    await untilBlocked()
    await rival.commit()
    // Newer versions of MariaDB refuse a row that was changed after the snapshot, unless they are told otherwise.
    const refuses = await value(mine, 'select @@innodb_snapshot_isolation').catch(() => 0)
    expect(await asked).toMatchObject(
      Number(refuses) === 1 ? { state: 'conflict', why: 'snapshot' } : { state: 'locked', rows: [{ id: 1, left: 4 }] },
    )
  })

  test('its time-out does not outlast it, whether it was granted, refused or not even asked', async () => {
    await taken(1)
    const waits = (): Promise<unknown> => value(mine, 'select @@innodb_lock_wait_timeout')
    await mine.query('set innodb_lock_wait_timeout = 17')
    await expect(rowLock(mine, { ...row(1), wait: '1s' })).rejects.toThrow('needs an open transaction')
    expect(await waits()).toBe(17)
    await mine.beginTransaction()
    expect(await rowLock(mine, { ...row(1), wait: '1s' })).toEqual({ state: 'busy' })
    expect(await waits()).toBe(17)
    expect(await rowLock(mine, { ...row(2), wait: '1s' })).toMatchObject({ state: 'locked' })
    expect(await waits()).toBe(17)
  })

  test('a row that is not there is missing, whatever the wait', async () => {
    await mine.beginTransaction()
    for (const wait of [0, 'skipLocked', '1s'] as const)
      expect(await rowLock(mine, { ...row(99), wait })).toEqual({ state: 'missing' })
    expect(await rowLock(mine, row(99))).toEqual({ state: 'missing' })
  })

  test('skipping takes the next row that is free', async () => {
    await taken(1)
    await mine.beginTransaction()
    const job = { table: 'tickets', where: { left: 10 }, order: ['id'], limit: 1, wait: 'skipLocked' } as const
    expect(await rowLock(mine, job)).toMatchObject({ state: 'locked', rows: [{ id: 2 }] })
  })

  test('share locks go together, and exclude an update', async () => {
    await rival.beginTransaction()
    await rival.query('select 1 from tickets where id = 1 lock in share mode')
    await mine.beginTransaction()
    for (const wait of [0, 'skipLocked', '1s'] as const) {
      expect(await rowLock(mine, { ...row(1), mode: 'share', wait })).toMatchObject({ state: 'locked' })
    }
    expect(await rowLock(mine, { ...row(1), wait: 0 })).toEqual({ state: 'busy' })
  })

  test('one of two that wait for each other is told of the deadlock', async () => {
    await taken(2)
    // Who has changed least gives way: ours.
    await rival.query('update tickets set `left` = 0 where id in (2, 3)')
    await mine.beginTransaction()
    await rowLock(mine, row(1))
    const asked = rowLock(mine, row(2))
    await untilBlocked()
    await rival.query('select 1 from tickets where id = 1 for update')
    expect(await asked).toEqual({ state: 'conflict', why: 'deadlock' })
  })

  test('calls made at once on one connection take turns, and each has its own answer', async () => {
    await taken(2)
    await mine.beginTransaction()
    const answers = await Promise.all(
      [1, 2, 3, 4].map((id) => rowLock(mine, { ...row(id), columns: ['id'], wait: '1s' })),
    )
    expect(answers).toEqual([
      { state: 'locked', rows: [{ id: 1 }] },
      { state: 'busy' },
      { state: 'locked', rows: [{ id: 3 }] },
      { state: 'missing' },
    ])
  })

  test('outside of a transaction a lock is refused; without autocommit everything is one', async () => {
    const wanting = { name: 'TypeError', message: expect.stringContaining('needs an open transaction') as string }
    for (const client of [mine, pool]) await expect(rowLock(client, row(1))).rejects.toMatchObject(wanting)
    await mine.query('set autocommit = 0')
    expect(await rowLock(mine, row(1))).toMatchObject({ state: 'locked' })
    await mine.query('set autocommit = 1')
  })

  test('where the server ends the whole transaction at a time-out, that is not called busy', async () => {
    await using strict = await MariadbServer.start(source, { args: ['--innodb-rollback-on-timeout=ON'] })
    const [one, other] = [await strict.connect(), await strict.connect()]
    await one.query('create table t (id int primary key) engine = innodb')
    await one.query('insert into t values (1), (2)')
    await one.beginTransaction()
    await one.query('select * from t where id = 1 for update')
    await other.beginTransaction()
    await other.query('delete from t where id = 2')
    const result = await rowLock(other, { table: 't', where: { id: 1 }, wait: '1s' })
    expect(result).toEqual({ state: 'conflict', why: 'timeout' })
    expect(await value(other, 'select count(*) from t')).toBe(2)
    for (const connection of [one, other]) connection.destroy()
  })

  test('names are taken literally, values never for SQL', async () => {
    await rival.query('replace into `odd ``tickets.v1` values (1, 5)')
    await mine.beginTransaction()
    expect(await rowLock(mine, { table: ['holdfast', 'odd `tickets.v1'], where: { id: 1 } })).toMatchObject({
      rows: [{ id: 1, left: 5 }],
    })
    await expect(rowLock(mine, { table: 'tickets', where: { id: { id: 1 } } })).rejects.toThrow(TypeError)
    await mine.query("set sql_mode = concat(@@sql_mode, ',NO_BACKSLASH_ESCAPES')")
    expect(await rowLock(mine, { table: 'tickets', where: { note: "' or 1 = 1 -- " } })).toEqual({ state: 'missing' })
    await mine.query('set sql_mode = default')
    await expect(rowLock({} as MysqlTransactionClient, row(1))).rejects.toThrow(TypeError)
  })

  test('other errors of the server come through as they are', async () => {
    await mine.beginTransaction()
    await expect(rowLock(mine, { table: 'nowhere', where: { id: 1 } })).rejects.toMatchObject({ errno: 1146 })
  })

  describe('optimistic', () => {
    const less = (ticket: Ticket): { left: number } | undefined =>
      ticket.left > 0 ? { left: ticket.left - 1 } : undefined

    test('many at once lose no change, by version and by comparison', async () => {
      for (const guard of [{ version: 'version' }, { compare: ['left'] }]) {
        await rival.query('update tickets set `left` = 10 where id = 1')
        const options = { client: pool, ...row(1), change: less, retries: 100, ...guard }
        const results = await Promise.all(Array.from({ length: 12 }, () => optimistic<Ticket>(options)))
        expect(results.filter(({ state }) => state === 'written')).toHaveLength(10)
        expect(results.filter(({ state }) => state === 'unchanged')).toHaveLength(2)
        expect(await value(rival, 'select `left` from tickets where id = 1')).toBe(0)
      }
      expect(await value(rival, 'select version from tickets where id = 1')).toBe(11)
    })

    test('answers the row before and after, the version raised', async () => {
      const result = await optimistic({ client: pool, ...row(1), version: 'version', change: () => ({ note: 'x' }) })
      const before = { id: 1, left: 10, version: 1, note: null }
      expect(result).toEqual({ state: 'written', before, after: { ...before, version: 2, note: 'x' }, tries: 1 })
    })

    test('a comparison knows null, and a write that changes nothing is a write', async () => {
      const options = { client: pool, ...row(1), compare: ['note'], change: () => ({ left: 10 }) }
      expect(await optimistic(options)).toMatchObject({ state: 'written', before: { note: null }, tries: 1 })
      const counting = createPool({ uri: server.url, flags: ['-FOUND_ROWS'] })
      expect(await optimistic({ ...options, client: counting })).toMatchObject({ state: 'written', tries: 1 })
      await counting.end()
    })

    test.each([
      ['a', 'A'],
      ['a', 'a '],
      ['resume', 'résumé'],
    ])('a comparison sees that another writer has made %j of it %j', async (before, after) => {
      await rival.query('drop table if exists words')
      await rival.query(
        'create table words (id int primary key, word varchar(40), seen int) ' +
          'engine = innodb character set utf8mb4 collate utf8mb4_unicode_ci',
      )
      await rival.query('insert into words (id, word) values (1, ?)', [before])
      let rivals = 1
      const change = async (): Promise<{ seen: number }> => {
        if (rivals-- > 0) await rival.query('update words set word = ? where id = 1', [after])
        return { seen: 1 }
      }
      const options = { client: pool, table: 'words', where: { id: 1 }, compare: ['word'], change }
      expect(await optimistic(options)).toMatchObject({ state: 'written', before: { word: after }, tries: 2 })
    })

    test('a comparison knows again what it has read as a text, whatever the table keeps it as', async () => {
      await rival.query('drop table if exists words')
      await rival.query(
        'create table words (id int primary key, word char(9) character set latin1, ' +
          "kind enum('é', 'x') character set utf8mb4, amount decimal(40, 2), at time(3), seen int) engine = innodb",
      )
      await rival.query(`insert into words values (1, 'résumé', 'é', 12345678901234567890.10, '10:20:30', 0)`)
      const compare = ['word', 'kind', 'amount', 'at']
      const options = { client: pool, table: 'words', where: { id: 1 }, compare, change: () => ({ seen: 1 }) }
      expect(await optimistic(options)).toMatchObject({ state: 'written', before: { word: 'résumé' }, tries: 1 })
    })

    test('in a transaction that can see no newer row it gives up at once; at READ COMMITTED it goes on', async () => {
      let rivals = 1
      const change = async (): Promise<object> => {
        if (rivals-- > 0) await rival.query('update tickets set version = version + 1 where id = 1')
        return { left: 0 }
      }
      await mine.beginTransaction()
      const error = await optimistic({ client: mine, ...row(1), version: 'version', change }).catch(
        (caught: unknown) => caught,
      )
      expect(error).toBeInstanceOf(ConflictError)
      expect(error).toMatchObject({
        tries: 1,
        message: expect.stringContaining('goes on seeing it as it was') as string,
      })
      await mine.rollback()
      rivals = 1
      await mine.query('set transaction isolation level read committed')
      await mine.beginTransaction()
      expect(await optimistic({ client: mine, ...row(1), version: 'version', change })).toMatchObject({
        state: 'written',
        tries: 2,
      })
    })

    test('whatever is read and written can be changed so', async () => {
      let stored = { count: 1 }
      const result = await optimistic({
        read: async () => stored,
        change: (before) => ({ count: before.count + 1 }),
        write: async (after, before) => {
          if (before !== stored) return false
          stored = after
          return true
        },
      })
      expect(result).toMatchObject({ state: 'written', after: { count: 2 } })
    })
  })
})
