/**
 * Statements of our procedures that are killed at any moment, by an administrator or by a limit for their time. MariaDB
 * skips some of them without an error (facts/mariadb.kills.test.ts). Whatever it skips, what is counted in one row is
 * what is in the others: a count that is off lets two hold, or sells what is not there.
 */
import { type Connection, createConnection, type RowDataPacket } from 'mysql2/promise'
import { expect, test, vi } from 'vitest'
import { enterArguments, leaveArguments } from '../../src/engines/mysql/codec.ts'
import { DEFAULT_NAME, renamed } from '../../src/engines/mysql/names.ts'
import { holdArguments, putArguments } from '../../src/engines/mysql/record-codec.ts'
import { stock } from '../../src/recipes/stock/index.ts'
import { findOwnMariadb } from '../servers/mariadb.ts'
import { describeServer } from '../servers/suite.ts'
import { MysqlDatabase } from './mysql-database.ts'
import { withDatabase } from './sql-database.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
/** So many calls are told that they were killed. */
const KILLED = 400
/** How long a call that finds no news sleeps: far longer than any other call takes. */
const SLEEP_S = 20
const ENGINE_ID = "x'abababababababababababababababab'"

await describeServer('a MariaDB server whose statements are killed', findOwnMariadb, (source) => {
  const tests = withDatabase(() => MysqlDatabase.start(source))

  test('has in each line the counts of its entries, whichever statement was skipped', async () => {
    const locks = await tests.open({ ttl: '10m' })
    const lease = await locks.mutex('key').acquire()
    await using victim = await connect()
    await using other = await connect()
    let killed = 0
    for (let round = 0; killed < KILLED; round += 1) {
      const claims = [0, 1, 2].map((place) => ({
        ...{ key: 'key', id: `${round}${place}`.padStart(32, '0'), holder: 'a', weight: 1, limit: 1 },
        ...{ ttlMs: 600_000, wait: true },
      }))
      killed += Number(!(await call(victim, other, 'enter', [...enterArguments(claims).args, ENGINE_ID, 'TRUE'])))
      expect(await counted(other)).toEqual(await inLine(other))
      while (!(await call(victim, other, 'leave', [...leaveArguments(claims).args, ENGINE_ID, 'TRUE']))) killed += 1
      expect(await counted(other)).toEqual({ held: 1, waiting: 0 })
    }
    expect(await lease.release()).toBe(true)
  })

  test('has in each pool the sum of its holds, whichever statement was skipped', async () => {
    await using seats = await tests.open({ ttl: '10m' })
    await stock(seats, 'seats', { hold: '10m' }).set({ A: 100 })
    await using victim = await connect()
    await using other = await connect()
    const [[pool]] = await other.query<RowDataPacket[]>('select k from holdfast_pool')
    let killed = 0
    for (let round = 0; killed < KILLED; round += 1) {
      const step = { key: String(pool?.k), id: `cart-${round}`, lines: [{ item: 'A', quantity: 1 }], ms: 600_000 }
      for (const verb of ['reserve', 'cancel'] as const)
        while (!(await call(victim, other, 'hold', holdArguments([{ ...step, verb, wantMs: 0, flag: false }]))))
          killed += 1
      const [[row]] = await other.query<RowDataPacket[]>(
        'select held, (select count(*) from holdfast_pool_hold where state = 0) as holds from holdfast_pool_item',
      )
      expect(row).toEqual({ held: 0, holds: 0 })
    }
  })

  test('remembers what was removed in a line with entries, whichever statement was skipped', async () => {
    await using locks = await tests.open({ ttl: '10m' })
    await locks.mutex('key').acquire()
    const waiting = locks.mutex('key').acquire()
    waiting.catch(() => undefined)
    await using victim = await connect()
    await using other = await connect()
    await vi.waitFor(async () => expect(await counted(other)).toEqual({ held: 1, waiting: 1 }), LIMIT)
    const removal = putArguments([{ key: 'key', value: null, ttlMs: null, when: {} }])
    let killed = 0
    while (killed < KILLED) {
      if (!(await call(victim, other, 'put', [...removal, 'TRUE']))) {
        killed += 1
        continue
      }
      const [[row]] = await other.query<RowDataPacket[]>(
        `select expires_at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as remembered
          from holdfast_record where k = 'key'`,
      )
      expect(row).toEqual({ remembered: 1 })
    }
  })

  test('tells news that is stored, or that it was killed, and never sleeps over news, whichever statement was skipped', async () => {
    const locks = await tests.open({ ttl: '10m' })
    const lease = await locks.mutex('key').acquire()
    await using victim = await connect()
    await using other = await connect()
    // So many that the server reads the table, and not the index: it may skip one and not the other.
    const waiters = Array.from({ length: 300 }, (_, place) => ({
      ...{ key: 'key', id: `${place}`.padStart(32, '0'), holder: 'a', weight: 1, limit: 1 },
      ...{ ttlMs: 600_000, wait: true },
    }))
    while (!(await call(victim, other, 'enter', [...enterArguments(waiters).args, ENGINE_ID, 'TRUE'])));
    await other.query(`update holdfast_entry set news_at = 1 where client = ${ENGINE_ID}`)
    let killed = 0
    while (killed < KILLED) {
      const calledAt = performance.now()
      killed += Number(!(await call(victim, other, 'listen', [ENGINE_ID, '0', '5000000', `''`, `${SLEEP_S}`])))
      expect(performance.now() - calledAt).toBeLessThan((SLEEP_S * 1000) / 2)
    }
    expect(await lease.release()).toBe(true)
  })

  async function connect(): Promise<Connection & AsyncDisposable> {
    const connection = await createConnection(tests.database().url)
    return Object.assign(connection, { [Symbol.asyncDispose]: async () => connection.destroy() })
  }

  /** One call that is killed at any moment, or not at all; whether it was done. */
  async function call(victim: Connection, other: Connection, verb: string, args: readonly string[]): Promise<boolean> {
    const names = { database: undefined, name: DEFAULT_NAME }
    const statement = renamed(`CALL \`holdfast_${verb}\`(${args.join(', ')})`, names)
    const done = victim.query(statement).then(
      () => true,
      () => false,
    )
    for (let trips = Math.floor(Math.random() * 6); trips > 0; trips -= 1) await other.query('do 0')
    await other.query(`kill query ${victim.threadId}`)
    const answer = await done
    await rolledBack(victim)
    return answer
  }

  /** A client of ours ends a connection whose call was killed, and with it what it had begun. */
  async function rolledBack(victim: Connection): Promise<void> {
    await victim.query('rollback').catch(() => rolledBack(victim))
  }

  async function counted(other: Connection): Promise<object> {
    const [[row]] = await other.query<RowDataPacket[]>(
      `select if(crowd, held, due_at > 0) as held, if(crowd, waiting, 0) as waiting from holdfast_line where k = 'key'`,
    )
    return row as object
  }

  /** An entry that is alone is in the row of its line. */
  async function inLine(other: Connection): Promise<object> {
    const [[row]] = await other.query<RowDataPacket[]>(
      `select greatest(1, count(held_since)) as held, count(*) - count(held_since) as waiting
        from holdfast_entry where k = 'key' and removed = 0`,
    )
    return row as object
  }
})
