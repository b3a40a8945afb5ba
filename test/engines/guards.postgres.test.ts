/** The guard of PostgreSQL, on a real server, with pg and with postgres.js. */
import { Client, Pool } from 'pg'
import postgres from 'postgres'
import { beforeAll, describe, expect, test, vi } from 'vitest'
import { ConflictError, EngineError, StaleTokenError } from '../../src/core/errors.ts'
import { type GuardedStatement, guard } from '../../src/guards/postgres.ts'
import { findPostgres, PostgresServer } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { expectForgetting, expectRule, leaseLike } from './guards.rule.ts'

await describeServer('the guard of PostgreSQL', findPostgres, (source) => {
  const guarded = guard()
  let url: string
  let pool: Pool
  let client: Client

  beforeAll(async () => {
    const server = await PostgresServer.start(source)
    url = await server.database()
    pool = new Pool({ connectionString: url })
    client = new Client({ connectionString: url })
    await client.connect()
    await guarded.setup(pool)
    await guarded.setup(pool)
    await pool.query('CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL)')
    await pool.query('INSERT INTO account VALUES (7, 100)')
    return async () => {
      await client.end()
      await pool.end()
      await server[Symbol.asyncDispose]()
    }
  })

  async function inside<Result>(work: () => Promise<Result>): Promise<Result> {
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

  const balance = async (): Promise<number> =>
    (await pool.query<{ balance: number }>('SELECT balance FROM account')).rows[0]?.balance ?? -1

  test('decides as the pure rule does', async () => {
    await expectRule(
      {
        check: (access, lease) =>
          inside(() => (access === 'read' ? guarded.read(client, lease) : guarded.write(client, lease))),
        list: (prefix) => guarded.list(pool, prefix),
      },
      25,
    )
  })

  test('marks are forgotten after the time that the user chose since their last use, and never before', async () => {
    await expectForgetting({
      check: async (forget, access, lease) => {
        const other = guard(forget === undefined ? {} : { forget })
        if (access === 'read') await inside(() => other.read(client, lease))
        else await other.writeStatement(client, lease, { text: 'UPDATE account SET balance = balance' })
      },
      list: (prefix) => guarded.list(pool, prefix),
      pass: async (ms) =>
        void (await pool.query(
          'UPDATE holdfast_marks SET kept_until = kept_until - $1 WHERE kept_until < 9223372036854775807',
          [ms],
        )),
      forget: () => guarded.forget(pool),
    })
  })

  test('more than one statement forgets at once are forgotten, and what a transaction uses is passed over', async () => {
    await pool.query("INSERT INTO holdfast_marks SELECT 'many:' || n, 1, 9, 9, 1 FROM generate_series(1, 2500) n")
    await client.query('BEGIN')
    await guarded.write(client, leaseLike(9n, 'many:7'))
    expect(await guarded.forget(pool)).toBe(2499)
    await client.query('COMMIT')
    expect(await guarded.forget(pool)).toBe(0)
    expect(await guarded.list(pool, 'many:')).toHaveLength(1)
  })

  test('the server refuses to commit after a stale token, even for a caller who does not look', async () => {
    await inside(() => guarded.write(client, leaseLike(9n, 'unawaited')))
    await client.query('BEGIN')
    const ignored = guarded.write(client, leaseLike(8n, 'unawaited')).catch((error: unknown) => error)
    await expect(client.query('UPDATE account SET balance = 0')).rejects.toThrow('aborted')
    await client.query('COMMIT')
    expect(await ignored).toBeInstanceOf(StaleTokenError)
    expect(await balance()).toBe(100)
  })

  test('all roles and connections find the same marks, whatever schema they look into first', async () => {
    await pool.query('CREATE SCHEMA elsewhere')
    const other = new Client({ connectionString: url, options: '-c search_path=elsewhere,public' })
    await other.connect()
    try {
      await guarded.setup(other)
      await inside(() => guarded.write(client, leaseLike(9n, 'schemas')))
      await expect(
        guarded.writeStatement(other, leaseLike(8n, 'schemas'), { text: 'UPDATE account SET balance = 0' }),
      ).rejects.toThrow(StaleTokenError)
      await other.query('BEGIN')
      await expect(guarded.write(other, leaseLike(8n, 'schemas'))).rejects.toThrow(StaleTokenError)
      await other.query('ROLLBACK')
      expect(await balance()).toBe(100)
    } finally {
      await other.end()
    }
  })

  test('outside of a transaction it refuses', async () => {
    await expect(guarded.write(client, leaseLike(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
    await expect(guarded.read(pool, leaseLike(1n, 'alone'))).rejects.toThrow(/needs an open transaction/)
  })

  test('a writer that is replaced while waiting for the row is refused', async () => {
    const rival = await pool.connect()
    await rival.query('BEGIN')
    await guarded.read(rival, leaseLike(6n, 'waited'))
    await client.query('BEGIN')
    const late = expect(guarded.write(client, leaseLike(5n, 'waited'))).rejects.toThrow(StaleTokenError)
    await rival.query('COMMIT')
    rival.release()
    await late
    await client.query('ROLLBACK')
  })

  test('what is rolled back has not happened, mark and work alike; also to a savepoint', async () => {
    await client.query('BEGIN')
    await guarded.read(client, leaseLike(6n, 'undone'))
    await client.query('ROLLBACK')
    await inside(() => guarded.write(client, leaseLike(4n, 'undone')))
    await inside(async () => {
      await client.query('SAVEPOINT here')
      await guarded.write(client, leaseLike(6n, 'undone'))
      await client.query('UPDATE account SET balance = 0')
      await client.query('ROLLBACK TO here')
    })
    expect(await guarded.list(pool, 'undone')).toEqual([{ resource: 'undone', seen: 4n, written: 4n }])
    expect(await balance()).toBe(100)
  })

  test('a refusal undoes what was done since the savepoint before it', async () => {
    await inside(() => guarded.write(client, leaseLike(9n, 'nested')))
    await inside(async () => {
      await client.query('SAVEPOINT here')
      await client.query('UPDATE account SET balance = 0')
      await expect(guarded.write(client, leaseLike(8n, 'nested'))).rejects.toThrow(StaleTokenError)
      await client.query('ROLLBACK TO here')
    })
    expect(await balance()).toBe(100)
  })

  test('a client that cannot tell whether it is in a transaction is asked through the server', async () => {
    const silent = { query: (text: string, values?: unknown[]) => client.query(text, values) }
    await expect(guarded.write(silent, leaseLike(5n, 'silent'))).rejects.toThrow(/needs an open transaction/)
    await inside(() => guarded.write(silent, leaseLike(5n, 'silent')))
    await expect(inside(() => guarded.write(silent, leaseLike(4n, 'silent')))).rejects.toThrow(StaleTokenError)
  })

  describe('check and write as one statement', () => {
    test('writes, with values and a WITH of its own', async () => {
      const written = await guarded.writeStatement(pool, leaseLike(5n, 'one'), {
        text: 'UPDATE account SET balance = balance + $1 RETURNING balance',
        values: [1],
      })
      expect(written).toMatchObject({ rows: [{ balance: 101 }], count: 1 })
      const text = 'WITH less AS (SELECT $1::int AS amount) UPDATE account SET balance = balance - amount FROM less'
      await guarded.writeStatement(client, leaseLike(6n, 'one'), { text, values: [1] })
      for (const comment of ['-- why\n', '/* one /* in another */ */', ' \n/**/ --\n'])
        for (const text of [
          'WITH a AS (SELECT 0 AS n) UPDATE account SET balance = balance + n FROM a',
          'WITH/**/RECURSIVE a(n) AS (SELECT 0) UPDATE account SET balance = balance + n FROM a',
          'WITH"a" AS (SELECT 0 AS n) UPDATE account SET balance = balance + n FROM a -- so',
          'UPDATE account SET balance = balance',
        ])
          await guarded.writeStatement(client, leaseLike(6n, 'one'), { text: comment + text })
      expect(await balance()).toBe(100)
    })

    test('or does not, and nothing of it stays', async () => {
      const stale = guarded.writeStatement(pool, leaseLike(5n, 'one'), { text: 'UPDATE account SET balance = 0' })
      await expect(stale).rejects.toMatchObject({ name: 'StaleTokenError', resource: 'one', offered: 5n, seen: 6n })
      expect(await balance()).toBe(100)
    })

    /**
     * A writer with token 5 has written and not yet committed, when one with token 6 comes with a statement that
     * reads that.
     */
    async function copiedMeanwhile(
      key: string,
      send: (statement: GuardedStatement) => Promise<unknown>,
    ): Promise<unknown> {
      const rival = await pool.connect()
      await rival.query('BEGIN')
      await guarded.write(rival, leaseLike(5n, key))
      await rival.query('UPDATE account SET balance = 150')
      const sent = send({ text: 'INSERT INTO copy SELECT $1, balance FROM account', values: [key] }).catch(
        (error: unknown) => error,
      )
      await vi.waitFor(async () => {
        const waiting = await pool.query(
          "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        )
        expect(waiting.rowCount).toBe(1)
      }, 30_000)
      await rival.query('COMMIT')
      rival.release()
      const answer = await sent
      await pool.query('UPDATE account SET balance = 100')
      return answer
    }

    test('a statement that was overtaken is sent again, so that it reads what is; inside of a transaction it cannot be', async () => {
      await pool.query('CREATE TABLE copy (name text, balance int)')
      await copiedMeanwhile('alone', (statement) => guarded.writeStatement(pool, leaseLike(6n, 'alone'), statement))
      const inTransaction = await copiedMeanwhile('inside', (statement) =>
        inside(() => guarded.writeStatement(client, leaseLike(6n, 'inside'), statement)),
      )
      expect(inTransaction).toBeInstanceOf(ConflictError)
      await copiedMeanwhile('read before', (statement) =>
        inside(async () => {
          await guarded.read(client, leaseLike(6n, 'read before'))
          await guarded.writeStatement(client, leaseLike(6n, 'read before'), statement)
        }),
      )
      expect((await pool.query('SELECT * FROM copy ORDER BY name')).rows).toEqual([
        { name: 'alone', balance: 150 },
        { name: 'read before', balance: 150 },
      ])
    })

    test('errors of the statement are its own', async () => {
      await expect(
        guarded.writeStatement(pool, leaseLike(7n, 'one'), { text: 'UPDATE nowhere SET a = 1' }),
      ).rejects.toMatchObject({
        code: '42P01',
      })
      await expect(
        guarded.writeStatement(pool, leaseLike(7n, 'one'), { text: "UPDATE account SET balance = 'x'::int" }),
      ).rejects.toMatchObject({
        code: '22P02',
      })
    })
  })

  test('with postgres.js, sent together with the write: no round trip more, and nothing written if refused', async () => {
    const sql = postgres(url, { max: 2, onnotice: () => undefined })
    const write = (token: bigint, amount: number): Promise<unknown> =>
      sql.begin(async (tx) => {
        const checked = guarded.write(tx, leaseLike(token, 'together'))
        const written = tx`UPDATE account SET balance = ${amount}`.execute()
        await checked
        await written
      })
    await write(6n, 200)
    // Once their statements are prepared, both are refused in one packet.
    for (let tries = 0; tries < 5; tries += 1) await expect(write(5n, 0)).rejects.toThrow(StaleTokenError)
    expect(await balance()).toBe(200)
    await expect(guarded.write(sql, leaseLike(7n, 'together'))).rejects.toThrow(/needs an open transaction/)
    await sql.end()
  })

  test('marks of a newer version are refused; marks are reset only with their present value', async () => {
    await pool.query("INSERT INTO holdfast_marks VALUES ('future', 2, 1, 1, 1)")
    await expect(inside(() => guarded.write(client, leaseLike(5n, 'future')))).rejects.toThrow(EngineError)
    expect(await guarded.forget(pool)).toBe(0)
    await inside(() => guarded.write(client, leaseLike(5n, 'past')))
    expect([await guarded.reset(pool, 'past', 4n), await guarded.reset(pool, 'past', 5n)]).toEqual([false, true])
    expect(await guarded.list(pool, 'past')).toEqual([])
  })

  test('many may set it up at once', async () => {
    for (let round = 0; round < 5; round += 1) {
      const other = guard({ table: `round_${round}` })
      await Promise.all(Array.from({ length: 10 }, () => other.setup(pool)))
      expect(await other.list(pool)).toEqual([])
    }
  })

  test('the table may be in a schema, under any name', async () => {
    const other = guard({ table: ['public', 'odd "name'] })
    await other.setup(pool)
    await inside(() => other.write(client, leaseLike(5n)))
    expect(await other.list(pool)).toHaveLength(1)
  })
})
