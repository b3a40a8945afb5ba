/**
 * mysql2 without its promises. Those note where each question came from, which takes as long as asking it, and wrap
 * each connection anew whenever a pool gives it out. Beneath them is mysql2 with callbacks, and we make our own.
 */
import { isUnprepared } from './errors.ts'
import type { Mysql2Connection, Mysql2Pool, PooledMysql2Connection, Question } from './mysql2.ts'
import type { Statement } from './wire.ts'

type Callback<Value> = (error: Error | null, value: Value) => void

interface BareStatement {
  execute(values: readonly string[], answered: Callback<unknown>): unknown
}

interface BareConnection {
  query(question: Question, answered: Callback<unknown>): unknown
  prepare(sql: string, prepared: Callback<BareStatement>): unknown
  unprepare(sql: string): unknown
  on(event: string, listener: (...args: never[]) => void): unknown
  release(): void
  destroy(): void
}

interface BarePool {
  getConnection(got: Callback<BareConnection>): void
}

/** What a pool with promises was made of, if it is one of mysql2. */
export function barePool(pool: Mysql2Pool): Mysql2Pool {
  const { pool: bare } = pool as { pool?: BarePool }
  if (typeof bare?.getConnection !== 'function') return pool
  return {
    getConnection: () =>
      new Promise((resolve, reject) => {
        bare.getConnection((error, connection) => (error ? reject(error) : resolve(new Bare(connection))))
      }),
  }
}

/** What a connection with promises was made of, if it is one of mysql2. */
export function bareConnection(connection: Mysql2Connection): Mysql2Connection {
  const { connection: bare } = connection as { connection?: BareConnection }
  return typeof bare?.prepare === 'function' ? new Bare(bare) : connection
}

class Bare implements PooledMysql2Connection {
  readonly connection: BareConnection

  constructor(connection: BareConnection) {
    this.connection = connection
  }

  query(question: Question): Promise<[unknown, unknown]> {
    return new Promise((resolve, reject) => {
      this.connection.query(question, (error, answer) => (error ? reject(error) : resolve([answer, undefined])))
    })
  }

  async execute({ sql, values }: Statement): Promise<[unknown, unknown]> {
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
   * It is of no use any more, or mysql2, which keeps a number of them, has let go of it for others. While mysql2 has
   * it, preparing it again would give us the same one.
   */
  #forget(sql: string, statements: Map<string, BareStatement>): void {
    statements.delete(sql)
    this.connection.unprepare(sql)
  }

  #prepare(sql: string, statements: Map<string, BareStatement>): Promise<BareStatement> {
    return new Promise((resolve, reject) => {
      this.connection.prepare(sql, (error, statement) => {
        if (error !== null) return reject(error)
        statements.set(sql, statement)
        resolve(statement)
      })
    })
  }
}

const prepared = new WeakMap<BareConnection, Map<string, BareStatement>>()

function statementsOf(connection: BareConnection): Map<string, BareStatement> {
  const before = prepared.get(connection)
  if (before !== undefined) return before
  const statements = new Map<string, BareStatement>()
  prepared.set(connection, statements)
  return statements
}
