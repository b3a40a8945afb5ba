/**
 * What we use of mysql2, and mysql2 without its promises. Those note where each question came from, which takes as long
 * as asking it, and wrap each connection anew whenever a pool gives it out. Beneath them is mysql2 with callbacks, and
 * we make our own promises.
 */
import { isUnprepared } from './errors.ts'
import type { MysqlStatement } from './wire.ts'

export type Mysql2TypeCast = (field: unknown, next: () => unknown) => unknown

/** How we ask. */
export interface Mysql2Question {
  sql: string
  rowsAsArray: true
  typeCast: Mysql2TypeCast
  nestTables: false
}

/** What we use of a `Connection` of mysql2 with promises. */
export interface Mysql2Connection {
  query(question: Mysql2Question): Promise<[unknown, unknown]>
  /** Without it, nothing is prepared. */
  execute?(statement: { sql: string; values: string[] }): Promise<[unknown, unknown]>
  on(event: 'error', listener: (error: Error) => void): unknown
}

/** What we use of a connection that came from a `Pool`. */
export interface PooledMysql2Connection extends Mysql2Connection {
  release(): void
  destroy(): void
}

/** What we use of a `Pool` of mysql2 with promises. */
export interface Mysql2Pool {
  getConnection(): Promise<PooledMysql2Connection>
}

type Mysql2Callback<Value> = (error: Error | null, value: Value) => void

interface CallbackStatement {
  execute(values: readonly string[], answered: Mysql2Callback<unknown>): unknown
}

interface BareMysql2Connection {
  query(question: Mysql2Question, answered: Mysql2Callback<unknown>): unknown
  prepare(sql: string, prepared: Mysql2Callback<CallbackStatement>): unknown
  unprepare(sql: string): unknown
  on(event: string, listener: (...args: never[]) => void): unknown
  release(): void
  destroy(): void
}

interface BareMysql2Pool {
  getConnection(got: Mysql2Callback<BareMysql2Connection>): void
}

/** What a pool with promises was made of, if it is one of mysql2. */
export function barePool(pool: Mysql2Pool): Mysql2Pool {
  const { pool: bare } = pool as { pool?: BareMysql2Pool }
  if (typeof bare?.getConnection !== 'function') return pool
  return {
    getConnection: () =>
      new Promise((resolve, reject) => {
        bare.getConnection((error, connection) => (error ? reject(error) : resolve(new CallbackConnection(connection))))
      }),
  }
}

/** What a connection with promises was made of, if it is one of mysql2. */
export function bareConnection(connection: Mysql2Connection): Mysql2Connection {
  const { connection: bare } = connection as { connection?: BareMysql2Connection }
  return typeof bare?.prepare === 'function' ? new CallbackConnection(bare) : connection
}

class CallbackConnection implements PooledMysql2Connection {
  readonly connection: BareMysql2Connection

  constructor(connection: BareMysql2Connection) {
    this.connection = connection
  }

  query(question: Mysql2Question): Promise<[unknown, unknown]> {
    return new Promise((resolve, reject) => {
      this.connection.query(question, (error, answer) => (error ? reject(error) : resolve([answer, undefined])))
    })
  }

  async execute({ sql, values }: MysqlStatement): Promise<[unknown, unknown]> {
    const statements = statementsOf(this.connection)
    const statement = statements.get(sql) ?? (await this.#prepare(sql, statements))
    return await new Promise((resolve, reject) => {
      statement.execute(values, (error, answer) => {
        if (error === null) return resolve([answer, undefined])
        if (isUnprepared(error)) this.#forget(sql, statements)
        reject(error)
      })
    })
  }

  on(event: 'error', listener: (error: Error) => void): unknown {
    return this.connection.on(event, listener)
  }

  release(): void {
    this.connection.release()
  }

  destroy(): void {
    this.connection.destroy()
  }

  /**
   * Forget a prepared statement that is of no use any more, or that mysql2 has closed to make room for others. mysql2
   * forgets it, too: as long as mysql2 knows it, preparing the same SQL again would give us the same statement.
   */
  #forget(sql: string, statements: Map<string, CallbackStatement>): void {
    statements.delete(sql)
    this.connection.unprepare(sql)
  }

  #prepare(sql: string, statements: Map<string, CallbackStatement>): Promise<CallbackStatement> {
    return new Promise((resolve, reject) => {
      this.connection.prepare(sql, (error, statement) => {
        if (error !== null) return reject(error)
        statements.set(sql, statement)
        resolve(statement)
      })
    })
  }
}

const prepared = new WeakMap<BareMysql2Connection, Map<string, CallbackStatement>>()

function statementsOf(connection: BareMysql2Connection): Map<string, CallbackStatement> {
  const before = prepared.get(connection)
  if (before !== undefined) return before
  const statements = new Map<string, CallbackStatement>()
  prepared.set(connection, statements)
  return statements
}
