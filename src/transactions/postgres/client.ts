/**
 * The caller's own client, by the few methods we call: a Client or PoolClient of pg, or the `sql` that postgres.js
 * gives to a transaction. Errors of the client pass through unchanged: it is the caller's connection, and the caller's
 * transaction.
 *
 * A failed statement aborts a transaction of PostgreSQL. So whatever may fail runs behind a savepoint, and is undone to
 * it; the locks it took are given back with it.
 */
import { isPostgresJs } from '../../clients/postgres/detect.ts'
import { SQLSTATE, sqlStateOf } from '../../clients/postgres/errors.ts'
import { hasMethods } from '../../clients/shared/drivers.ts'
import type { Row } from '../optimistic-row.ts'
import { notInTransaction } from '../row-lock.ts'
import { type Dialect, quoted } from '../statements.ts'

/** pg: Client, PoolClient; Pool too where no transaction is needed. */
export interface PgTransactionClient {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{ readonly rows: readonly unknown[]; readonly rowCount: number | null }>
}

/** postgres.js. */
export interface PostgresJsSql {
  unsafe(
    text: string,
    values?: never[],
    options?: { readonly prepare?: boolean },
  ): PromiseLike<readonly unknown[] & { readonly count: number }>
}

/** A client of yours that a transaction can be open on: of pg, or of postgres.js. */
export type PostgresTransactionClient = PgTransactionClient | PostgresJsSql

export interface PostgresAnswer {
  readonly rows: readonly Row[]
  readonly count: number
}

/**
 * `fixed`: a text that is always the same. postgres.js keeps such a statement prepared, if it may; else it asks the
 * server for the types of its values first, every time.
 */
export type AskPostgres = (text: string, values?: readonly unknown[], fixed?: 'fixed') => Promise<PostgresAnswer>

/** The server keeps 63 bytes of a name and forgets the rest: another table may be called so. */
const LONGEST_NAME_BYTES = 63

export const dialect: Dialect = {
  quote: (name) => quoted(name, '"', LONGEST_NAME_BYTES),
  parameter: (position) => `$${position}`,
  same,
  takes: (value) => typeof value !== 'function' && typeof value !== 'symbol',
}

/**
 * A text is compared letter by letter: to a collation that is not deterministic, and to `citext`, 'a' is 'A'. The CASE
 * gives the parameter the type of the column, so that both become text in the same way.
 */
function same(column: string, value: unknown, parameter: () => string): string {
  if (typeof value !== 'string') return `${column} IS NOT DISTINCT FROM ${parameter()}`
  const typed = `CASE WHEN TRUE THEN ${parameter()} ELSE ${column} END`
  return `(${column})::text COLLATE "C" = (${typed})::text COLLATE "C"`
}

export function askerOf(client: PostgresTransactionClient): AskPostgres {
  if (isPostgresJs(client)) {
    return async (text, values = [], fixed) => {
      const rows = await client.unsafe(text, [...values] as never[], { prepare: fixed === 'fixed' })
      return { rows: rows as readonly Row[], count: rows.count }
    }
  }
  if (!hasMethods(client, 'query'))
    throw new TypeError('client must be a Client or PoolClient of pg, or the sql of postgres.js')
  return async (text, values = []) => {
    const { rows, rowCount } = await client.query(text, [...values])
    return { rows: rows as readonly Row[], count: rowCount ?? 0 }
  }
}

/**
 * How to learn from the client itself whether it is in a transaction: newer versions of pg say it, and postgres.js by
 * the methods it has there. Undefined: only the server can tell.
 */
export function insideTransaction(client: PostgresTransactionClient): (() => boolean) | undefined {
  if (isPostgresJs(client)) return () => hasMethods(client, 'savepoint')
  if (!hasMethods(client, 'getTransactionStatus')) return undefined
  const telling = client as unknown as { getTransactionStatus(): string | null }
  return () => telling.getTransactionStatus() !== 'I'
}

/**
 * For clients that do not tell, and for pools: the server is asked, which is one round trip. This lock hinders no other
 * transaction, and is refused outside of one. `what` and `how` are for the refusal.
 */
export async function refuseOutsideTransaction(
  client: PostgresTransactionClient,
  table: string,
  what: string,
  how: string,
): Promise<void> {
  await askerOf(client)(`LOCK TABLE ${table} IN ACCESS SHARE MODE`).catch((error: unknown) => {
    throw sqlStateOf(error) === SQLSTATE.noActiveTransaction ? notInTransaction(what, how) : error
  })
}

/**
 * Do `work` in the caller's open transaction, so that its failure leaves the transaction as it was. `what` names the
 * caller's call in the refusal.
 */
export async function behindSavepoint<Result>(
  client: PostgresTransactionClient,
  what: string,
  work: (ask: AskPostgres) => Promise<Result>,
): Promise<Result> {
  if (!isPostgresJs(client)) return await behindOwnSavepoint(askerOf(client), what, work)
  // Its own savepoints only: once a statement has failed outside of them, postgres.js rolls the transaction back,
  // whatever we do.
  if (!hasMethods(client, 'savepoint'))
    throw notInTransaction(what, 'Use the sql that sql.begin() gives to its function.')
  const { savepoint } = client as unknown as {
    savepoint(run: (sql: PostgresJsSql) => Promise<Result>): Promise<Result>
  }
  return await savepoint((sql) => work(askerOf(sql)))
}

async function behindOwnSavepoint<Result>(
  ask: AskPostgres,
  what: string,
  work: (ask: AskPostgres) => Promise<Result>,
): Promise<Result> {
  try {
    await ask('SAVEPOINT holdfast')
  } catch (error) {
    if (sqlStateOf(error) !== SQLSTATE.noActiveTransaction) throw error
    throw notInTransaction(what, "Send 'BEGIN' on this client first.")
  }
  let result: Result
  try {
    result = await work(ask)
  } catch (error) {
    // What failed first is what is told: a connection that is gone cannot go back either.
    await goBack(ask).catch(() => undefined)
    throw error
  }
  await ask('RELEASE SAVEPOINT holdfast')
  return result
}

async function goBack(ask: AskPostgres): Promise<void> {
  await ask('ROLLBACK TO SAVEPOINT holdfast')
  await ask('RELEASE SAVEPOINT holdfast')
}
