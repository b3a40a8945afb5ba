/**
 * `holdfast/guards/sqlite`: marks in a table of the database that is protected, raised and compared inside of the
 * caller's own transaction. One statement more, and no waiting that the transaction would not have had, because SQLite
 * has one writer at a time.
 *
 *     const guarded = guard()
 *     guarded.setup(database)                  once; or put `guarded.schema` into a migration
 *
 *     database.exec('begin immediate')
 *     guarded.read(database, lease)             before reading what will be written back
 *     guarded.write(database, lease)           before writing
 *     database.exec('commit')
 *
 * A `StaleTokenError` out of either means: roll back.
 */
import { type BroughtDatabase, isInTransaction } from '../clients/sqlite/driver.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import { fixedTable, quoted, type Table } from '../transactions/statements.ts'
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

export type { BroughtDatabase } from '../clients/sqlite/driver.ts'
export type { LeaseLike } from './lease-like.ts'
export type { ForgetAfter, Mark, Marks } from './marks.ts'

/** Options of a guard on SQLite. */
export interface SqliteGuardOptions {
  /**
   * Where the marks are: `main.holdfast_marks` unless given. Without a schema it is in `main`, also where a connection
   * has a temporary table of that name: all who write one resource have to find the same marks.
   */
  readonly table?: Table
  /**
   * How long to keep the mark of a resource that no token uses, by the clock of this host: for ever unless given. An
   * older holder is let in again after that. `forget()` removes the marks whose time is over.
   */
  readonly forget?: ForgetAfter
}

const OPTIONS: OptionNames<SqliteGuardOptions> = { table: true, forget: true }

/**
 * `database` is yours: of node:sqlite, @photostructure/sqlite or better-sqlite3. `resource` is the key of the lease
 * unless given.
 */
export interface SqliteGuard {
  /** What `setup` does, for a migration. */
  readonly schema: string
  /** Make the table, if it is not there. */
  setup(database: BroughtDatabase): void
  /** Before reading. Throws `StaleTokenError` if a higher token has written. */
  read(database: BroughtDatabase, lease: LeaseLike, resource?: string): void
  /** Before writing. Throws `StaleTokenError` if a higher token has read or written. */
  write(database: BroughtDatabase, lease: LeaseLike, resource?: string): void
  /** The marks of all resources whose name begins so, by name. */
  list(database: BroughtDatabase, prefix?: string): readonly Mark[]
  /**
   * Forget a resource, if `seen` still is its mark. Only when no old holder can be left: all tokens are welcome then.
   */
  reset(database: BroughtDatabase, resource: string, seen: bigint): boolean
  /** Remove the marks whose time is over, now and then: see the option `forget`. Answers how many. */
  forget(database: BroughtDatabase): number
}

interface StoredMarksRow {
  readonly seen: string
  readonly written: string
}

const dialect = {
  quote: (name: string): string => quoted(name, '"', 255),
}

/** Numbers go in and out as text: some are beyond what a double holds, and drivers disagree about those. */
const COLUMNS = 'cast(seen as text) as seen, cast(written as text) as written'

/** Milliseconds since 1970, in words that every version has. */
const NOW_MS = "cast((julianday('now') - 2440587.5) * 86400000 as integer)"

/** A guard on SQLite: it refuses stale tokens inside of your transaction. */
export function guard(options: SqliteGuardOptions = {}): SqliteGuard {
  checkOptions('guard()', options, OPTIONS)
  const table = fixedTable(dialect, options.table ?? MARKS_TABLE, 'main')
  const schema = `create table if not exists ${table} (
    resource text primary key, format integer not null, seen integer not null, written integer not null,
    kept_until integer not null default ${FOR_EVER}
  ) strict, without rowid`
  const forgetMs = parseForget(options.forget)
  const raise = `
    insert into ${table} (resource, format, seen, written, kept_until)
      values (?, ${FORMAT}, ?, ?, ${forgetMs === undefined ? FOR_EVER : `${NOW_MS} + ${forgetMs}`})
    on conflict (resource) do update set
      kept_until = max(kept_until, excluded.kept_until),
      written = case when excluded.seen >= seen then max(written, excluded.written) else written end,
      seen = max(seen, excluded.seen)
    where format = ${FORMAT}
    returning ${COLUMNS}`
  const prepared = new WeakMap<BroughtDatabase, ReturnType<BroughtDatabase['prepare']>>()

  function checkMarks(database: BroughtDatabase, access: Access, lease: LeaseLike, name?: string): void {
    const { resource, token } = resourceToken(lease, access, name)
    checkTransaction(database)
    let statement = prepared.get(database)
    if (statement === undefined) {
      statement = database.prepare(raise)
      prepared.set(database, statement)
    }
    const [row] = statement.all(resource, String(token), access === 'write' ? String(token) : '0') as StoredMarksRow[]
    if (row === undefined) throw newerFormat('sqlite', resource)
    checkToken(resource, token, access, { seen: BigInt(row.seen), written: BigInt(row.written) })
  }

  return {
    schema,
    setup: (database) => void database.exec(schema),
    read: (database, lease, resource) => checkMarks(database, 'read', lease, resource),
    write: (database, lease, resource) => checkMarks(database, 'write', lease, resource),
    list: (database, prefix = '') => {
      const listing = `select resource, ${COLUMNS} from ${table} where substr(resource, 1, length(?)) = ? order by resource`
      const rows = database.prepare(listing).all(prefix, prefix) as (StoredMarksRow & { readonly resource: string })[]
      return rows.map(({ resource, seen, written }) => ({ resource, seen: BigInt(seen), written: BigInt(written) }))
    },
    reset: (database, resource, seen) => {
      const { changes } = database
        .prepare(`delete from ${table} where resource = ? and seen = ?`)
        .run(resource, String(seen))
      return Number(changes) > 0
    },
    forget: (database) => {
      const { changes } = database
        .prepare(`delete from ${table} where format = ${FORMAT} and kept_until < ${NOW_MS}`)
        .run()
      return Number(changes)
    },
  }
}

/**
 * On its own, the comparison would be over before the write begins, which is the very gap that a guard is there to
 * close.
 */
function checkTransaction(database: BroughtDatabase): void {
  if (isInTransaction(database)) return
  throw new TypeError(
    "a guard works inside of your transaction, and there is none: exec('begin immediate') first, and write before you commit",
  )
}
