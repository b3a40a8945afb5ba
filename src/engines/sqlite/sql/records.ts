/**
 * The table of records, and the statements on it. Both are made when the first record is asked for, so that a program
 * which only locks has neither.
 *
 * A record outlives a restart of the machine, which its expiry by the monotonic clock does not. So the expiry is stored
 * by the wall clock as well, and that one counts for what was written in another run of the machine (`epoch`).
 */
import {
  type BroughtDatabase,
  command,
  query,
  type SqliteCommand,
  type SqliteQuery,
  schemaOf,
} from '../../../clients/sqlite/driver.ts'
import { TAKE_TOKENS } from './statements.ts'

const tableIn = (schema: string): string => `
  create table if not exists ${schema}.holdfast_record (
    key text primary key,
    removed integer not null,    -- 1: a removal that is remembered
    value blob,                  -- drivers store no bytes as null
    version integer not null,
    mark integer not null,
    epoch integer not null,      -- the run of the machine that expires_at belongs to
    expires_at real,             -- by the host's monotonic clock; null: never
    expires_wall_ms real         -- the same by the wall clock
  ) strict;

  create index if not exists ${schema}.holdfast_record_expiry on holdfast_record (expires_wall_ms)
    where expires_wall_ms is not null;
`

export interface SqliteRecordRow {
  readonly key: string
  readonly removed: number
  readonly version: number
  readonly mark: number
  readonly epoch: number
  readonly expires_at: number | null
  readonly expires_wall_ms: number | null
}

export interface RecordStatements {
  /** (how many, epoch): see statements.ts. */
  readonly takeTokens: SqliteQuery<[number, number], { token: number }>
  readonly find: SqliteQuery<[string], SqliteRecordRow & { readonly value: Uint8Array | null }>
  /** (key, removed, value, version, mark, epoch, expiry, expiry by the wall clock) */
  readonly put: SqliteCommand<[string, number, Uint8Array | null, number, number, number, number | null, number | null]>
  readonly remove: SqliteCommand<[string]>
  /** (key, id, now) */
  readonly isHolding: SqliteQuery<[string, string, number], { found: number }>
  /** (key, now) */
  readonly hasEntries: SqliteQuery<[string, number], { found: number }>
  /** (wall clock, how many): the first that have expired by it. */
  readonly overdue: SqliteQuery<[number, number], SqliteRecordRow>
  /** (from, except, how many): a page of a listing. */
  readonly page: SqliteQuery<[string, string, number], SqliteRecordRow & { readonly bytes: number }>
}

const ROW = 'key, removed, version, mark, epoch, expires_at, expires_wall_ms'

/** Inside a transaction: the table may have to be made. */
export function prepareRecords(database: BroughtDatabase): RecordStatements {
  const schema = schemaOf(database)
  const found = database.prepare(`select 1 from ${schema}.sqlite_schema where name = 'holdfast_record'`).all()
  if (found.length === 0) database.exec(tableIn(schema))
  return {
    takeTokens: query(database, TAKE_TOKENS),
    find: query(database, `select ${ROW}, value from holdfast_record where key = ?`),
    put: command(
      database,
      `insert or replace into holdfast_record (key, removed, value, version, mark, epoch, expires_at, expires_wall_ms)
      values (?, ?, ?, ?, ?, ?, ?, ?)`,
    ),
    remove: command(database, 'delete from holdfast_record where key = ?'),
    isHolding: query(
      database,
      'select 1 as found from holdfast_entry where key = ? and id = ? and state = 1 and expires_at > ?',
    ),
    hasEntries: query(
      database,
      'select 1 as found from holdfast_entry where key = ? and state < 2 and expires_at > ? limit 1',
    ),
    overdue: query(
      database,
      `select ${ROW} from holdfast_record where expires_wall_ms <= ? order by expires_wall_ms limit ?`,
    ),
    page: query(
      database,
      `select ${ROW}, coalesce(length(value), 0) as bytes from holdfast_record
      where key >= ? and key <> ? and removed = 0 order by key limit ?`,
    ),
  }
}
