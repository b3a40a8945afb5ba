/**
 * `holdfast/guards/mysql`: marks in a table beside what is protected, raised and compared inside of the caller's own
 * transaction, on MySQL and MariaDB with mysql2.
 *
 *     const guarded = guard({ table: 'shop.holdfast_marks' })
 *     await guarded.setup(pool)                    once; or put `guarded.schema` into a migration
 *
 *     await connection.beginTransaction()
 *     await guarded.read(connection, lease)       before reading what will be written back
 *     await guarded.write(connection, lease)     before writing
 *     await connection.commit()
 *
 * One statement each. It locks the row of the marks until the transaction ends, and says in its own reply what it found
 * there: `LAST_INSERT_ID(n)` hands a number back without a second question.
 *
 * At REPEATABLE READ, the default, a transaction goes on seeing the database as at its first plain SELECT: ask
 * the guard before you read.
 */
import { checkOptions, type OptionNames } from '../core/options.ts'
import { checkClient, dialect, doneBy, type MysqlTransactionClient, rowsOf } from '../transactions/mysql/client.ts'
import { notInTransaction } from '../transactions/row-lock.ts'
import { fixedTable, type Table } from '../transactions/statements.ts'
import { type LeaseLike, newerFormat, resourceToken } from './lease-like.ts'
import {
  type Access,
  checkToken,
  FOR_EVER,
  FORMAT,
  type ForgetAfter,
  MARKS_TABLE,
  type Mark,
  parseForget,
} from './marks.ts'

export type { MysqlTransactionClient } from '../transactions/mysql/client.ts'
export type { LeaseLike } from './lease-like.ts'
export type { ForgetAfter, Mark, Marks } from './marks.ts'

/** Options of a guard on MySQL or MariaDB. */
export interface MysqlGuardOptions {
  /**
   * Where the marks are, with the database: `'shop.holdfast_marks'`. All who write one resource have to find the same
   * marks, and a name alone means another table on each connection that is in another database.
   */
  readonly table: Table
  /**
   * How long to keep the mark of a resource that no token uses, by the clock of the server: for ever unless given. An
   * older holder is let in again after that. `forget()` removes the marks whose time is over.
   */
  readonly forget?: ForgetAfter
}

const OPTIONS: OptionNames<MysqlGuardOptions> = { table: true, forget: true }

/**
 * `client` is yours: a Connection or PoolConnection of mysql2/promise. `resource` is the key of the lease unless given.
 */
export interface MysqlGuard {
  /** What `setup` does, for a migration. */
  readonly schema: string
  /** Make the table, if it is not there. It ends a transaction, as every definition does on MySQL. */
  setup(client: MysqlTransactionClient): Promise<void>
  /**
   * Before reading, inside of your transaction. Rejects with `StaleTokenError` if a higher token has written; roll back
   * then.
   */
  read(client: MysqlTransactionClient, lease: LeaseLike, resource?: string): Promise<void>
  /**
   * Before writing, inside of your transaction. Rejects with `StaleTokenError` if a higher token has read or written;
   * roll back then.
   */
  write(client: MysqlTransactionClient, lease: LeaseLike, resource?: string): Promise<void>
  /** The marks of all resources whose name begins so, by name. */
  list(client: MysqlTransactionClient, prefix?: string): Promise<readonly Mark[]>
  /**
   * Forget a resource, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then.
   */
  reset(client: MysqlTransactionClient, resource: string, seen: bigint): Promise<boolean>
  /**
   * Remove the marks whose time is over, now and then, outside of a transaction: see the option `forget`. Answers how
   * many.
   */
  forget(client: MysqlTransactionClient): Promise<number>
}

/** Higher than any token, and what a row of a newer format answers. */
const NEWER = 2n ** 63n - 1n
/** Whole seconds, because the finer clocks go by the time zone of the connection, and some hours come twice there. */
const NOW_MS = 'UNIX_TIMESTAMP() * 1000'
/** What was rounded off when a mark is used, so that none is forgotten too early. */
const ROUNDED_OFF_MS = 1000
/** How many of the marks whose time is over are looked for at once. */
const MOST_AT_ONCE = 1000

/**
 * Resources are bytes, so that no collation takes `a` for `A`. Assignments come out the same whether they see what
 * those before them have set, as is usual, or not, as with SIMULTANEOUS_ASSIGNMENT of MariaDB: a token is at least
 * `seen` before it has raised it if and only if it is afterwards.
 */
export function guard(options: MysqlGuardOptions): MysqlGuard {
  if (options !== undefined) checkOptions('guard()', options, OPTIONS)
  const table = fixedTable(dialect, options?.table ?? MARKS_TABLE, undefined)
  const schema = `CREATE TABLE IF NOT EXISTS ${table} (
    resource varbinary(512) PRIMARY KEY, format int NOT NULL, seen bigint NOT NULL, written bigint NOT NULL,
    kept_until bigint NOT NULL DEFAULT ${FOR_EVER}
  ) ENGINE = InnoDB`
  const forgetMs = parseForget(options?.forget)
  const keptUntil = forgetMs === undefined ? `${FOR_EVER}` : `${NOW_MS} + ${forgetMs + ROUNDED_OFF_MS}`
  const inserting = `INSERT INTO ${table} (resource, format, seen, written, kept_until)
    VALUES (?, ${FORMAT}, ?, ?, ${keptUntil}) ON DUPLICATE KEY UPDATE
      kept_until = GREATEST(kept_until, VALUES(kept_until)),`
  const over = `format = ${FORMAT} AND kept_until < ${NOW_MS}`
  const answer = (number: string): string => `LAST_INSERT_ID(IF(format > ${FORMAT}, ${NEWER}, ${number}))`
  const raising = {
    read: `${inserting}
      seen = IF(format > ${FORMAT} OR VALUES(seen) < written, seen, GREATEST(seen, VALUES(seen))),
      written = written + 0 * ${answer('written')}`,
    write: `${inserting}
      seen = IF(format > ${FORMAT}, seen, GREATEST(seen, VALUES(seen))),
      written = IF(format > ${FORMAT} OR VALUES(seen) < seen, written, VALUES(seen)) + 0 * ${answer('seen')}`,
  }

  async function checkMarks(
    client: MysqlTransactionClient,
    access: Access,
    lease: LeaseLike,
    name?: string,
  ): Promise<void> {
    checkClient(client)
    const { resource, token } = resourceToken(lease, access, name)
    const values = [Buffer.from(resource), String(token), access === 'write' ? String(token) : '0']
    const { inTransaction, insertId } = await doneBy(client, { text: raising[access], values })
    if (!inTransaction) throw notInTransaction('a guard', 'Call beginTransaction() on this connection first.')
    const found = insertId ?? (await exactly(client, resource, access))
    if (found === NEWER) throw newerFormat('mysql', resource)
    checkToken(resource, token, access, { seen: found, written: found })
  }

  /** The mark in question, for a client that lost digits of it. The row is locked by us: it is still the same. */
  async function exactly(client: MysqlTransactionClient, resource: string, access: Access): Promise<bigint> {
    const mark = access === 'write' ? 'seen' : 'written'
    const text = `SELECT CAST(IF(format > ${FORMAT}, ${NEWER}, ${mark}) AS CHAR) AS mark FROM ${table} WHERE resource = ? FOR UPDATE`
    const [row] = await rowsOf(client, { text, values: [Buffer.from(resource)] })
    return BigInt(String(row?.mark))
  }

  return {
    schema,
    setup: async (client) => void (await client.query(schema)),
    read: (client, lease, resource) => checkMarks(client, 'read', lease, resource),
    write: (client, lease, resource) => checkMarks(client, 'write', lease, resource),
    list: async (client, prefix = '') => {
      const text = `SELECT resource, CAST(seen AS CHAR) AS seen, CAST(written AS CHAR) AS written FROM ${table}
        WHERE LEFT(resource, LENGTH(?)) = ? ORDER BY resource`
      const rows = await rowsOf(client, { text, values: [Buffer.from(prefix), Buffer.from(prefix)] })
      return rows.map(({ resource, seen, written }) => ({
        resource: String(resource),
        seen: BigInt(String(seen)),
        written: BigInt(String(written)),
      }))
    },
    reset: async (client, resource, seen) => {
      const text = `DELETE FROM ${table} WHERE resource = ? AND seen = ?`
      return (await doneBy(client, { text, values: [Buffer.from(resource), String(seen)] })).affectedRows > 0
    },
    forget: async (client) => {
      // Found without a lock, and removed one by one: a statement that removes many would hold the rows that it has
      // while it waits for one that a transaction uses.
      const finding = `SELECT resource FROM ${table} WHERE ${over} LIMIT ${MOST_AT_ONCE}`
      const removing = `DELETE FROM ${table} WHERE resource = ? AND ${over}`
      for (let forgotten = 0; ; ) {
        const before = forgotten
        for (const { resource } of await rowsOf(client, { text: finding, values: [] }))
          forgotten += (await doneBy(client, { text: removing, values: [resource] })).affectedRows
        if (forgotten === before) return forgotten
      }
    },
  }
}
