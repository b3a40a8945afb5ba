/**
 * Optimistic changes of one row of a table, on whichever database: `UPDATE ... WHERE version = n`, or the columns that
 * the decision was based on, compared with what was read.
 *
 * A transaction at REPEATABLE READ (the default of MySQL and MariaDB) sees the same old row however often it reads:
 * trying again there is hopeless, and is ended with an error that says so.
 */
import { isDeepStrictEqual } from 'node:util'
import { ConflictError } from '../core/errors.ts'
import { type OptimisticResult, type RetryOptions, tryOptimistically } from './optimistic.ts'
import { type Dialect, describeRow, type Statement, select, type Table, update, type Where } from './statements.ts'

/** A row, by the names of its columns. */
export type Row = Record<string, unknown>

/** Which row, and which of its columns is the version. */
export interface OptimisticRowOptions<Client, Columns extends object = Row> extends RetryOptions {
  /** A pool, or a connection. Best outside of a transaction, or at READ COMMITTED. */
  readonly client: Client
  readonly table: Table
  /** Which row: its key. */
  readonly where: Where
  /**
   * The column that counts changes: a whole number, raised by one with each. Every writer of the row has to raise it.
   */
  readonly version?: string
  /**
   * Without a version column: the columns whose values must still be as they were read. Whatever the decision depends
   * on, and only types that come back exactly: a JavaScript Date loses a server's microseconds, a float its last digit.
   */
  readonly compare?: readonly string[]
  /** The columns to set, or undefined to leave the row as it is. May be called several times: no side effects. */
  change(row: Columns): Partial<Columns> | undefined | Promise<Partial<Columns> | undefined>
}

/**
 * `missed`: the row is not as it was read. `missedInside`: so it is, inside of a transaction. `stale`: and the
 * transaction can do nothing about it.
 */
export type WriteOutcome = 'written' | 'missed' | 'missedInside' | 'stale'

/** What a database does for this. */
export interface RowAccess {
  readonly dialect: Dialect
  read(statement: Statement): Promise<readonly Row[]>
  write(statement: Statement): Promise<WriteOutcome>
}

export async function changeRow<Columns extends object>(
  rows: RowAccess,
  options: OptimisticRowOptions<unknown, Columns>,
): Promise<OptimisticResult<Columns>> {
  const { table, where, change } = options
  const target = describeRow(table, where)
  const condition = conditionOf(options.version, options.compare)
  let tries = 0
  let missedInside: Where | undefined

  const stale = (): ConflictError =>
    new ConflictError(
      target,
      tries,
      'others changed it, and this transaction goes on seeing it as it was: begin it again',
    )

  const result = await tryOptimistically<Columns, Where>({
    ...options,
    target,
    async read() {
      const [row, another] = await rows.read(select(rows.dialect, { table, where, limit: 2 }))
      if (another !== undefined) throw new RangeError(`${target} is more than one row: where must name a unique key`)
      if (row !== undefined && missedInside !== undefined && isDeepStrictEqual(condition.expected(row), missedInside))
        throw stale()
      return row as Columns | undefined
    },
    async change(before) {
      const changes = await change(before)
      return changes === undefined ? undefined : condition.raised(changes as Where, before as Row)
    },
    async write(changes, before) {
      tries += 1
      const expected = condition.expected(before as Row)
      const outcome = await rows.write(update(rows.dialect, table, changes, where, expected))
      if (outcome === 'stale') throw stale()
      missedInside = outcome === 'missedInside' ? expected : undefined
      return outcome === 'written'
    },
  })
  return result.state === 'written' ? { ...result, after: { ...result.before, ...result.after } } : result
}

/** What keeps a write from overwriting another. */
interface WriteCondition {
  /** What the row must still have. */
  expected(row: Row): Where
  /** What to set, the version included. */
  raised(changes: Where, row: Row): Where
}

function conditionOf(version: string | undefined, compare: readonly string[] | undefined): WriteCondition {
  if (version !== undefined && compare === undefined) {
    return {
      expected: (row) => ({ [version]: present(row, version) }),
      raised: (changes, row) => {
        if (version in changes)
          throw new TypeError(`change must leave the version column '${version}' alone: it is raised for you`)
        return { ...changes, [version]: next(present(row, version), version) }
      },
    }
  }
  if (version !== undefined || compare === undefined || compare.length === 0) {
    throw new TypeError(
      'give either version, a column, or compare, a list of columns: else every write would overwrite those of others',
    )
  }
  return {
    expected: (row) => Object.fromEntries(compare.map((column) => [column, present(row, column)])),
    raised: (changes) => {
      if (Object.keys(changes).length === 0)
        throw new TypeError('change names no column; answer undefined to leave the row as it is')
      return changes
    },
  }
}

function present(row: Row, column: string): unknown {
  if (column in row) return row[column]
  throw new TypeError(`the row has no column '${column}'; it has ${Object.keys(row).join(', ')}`)
}

/** One more, in the type the client reads it as: pg has a bigint as text. */
function next(version: unknown, column: string): number | bigint | string {
  if (typeof version === 'bigint') return version + 1n
  if (typeof version === 'number' && Number.isSafeInteger(version)) return version + 1
  if (typeof version === 'string' && /^-?\d+$/.test(version)) return String(BigInt(version) + 1n)
  throw new TypeError(
    `the version column '${column}' must be a whole number that the client reads exactly; got ${String(version)}`,
  )
}
