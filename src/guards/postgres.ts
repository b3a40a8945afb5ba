/**
 * `holdfast/guards/postgres`: marks in a table beside what is protected, raised and compared inside of the caller's own
 * transaction, with pg or postgres.js.
 *
 *     const fence = guard()
 *     await fence.setup(pool)                                            once; or put `fence.schema` into a migration
 *
 *     await client.query('BEGIN')
 *     await fence.touch(client, lease)                                   before reading what will be written back
 *     await fence.write(client, lease)                                   before writing
 *     await client.query('COMMIT')
 *
 *     await fence.fenced(pool, lease, { text: 'UPDATE ...', values })    check and write as one statement: no round trip more
 *
 * The server itself refuses: a stale token makes the statement fail, and a failed statement aborts the transaction.
 * Even a caller who forgets to await the guard cannot commit. How a plain statement fails on purpose, with a number in
 * its message: by casting a text to a number that is none.
 */

import { advisoryKey } from '../clients/postgres/advisory-key.ts'
import { type Answer, askerOf, codeOf, dialect, type TransactionClient } from '../clients/postgres/transaction.ts'
import { ConflictError, StaleTokenError } from '../core/errors.ts'
import { notInTransaction } from '../transactions/row-lock.ts'
import { type Table, tableName } from '../transactions/statements.ts'
import { type Bearer, newer, type Visit, visit } from './bearer.ts'
import { FORMAT, type Mark, type Touch } from './marks.ts'

export type { PgClient, PostgresJsSql, TransactionClient } from '../clients/postgres/transaction.ts'
export type { Bearer } from './bearer.ts'
export type { Mark, Marks } from './marks.ts'

export interface PostgresGuardOptions {
  /** Where the marks are: `holdfast_fence` unless given. */
  readonly table?: Table
}

export interface FencedStatement {
  /** One `INSERT`, `UPDATE`, `DELETE` or `MERGE`, also with a `WITH` of its own. */
  readonly text: string
  readonly values?: readonly unknown[]
}

/**
 * `client` is yours: a Client or PoolClient of pg, or the `sql` of postgres.js. `resource` is the key of the lease
 * unless given.
 */
export interface PostgresGuard {
  /** What `setup` makes, for a migration. */
  readonly schema: string
  /** Make the table, if it is not there. */
  setup(client: TransactionClient): Promise<void>
  /**
   * Before reading, inside of your transaction. Rejects with `StaleTokenError` if a higher token has written; roll back
   * then.
   */
  touch(client: TransactionClient, bearer: Bearer, resource?: string): Promise<void>
  /**
   * Before writing, inside of your transaction. Rejects with `StaleTokenError` if a higher token has read or written;
   * roll back then.
   */
  write(client: TransactionClient, bearer: Bearer, resource?: string): Promise<void>
  /**
   * Write and check as one statement, inside of a transaction or without one. Rejects with `StaleTokenError`, and then
   * nothing is written. A statement that somebody else's commit has overtaken, so that it may have read what is no
   * more, is undone and sent again; inside of a transaction that cannot be, and it rejects with `ConflictError`: roll
   * back and begin again.
   */
  fenced(client: TransactionClient, bearer: Bearer, statement: FencedStatement, resource?: string): Promise<Answer>
  /** The marks of all resources whose name begins so, by name. */
  list(client: TransactionClient, prefix?: string): Promise<readonly Mark[]>
  /**
   * Forget a resource, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then.
   */
  reset(client: TransactionClient, resource: string, seen: bigint): Promise<boolean>
}

/** invalid_text_representation, and what we have put there. */
const CAST = '22P02'
const REFUSAL = /holdfast (stale|newer|overtaken) (\d+)/
/** in_failed_sql_transaction */
const FAILED_TRANSACTION = '25P02'
const MOST_TRIES = 10

export function guard(options: PostgresGuardOptions = {}): PostgresGuard {
  const table = tableName(dialect, options.table ?? 'holdfast_fence')
  const schema = `CREATE TABLE IF NOT EXISTS ${table} (
    resource text COLLATE "C" PRIMARY KEY, format int NOT NULL, seen bigint NOT NULL, written bigint NOT NULL
  )`
  // Of several who make a table at once, all but one can fail, in spite of IF NOT EXISTS.
  const settingUp = `DO $holdfast$ BEGIN
    PERFORM pg_advisory_xact_lock(${advisoryKey(`the guard of ${table}`)});
    ${schema};
  END $holdfast$`

  /**
   * One statement: a row that is locked until the transaction ends, marks that only rise, or a failure. Parameters
   * begin after `given`; `overtaken` is a further case of failure.
   */
  const raise = (touch: Touch, given: number, overtaken = ''): string => {
    const [resource, token] = [`$${given + 1}::text`, `$${given + 2}::bigint`]
    const least = touch === 'write' ? 'fence.seen' : 'fence.written'
    return `INSERT INTO ${table} AS fence (resource, format, seen, written)
      VALUES (${resource}, ${FORMAT}, ${token}, ${touch === 'write' ? token : '0'})
      ON CONFLICT (resource) DO UPDATE SET
        seen = CASE
          WHEN fence.format > ${FORMAT} THEN ('holdfast newer ' || fence.format)::bigint
          WHEN excluded.seen < ${least} THEN ('holdfast stale ' || ${least})::bigint${overtaken}
          ELSE greatest(fence.seen, excluded.seen) END,
        written = greatest(fence.written, excluded.written)`
  }
  const raising = { read: raise('read', 0), write: raise('write', 0) }
  /**
   * A statement reads as of its begin, but for the rows it changes itself. If it had to wait for the marks, what it has
   * read may be from before the commit it waited for; then the marks that it *sees*, as of its begin, are another
   * version of the row than the one it has locked.
   */
  const raiseWith = (given: number): string =>
    raise(
      'write',
      given,
      `
          WHEN fence.xmin IS DISTINCT FROM (SELECT known.xmin FROM ${table} AS known WHERE known.resource = $${given + 1}::text)
            THEN ('holdfast overtaken ' || fence.seen)::bigint`,
    )

  async function come(client: TransactionClient, touch: Touch, bearer: Bearer, name?: string): Promise<void> {
    const coming = visit(bearer, touch, name)
    // Sent before this function first waits, so that nothing that the caller sends next can overtake it.
    const tells = tellsTransaction(client)
    if (!tells) await demandTransaction(client, table)
    await answered(coming, askerOf(client)(raising[touch], [coming.resource, String(coming.token)], 'fixed'))
    if (tells && !isInside(client)) throw notInTransaction('a guard', OPEN_ONE)
  }

  return {
    schema,
    setup: async (client) => void (await askerOf(client)(settingUp)),
    touch: (client, bearer, resource) => come(client, 'read', bearer, resource),
    write: (client, bearer, resource) => come(client, 'write', bearer, resource),
    fenced: async (client, bearer, { text, values = [] }, resource) => {
      const coming = visit(bearer, 'write', resource)
      const [, recursive = '', others] = /^\s*WITH\s+(RECURSIVE\s+)?(.*)$/is.exec(text) ?? []
      const whole = `WITH ${recursive}holdfast_fencing AS (${raiseWith(values.length)})${others === undefined ? ` ${text}` : `, ${others}`}`
      return await repeated(coming, () => askerOf(client)(whole, [...values, coming.resource, String(coming.token)]))
    },
    list: async (client, prefix = '') => {
      const listing = `SELECT resource, seen::text, written::text FROM ${table} WHERE starts_with(resource, $1) ORDER BY resource`
      const { rows } = await askerOf(client)(listing, [prefix])
      return (rows as unknown as readonly Record<'resource' | 'seen' | 'written', string>[]).map(
        ({ resource, seen, written }) => ({
          resource,
          seen: BigInt(seen),
          written: BigInt(written),
        }),
      )
    },
    reset: async (client, resource, seen) => {
      const { count } = await askerOf(client)(`DELETE FROM ${table} WHERE resource = $1 AND seen = $2::bigint`, [
        resource,
        String(seen),
      ])
      return count > 0
    },
  }
}

const OPEN_ONE = "Send 'BEGIN' on this client first, use the sql that sql.begin() gives, or fenced()."

interface Telling {
  getTransactionStatus(): string | null
}

/**
 * Whether the client says by itself if it is in a transaction: newer versions of pg do, and postgres.js by the methods
 * it has there.
 */
function tellsTransaction(client: TransactionClient): boolean {
  return 'unsafe' in client || typeof (client as Partial<Telling>).getTransactionStatus === 'function'
}

/**
 * Asked when the guard's statement is answered, because a BEGIN that was sent right before is answered only then, too.
 */
function isInside(client: TransactionClient): boolean {
  if ('unsafe' in client) return 'savepoint' in client
  return (client as unknown as Telling).getTransactionStatus() !== 'I'
}

/**
 * For other clients, and for pools: the server is asked, which is one round trip more. This lock hinders nobody, and is
 * refused outside of a transaction.
 */
async function demandTransaction(client: TransactionClient, table: string): Promise<void> {
  await askerOf(client)(`LOCK TABLE ${table} IN ACCESS SHARE MODE`).catch((error: unknown) => {
    // no_active_sql_transaction
    throw codeOf(error) === '25P01' ? notInTransaction('a guard', OPEN_ONE) : error
  })
}

/** Until it is not overtaken. Inside of a transaction, the first time has ended that. */
async function repeated(coming: Visit, ask: () => Promise<Answer>): Promise<Answer> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await answered(coming, ask())
    } catch (error) {
      const ended = tries > 1 && codeOf(error) === FAILED_TRANSACTION
      if (!ended && !(error instanceof Overtaken)) throw error
      if (!ended && tries < MOST_TRIES) continue
      const why = 'somebody else committed while the statement was under way'
      throw new ConflictError(
        `'${coming.resource}'`,
        ended ? 1 : tries,
        ended ? `${why}: roll back and begin the transaction again` : why,
      )
    }
  }
}

class Overtaken extends Error {}

/** The server's refusal, in our words. Whatever else it says passes unchanged. */
async function answered({ resource, token }: Visit, asked: Promise<Answer>): Promise<Answer> {
  try {
    return await asked
  } catch (error) {
    const [, why, number = ''] = (codeOf(error) === CAST && REFUSAL.exec((error as Error).message)) || []
    if (why === 'stale') throw new StaleTokenError(resource, token, BigInt(number))
    if (why === 'newer') throw newer('postgres', resource)
    if (why === 'overtaken') throw new Overtaken(resource)
    throw error
  }
}
