/**
 * The wires of mysql2: on a Pool, or on a single Connection.
 *
 * From a pool, each call takes a connection and gives it back. One that does not answer in time is thrown away, not
 * given back: the server may still execute what was sent on it, and the next call would wait behind that. So is one
 * whose call was killed: its transaction may still be open.
 *
 * Whatever the user's settings are (how big numbers and dates are read, rows as objects, placeholders): we send plain
 * text without placeholders, ask for rows as arrays, and our procedures answer in characters.
 */

import type { CallDeadline } from '../shared/call-limits.ts'
import { NoAnswer, NotSent } from '../shared/driver-errors.ts'
import { ERRNO, errnoOf, isRolledBack, isUnprepared } from './errors.ts'
import {
  bareConnection,
  barePool,
  type Mysql2Connection,
  type Mysql2Pool,
  type Mysql2Question,
  type Mysql2TypeCast,
  type PooledMysql2Connection,
} from './mysql2-client.ts'
import type { MysqlStatement, MysqlWire, OwnMysqlConnection, ResultRows, StatementResult } from './wire.ts'

export class Mysql2PoolWire implements MysqlWire {
  readonly connect: MysqlWire['connect']
  readonly #pool: Mysql2Pool
  readonly #close: () => Promise<void>

  /** `close`: what to do with the pool at the end. */
  constructor(pool: Mysql2Pool, connect: MysqlWire['connect'], close: () => Promise<void> = async () => {}) {
    this.#pool = barePool(pool)
    this.connect = connect
    this.#close = close
  }

  ask(sql: string, deadline: CallDeadline): Promise<readonly ResultRows[]> {
    return this.#borrow((connection) => deadline.race(asked(connection, sql), () => new NoAnswer()), deadline)
  }

  change(statement: MysqlStatement, deadline: CallDeadline): Promise<StatementResult> {
    return this.#borrow((connection) => deadline.race(changedBy(connection, statement), () => new NoAnswer()), deadline)
  }

  async run(work: (ask: (sql: string) => Promise<ResultRows>) => Promise<void>, deadline: CallDeadline): Promise<void> {
    await this.#borrow((connection) => deadline.race(work(oneSet(connection)), () => new NoAnswer()), deadline)
  }

  async close(): Promise<void> {
    await this.#close()
  }

  async #borrow<Value>(
    use: (connection: PooledMysql2Connection) => Promise<Value>,
    deadline: CallDeadline,
  ): Promise<Value> {
    const connection = await this.#connection(deadline)
    try {
      const value = await use(connection)
      connection.release()
      return value
    } catch (error) {
      if (isRolledBack(error)) connection.release()
      else cut(connection)
      throw error
    }
  }

  /** A connection of the pool, in time. One that comes too late goes back unused. */
  async #connection(deadline: CallDeadline): Promise<PooledMysql2Connection> {
    const connecting = this.#pool.getConnection()
    try {
      return await deadline.race(connecting, () => new Error('no connection was free in time'))
    } catch (error) {
      connecting.then(
        (late) => late.release(),
        () => undefined,
      )
      throw new NotSent(error)
    }
  }
}

/**
 * One connection, for everything. mysql2 sends what it is given one after the other, so what waits behind a call that
 * hangs must not be given to it.
 */
export class Mysql2ConnectionWire implements MysqlWire {
  readonly connect: MysqlWire['connect']
  readonly #connection: Mysql2Connection
  /** Settles when the call before has been answered. */
  #turn: Promise<unknown> = Promise.resolve()

  constructor(connection: Mysql2Connection, connect: MysqlWire['connect']) {
    this.#connection = bareConnection(connection)
    this.connect = connect
    connection.on('error', () => undefined)
  }

  ask(sql: string, deadline: CallDeadline): Promise<readonly ResultRows[]> {
    return this.#inTurn(() => asked(this.#connection, sql), deadline)
  }

  change(statement: MysqlStatement, deadline: CallDeadline): Promise<StatementResult> {
    return this.#inTurn(() => changedBy(this.#connection, statement), deadline)
  }

  async run(work: (ask: (sql: string) => Promise<ResultRows>) => Promise<void>, deadline: CallDeadline): Promise<void> {
    await this.#inTurn(() => work(oneSet(this.#connection)), deadline)
  }

  async close(): Promise<void> {
    // It is the user's.
  }

  #inTurn<Value>(use: () => Promise<Value>, deadline: CallDeadline): Promise<Value> {
    let state: 'queued' | 'sent' | 'dropped' = 'queued'
    const using = this.#turn.then(() => {
      if (state === 'dropped') throw new Error('its time was up before its turn')
      state = 'sent'
      return use()
    })
    this.#turn = using.then(noop, async (error: unknown) => {
      // Nothing of ours may stay open.
      if (state === 'sent' && !isRolledBack(error))
        await asked(this.#connection, 'ROLLBACK AND NO CHAIN NO RELEASE').catch(noop)
    })
    return deadline.race(using, () => {
      if (state === 'sent') return new NoAnswer()
      state = 'dropped'
      return new NotSent(new Error('the connection was not free in time'))
    })
  }
}

function noop(): void {}

/** A connection that mysql2 has made for us alone. What it is asked fails when it ends: mysql2 itself forgets it. */
export function ownConnection(
  connection: Mysql2Connection & { destroy(): void; on(event: 'end', listener: () => void): unknown },
): OwnMysqlConnection {
  const ask = oneSet(connection)
  const ends = new Set<(reason: Error) => void>()
  const end = (): void => {
    for (const ended of [...ends]) ended(new Error('the connection has ended'))
    ends.clear()
  }
  connection.on('error', end)
  connection.on('end', end)
  return {
    async ask(sql) {
      let ended: (reason: Error) => void = () => {}
      try {
        return await new Promise<ResultRows>((resolve, reject) => {
          ended = reject
          ends.add(ended)
          ask(sql).then(resolve, reject)
        })
      } finally {
        ends.delete(ended)
      }
    },
    onEnd(listener) {
      ends.add(listener)
    },
    cut() {
      cut(connection)
      end()
    },
  }
}

/** End it, without waiting for a server that may never answer. */
export function cut(connection: { destroy(): void }): void {
  connection.destroy()
  const { stream } = (connection as { connection?: { stream?: { destroy?(): void } } }).connection ?? {}
  stream?.destroy?.()
}

function oneSet(connection: Mysql2Connection): (sql: string) => Promise<ResultRows> {
  return async (sql) => (await asked(connection, sql))[0] ?? []
}

/** https://dev.mysql.com/doc/dev/mysql-server/latest/mysql__com_8h.html: SERVER_STATUS_IN_TRANS. */
const IN_TRANSACTION = 1

/**
 * On a connection without autocommit a statement leaves its transaction open: what it did would not be committed, and
 * what it has locked would stay locked. So it is ended here.
 */
async function changedBy(connection: Mysql2Connection, statement: MysqlStatement): Promise<StatementResult> {
  const [answer] = await sent(connection, statement).catch(async (error: unknown) => {
    const errno = errnoOf(error)
    if (errno === ERRNO.lockWaitTimeout || errno === ERRNO.subqueryRows)
      await connection.query(question('ROLLBACK AND NO CHAIN NO RELEASE'))
    throw error
  })
  const { insertId, affectedRows, serverStatus } = answer as {
    insertId?: number | string | bigint
    affectedRows?: number
    serverStatus?: number
  }
  if (((serverStatus ?? IN_TRANSACTION) & IN_TRANSACTION) !== 0)
    await connection.query(question('COMMIT AND NO CHAIN NO RELEASE'))
  return { lastInsertId: BigInt(insertId ?? 0), changed: affectedRows ?? 0 }
}

/**
 * Prepared, if it has values: then the server does not have to read it each time. A server that has too many of those,
 * or cannot use ours any more, gets the text.
 */
async function sent(connection: Mysql2Connection, { sql, values }: MysqlStatement): Promise<[unknown, unknown]> {
  if (values.length === 0) return await connection.query(question(sql))
  try {
    if (connection.execute !== undefined) return await connection.execute({ sql, values })
  } catch (error) {
    if (!isUnprepared(error)) throw error
  }
  const [first = '', ...rest] = sql.split(PLACEHOLDER)
  return await connection.query(question(first + rest.map((text, index) => `'${values[index]}'${text}`).join('')))
}

/** Not one in a name: an even number of backticks follows it. */
const PLACEHOLDER = /\?(?=(?:[^`]*`[^`]*`)*[^`]*$)/

/** Only another function takes the place of one that the user has given to the client. */
const asItIs: Mysql2TypeCast = (_field, next) => next()

function question(sql: string): Mysql2Question {
  return { sql, rowsAsArray: true, typeCast: asItIs, nestTables: false }
}

/** Rows of one SELECT, or the sets of a CALL, with what the server says at the end. */
async function asked(connection: Mysql2Connection, sql: string): Promise<readonly ResultRows[]> {
  const [answer] = await connection.query(question(sql))
  if (!Array.isArray(answer)) return []
  if (!sql.startsWith('CALL')) return [answer as ResultRows]
  return answer.filter((set) => Array.isArray(set)) as ResultRows[]
}
