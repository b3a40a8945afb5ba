/**
 * Holds of rows in the caller's transaction, on SQLite. What they mean is in ../row-holds.ts. They answer at once, as
 * the driver does: nothing else runs on the connection in between.
 */
import { type BroughtDatabase, isInTransaction } from '../../clients/sqlite/driver.ts'
import type {
  CancelRowResult,
  ConfirmRowOptions,
  ConfirmRowResult,
  ExtendRowOptions,
  ExtendRowResult,
  ReserveRowOptions,
  ReserveRowResult,
  RowHoldOptions,
  RowNotHad,
} from '../row-hold-options.ts'
import { ROW_HOLDS_TABLE, RowHolds, type RowHoldsDialect, type Steps } from '../row-holds.ts'
import { notInTransaction } from '../row-lock.ts'
import { quoted, select, type Table, tableName } from '../statements.ts'

type SqliteValue = Parameters<ReturnType<BroughtDatabase['prepare']>['all']>[number]

const dialect: RowHoldsDialect = {
  quote: (name) => quoted(name, '"', 255),
  parameter: () => '?',
  same: (column, _value, parameter) => `${column} IS ${parameter()}`,
  takes: (value) => value === null || value instanceof Uint8Array || /^(?:string|number)$/.test(typeof value),
  nowMs: "cast((julianday('now') - 2440587.5) * 86400000 as integer)",
  current: '',
}

/** Make the table of holds, if it is not there. */
export function setupRowHolds(
  database: BroughtDatabase,
  { holds = ROW_HOLDS_TABLE }: { readonly holds?: Table } = {},
): void {
  const [name = '', schema] = [...(typeof holds === 'string' ? holds.split('.') : holds)].reverse()
  const index = `${schema === undefined ? '' : `${dialect.quote(schema)}.`}${dialect.quote(`${name}_due`)}`
  database.exec(`create table if not exists ${tableName(dialect, holds)} (
    row_key text not null, id text not null, state text not null, quantity integer not null, due_at integer not null,
    row_of text not null, primary key (row_key, id)
  ) strict, without rowid;
  create index if not exists ${index} on ${dialect.quote(name)} (row_key, due_at)`)
}

/**
 * Hold units of a row of yours for a while, inside of your transaction, best one that was begun with `begin immediate`.
 * The column `left` is what is neither sold nor held; what has lapsed is given back to it first.
 */
export function reserveRow(database: BroughtDatabase, options: ReserveRowOptions): ReserveRowResult {
  return withRow(database, options, (holds, rows) => holds.reserve(rows, options.quantity, options.hold))
}

/** Let a hold live for longer, from now on; never shorter than it would anyway. */
export function extendRow(database: BroughtDatabase, options: ExtendRowOptions): ExtendRowResult {
  return withRow(database, options, (holds, rows) => holds.extend(rows, options.hold))
}

/** What is held is sold: it does not come back any more. Twice is once. */
export function confirmRow(database: BroughtDatabase, options: ConfirmRowOptions): ConfirmRowResult {
  return withRow(database, options, (holds, rows) => holds.confirm(rows, options))
}

/** Give back what is held. */
export function cancelRow(database: BroughtDatabase, options: RowHoldOptions): CancelRowResult {
  return withRow(database, options, (holds, rows) => holds.cancel(rows))
}

function withRow<Result>(
  database: BroughtDatabase,
  options: RowHoldOptions,
  work: (holds: RowHolds, rows: readonly Record<string, unknown>[]) => Steps<Result>,
): Result | RowNotHad {
  const { table, where, left } = options
  const holds = new RowHolds(dialect, options)
  if (!isInTransaction(database)) throw notInTransaction('reserveRow', "Call exec('begin immediate') first.")
  const ask = ({ text, values }: { text: string; values: readonly unknown[] }): readonly Record<string, unknown>[] => {
    const statement = database.prepare(text)
    if (text.startsWith('SELECT')) return statement.all(...(values as SqliteValue[])) as Record<string, unknown>[]
    statement.run(...(values as SqliteValue[]))
    return []
  }
  const rows = ask(select(dialect, { table, where, columns: [left] }))
  if (rows.length === 0) return { state: 'missing' }
  const steps = work(holds, rows)
  for (let step = steps.next(); ; ) {
    if (step.done === true) return step.value
    step = steps.next(ask(step.value))
  }
}
