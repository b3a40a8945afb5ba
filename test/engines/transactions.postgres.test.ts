/**
 * Locks inside of the caller's transaction on PostgreSQL, with both clients, against other connections that hold what
 * is asked for.
 */
import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { advisoryKey } from '../../src/clients/postgres/advisory-key.ts'
import { type PostgresTransactionClient, rowLock, xactLock } from '../../src/transactions/postgres.ts'
import { findPostgres } from '../servers/postgres.ts'
import { describeServer } from '../servers/suite.ts'
import { database, looker, pool, rival, server, sql, type Ticket, withTickets } from './transactions.postgres-world.ts'

const LIMIT = { timeout: 30_000, interval: 5 }
const LONG = '60s'

await describeServer('locks inside of a transaction of PostgreSQL', findPostgres, (source) => {
  withTickets(source)

  beforeAll(async () => {
    await rival.query(
      `CREATE SCHEMA "odd ""shop"; CREATE TABLE "odd ""shop"."Tickets.v1" (id int PRIMARY KEY, "left" int NOT NULL)`,
    )
  })

  afterEach(async () => {
    await rival.query('ROLLBACK')
  })

  async function untilBlocked(count = 1): Promise<void> {
    const blocked = `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`
    await vi.waitFor(async () => expect(await looker.value(blocked)).toBe(count), LIMIT)
  }

  /** A transaction of the caller's, by each client. It is committed: what went wrong inside must not have spoilt it. */
  const clients: Readonly<
    Record<string, <Result>(work: (client: PostgresTransactionClient) => Promise<Result>) => Promise<Result>>
  > = {
    pg: async (work) => {
      await using connection = await server.connect(database)
      await connection.query('BEGIN')
      const result = await work(connection.client)
      await connection.query('COMMIT')
      return result
    },
    'postgres.js': async (work) =>
      (await sql.begin(async (transaction) => ({ result: await work(transaction) }))).result,
  }

  const ask = async (client: PostgresTransactionClient, text: string): Promise<unknown> =>
    'unsafe' in client
      ? Object.values((await client.unsafe(text))[0] as object)[0]
      : Object.values((await client.query(text)).rows[0] as object)[0]

  describe.each(Object.entries(clients))('%s', (_name, transaction) => {
    test('a locked row is read, kept from others until the transaction ends, and then let go', async () => {
      await transaction(async (client) => {
        const result = await rowLock<Ticket>(client, { table: 'tickets', where: { id: 1 }, columns: ['id', 'left'] })
        expect(result).toEqual({ state: 'locked', rows: [{ id: 1, left: 10 }] })
        await expect(rival.query('SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE NOWAIT')).rejects.toMatchObject({
          code: '55P03',
        })
        await rival.query('SELECT 1 FROM tickets WHERE id = 2 FOR UPDATE NOWAIT')
      })
      await rival.query('SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE NOWAIT')
    })

    test('a row that another transaction has is busy: at once, or when the wait is over; and the transaction goes on', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE')
      const seen = await transaction(async (client) => {
        const answers = []
        for (const wait of [0, '50ms', 'skipLocked'] as const) {
          answers.push(await rowLock(client, { table: 'tickets', where: { id: 1 }, wait }))
        }
        return [...answers, await ask(client, 'SELECT count(*)::int FROM tickets')]
      })
      expect(seen).toEqual([...Array.from({ length: 3 }, () => ({ state: 'busy' })), 3])
    })

    test('a wait ends with the lock when the other lets go, and shows the row as it is then', async () => {
      await rival.query('BEGIN; UPDATE tickets SET "left" = 4 WHERE id = 1')
      const asked = transaction((client) => rowLock<Ticket>(client, { table: 'tickets', where: { id: 1 }, wait: LONG }))
      await untilBlocked()
      await rival.query('COMMIT')
      expect(await asked).toMatchObject({ state: 'locked', rows: [{ id: 1, left: 4 }] })
    })

    test('its time-out does not outlast it, whether it was granted or not', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE')
      await transaction(async (client) => {
        for (const own of ['0', '7s']) {
          await ask(client, `SELECT set_config('lock_timeout', '${own}', true)`)
          expect(await rowLock(client, { table: 'tickets', where: { id: 1 }, wait: '20ms' })).toEqual({ state: 'busy' })
          expect(await ask(client, 'SHOW lock_timeout')).toBe(own)
          expect(await rowLock(client, { table: 'tickets', where: { id: 2 }, wait: '20ms' })).toMatchObject({
            state: 'locked',
          })
          expect(await ask(client, 'SHOW lock_timeout')).toBe(own)
        }
      })
    })

    test('what was locked before stays locked when the next is busy', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 2 FOR UPDATE')
      await transaction(async (client) => {
        await rowLock(client, { table: 'tickets', where: { id: 1 } })
        expect(await rowLock(client, { table: 'tickets', where: { id: 2 }, wait: 0 })).toEqual({ state: 'busy' })
        await expect(looker.query('SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE NOWAIT')).rejects.toMatchObject({
          code: '55P03',
        })
      })
    })

    test('a row that is not there is missing, whatever the wait', async () => {
      await transaction(async (client) => {
        for (const wait of [undefined, 0, 'skipLocked', '1s'] as const) {
          const options = { table: 'tickets', where: { id: 99 }, ...(wait === undefined ? {} : { wait }) }
          expect(await rowLock(client, options)).toEqual({ state: 'missing' })
        }
      })
    })

    test('skipping takes the next row that no transaction has', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE')
      const job = { table: 'tickets', where: { left: 10 }, order: ['id'], limit: 1, wait: 'skipLocked' } as const
      expect(await transaction((client) => rowLock(client, job))).toMatchObject({ state: 'locked', rows: [{ id: 2 }] })
    })

    test('share locks go together, and exclude an update', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 1 FOR SHARE')
      await transaction(async (client) => {
        const row = { table: 'tickets', where: { id: 1 }, wait: 0 } as const
        expect(await rowLock(client, { ...row, mode: 'share' })).toMatchObject({ state: 'locked' })
        expect(await rowLock(client, { ...row, mode: 'update' })).toEqual({ state: 'busy' })
      })
    })

    test('one of two that wait for each other is told of the deadlock, and can still end its transaction in order', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 2 FOR UPDATE')
      // Only ours looks for deadlocks, so that ours is the one to give way.
      await rival.query(`SET LOCAL deadlock_timeout = '60s'`)
      await transaction(async (client) => {
        await rowLock(client, { table: 'tickets', where: { id: 1 } })
        const crossed = rival.query('SELECT 1 FROM tickets WHERE id = 1 FOR UPDATE')
        await untilBlocked()
        expect(await rowLock(client, { table: 'tickets', where: { id: 2 } })).toEqual({
          state: 'conflict',
          why: 'deadlock',
        })
        return { crossed }
      }).then(({ crossed }) => crossed)
    })

    test('a transaction that sees an old row is told so', async () => {
      await transaction(async (client) => {
        if ('unsafe' in client) await client.unsafe('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        else await client.query('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ')
        await ask(client, 'SELECT count(*) FROM tickets')
        await rival.query('UPDATE tickets SET "left" = 1 WHERE id = 1')
        expect(await rowLock(client, { table: 'tickets', where: { id: 1 } })).toEqual({
          state: 'conflict',
          why: 'snapshot',
        })
      })
    })

    test('calls made at once on one client take turns, and each has its own answer', async () => {
      await rival.query('BEGIN; SELECT 1 FROM tickets WHERE id = 2 FOR UPDATE')
      const answers = await transaction((client) =>
        Promise.all(
          [1, 2, 3, 4].map((id) => rowLock(client, { table: 'tickets', where: { id }, columns: ['id'], wait: '20ms' })),
        ),
      )
      expect(answers).toEqual([
        { state: 'locked', rows: [{ id: 1 }] },
        { state: 'busy' },
        { state: 'locked', rows: [{ id: 3 }] },
        { state: 'missing' },
      ])
    })

    test('other errors of the server come through as they are, and leave the transaction usable', async () => {
      await transaction(async (client) => {
        await expect(rowLock(client, { table: 'nowhere', where: { id: 1 } })).rejects.toMatchObject({ code: '42P01' })
        expect(await ask(client, 'SELECT 1')).toBe(1)
      })
    })

    test('an advisory lock by name is exclusive or shared, and ends with the transaction', async () => {
      const key = advisoryKey('import:7')
      await transaction(async (client) => {
        expect(await xactLock(client, 'import:7')).toEqual({ state: 'locked' })
        expect(await looker.value('SELECT pg_try_advisory_lock($1)', [key])).toBe(false)
      })
      expect(await looker.value('SELECT pg_try_advisory_lock_shared($1)', [key])).toBe(true)
      await transaction(async (client) => {
        for (const wait of [0, '20ms'] as const)
          expect(await xactLock(client, 'import:7', { wait })).toEqual({ state: 'busy' })
        expect(await xactLock(client, 'import:7', { shared: true, wait: '20ms' })).toEqual({ state: 'locked' })
        expect(await ask(client, 'SHOW lock_timeout')).toBe('0')
      })
      await looker.query('SELECT pg_advisory_unlock_all()')
    })
  })

  test('outside of a transaction a lock is refused, with what to do about it', async () => {
    const row = { table: 'tickets', where: { id: 1 } }
    const wanting = { name: 'TypeError', message: expect.stringContaining('needs an open transaction') as string }
    for (const client of [looker.client, pool as PostgresTransactionClient, sql]) {
      await expect(rowLock(client, row)).rejects.toMatchObject(wanting)
      await expect(xactLock(client, 'x')).rejects.toMatchObject(wanting)
    }
    expect(await looker.value('SELECT 1')).toBe(1)
  })

  test('names are taken literally, schema and all', async () => {
    await rival.query(`INSERT INTO "odd ""shop"."Tickets.v1" VALUES (1, 5)`)
    await clients.pg?.(async (client) => {
      const result = await rowLock(client, { table: ['odd "shop', 'Tickets.v1'], where: { id: 1 } })
      expect(result).toEqual({ state: 'locked', rows: [{ id: 1, left: 5 }] })
    })
  })

  test('a name has the same number in SQL', async () => {
    const inSql = `SELECT ('x' || left(encode(sha256(convert_to($1, 'UTF8')), 'hex'), 16))::bit(64)::bigint`
    for (const name of ['a', 'A', 'order:42', 'á', '𝄞'])
      expect(BigInt(String(await looker.value(inSql, [name])))).toBe(advisoryKey(name))
  })

  test('what is no client is refused', async () => {
    await expect(rowLock({} as PostgresTransactionClient, { table: 't', where: { id: 1 } })).rejects.toThrow(TypeError)
    await expect(xactLock(looker.client, 'x', { wait: 'skipLocked' as '1s' })).rejects.toThrow(TypeError)
  })
})
