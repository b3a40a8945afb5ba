/**
 * The caller's own connection of mysql2/promise, by the two methods we call. Errors of the client pass through
 * unchanged: it is the caller's connection, and the caller's transaction.
 *
 * Values go through `execute`, as parameters that the server binds. `query` would write them into the text itself,
 * where an object becomes SQL, and where a quote escapes in the mode NO_BACKSLASH_ESCAPES.
 */
import { hasMethods } from '../../clients/shared/drivers.ts'
import type { Row } from '../optimistic-row.ts'
import { type Dialect, quoted, type Statement } from '../statements.ts'

/** mysql2/promise: Connection, PoolConnection; Pool too where no transaction is needed. */
export interface MysqlTransactionClient {
  query(text: string): Promise<[unknown, unknown]>
  execute(text: string, values?: never[]): Promise<[unknown, unknown]>
}

/** What a server says after a statement without rows. */
export interface MysqlDone {
  readonly affectedRows: number
  readonly inTransaction: boolean
  /**
   * What the statement gave to `LAST_INSERT_ID(n)`; 0 if nothing. Undefined: a number that the client could not read
   * exactly.
   */
  readonly insertId: bigint | undefined
}

const LONGEST_NAME_BYTES = 64 * 4

export const dialect: Dialect = {
  quote: (name) => quoted(name, '`', LONGEST_NAME_BYTES),
  parameter: () => '?',
  same,
  takes: (value) =>
    value === null ||
    value instanceof Date ||
    value instanceof Uint8Array ||
    /^(?:string|number|bigint|boolean)$/.test(typeof value),
}

/**
 * `<=>` compares texts by the collation of the column, where 'a' is mostly 'A' and 'a '. So they are compared byte by
 * byte as well, in one character set. Numbers, times and bytes have none: their collation is `binary`.
 */
function same(column: string, value: unknown, parameter: () => string): string {
  const isEqual = `${column} <=> ${parameter()}`
  if (typeof value !== 'string') return isEqual
  const bytes = (text: string): string => `CAST(CONVERT(${text} USING utf8mb4) AS BINARY)`
  return `${isEqual} AND (COLLATION(${column}) = 'binary' OR ${bytes(column)} = ${bytes(parameter())})`
}

export async function rowsOf(client: MysqlTransactionClient, { text, values }: Statement): Promise<readonly Row[]> {
  const [rows] = await client.execute(text, [...values] as never[])
  return rows as readonly Row[]
}

export async function doneBy(client: MysqlTransactionClient, { text, values }: Statement): Promise<MysqlDone> {
  const [header] = values.length === 0 ? await client.query(text) : await client.execute(text, [...values] as never[])
  return read(header)
}

/**
 * The rows of the first result set of a procedure, and whether a transaction is open after it. `sql` has its values in
 * it.
 */
export async function resultOfCall(
  client: MysqlTransactionClient,
  sql: string,
): Promise<{ readonly rows: readonly object[]; readonly inTransaction: boolean }> {
  const [sets] = (await client.query(sql)) as [readonly unknown[], unknown]
  const rows = sets[0]
  return { rows: Array.isArray(rows) ? rows : [], inTransaction: read(sets.at(-1)).inTransaction }
}

/** Of SERVER_STATUS_flags_enum. Without autocommit, whatever is asked begins a transaction. */
const IN_TRANSACTION = 1
const AUTOCOMMIT = 2

function read(header: unknown): MysqlDone {
  const {
    affectedRows = 0,
    insertId = 0,
    serverStatus,
    info,
  } = header as {
    affectedRows?: number
    insertId?: number | string | bigint
    serverStatus?: number
    info?: string
  }
  if (serverStatus === undefined)
    throw new TypeError('client must be a Connection, PoolConnection or Pool of mysql2/promise')
  // A client may be set to count only rows whose values became others; "Rows matched" is what we mean.
  const matched = /Rows matched: (\d+)/.exec(info ?? '')?.[1]
  return {
    affectedRows: matched === undefined ? affectedRows : Number(matched),
    inTransaction: (serverStatus & IN_TRANSACTION) !== 0 || (serverStatus & AUTOCOMMIT) === 0,
    insertId: typeof insertId === 'number' && !Number.isSafeInteger(insertId) ? undefined : BigInt(insertId),
  }
}

export function checkClient(client: MysqlTransactionClient): void {
  if (hasMethods(client, 'query', 'execute')) return
  throw new TypeError('client must be a Connection, PoolConnection or Pool of mysql2/promise')
}
