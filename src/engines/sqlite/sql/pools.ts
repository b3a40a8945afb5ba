/**
 * The tables of pools, and the statements on them. Both are made when the first pool is asked for.
 *
 * Holds outlive a restart of the machine, which times by the monotonic clock do not. So each is stored by the wall
 * clock as well. A pool whose times are of another run of the machine (`epoch`) is set by that one, once.
 */
import {
  type BroughtDatabase,
  command,
  query,
  type SqliteCommand,
  type SqliteQuery,
  schemaOf,
} from '../../../clients/sqlite/driver.ts'

const tablesIn = (schema: string): string => `
  create table if not exists ${schema}.holdfast_pool (
    key text primary key,
    epoch integer not null       -- the run of the machine that the times of its rows belong to
  ) strict, without rowid;

  create table if not exists ${schema}.holdfast_pool_item (
    key text not null,
    item text not null,
    stock integer not null,
    sold integer not null,
    held integer not null,       -- what has lapsed and was not taken back included
    wanted_by text not null,     -- the id of the first in line; '': none
    wanted_until real not null,
    primary key (key, item)
  ) strict, without rowid;

  create table if not exists ${schema}.holdfast_pool_hold (
    key text not null,
    id text not null,
    state integer not null,      -- 0 held, 1 sold, 2 a change of the stock
    lines text not null,         -- as in shared/pool-codec.ts
    at real not null,            -- when it lapses, or is forgotten
    wall_ms real not null,       -- the same by the wall clock
    primary key (key, id)
  ) strict, without rowid;

  create index if not exists ${schema}.holdfast_pool_lapses on holdfast_pool_hold (key, at) where state = 0;
  create index if not exists ${schema}.holdfast_pool_forgets on holdfast_pool_hold (key, at) where state > 0;
`

export interface PoolItemRow {
  readonly item: string
  readonly stock: number
  readonly sold: number
  readonly held: number
  readonly wanted_by: string
  readonly wanted_until: number
}

export interface PoolHoldRow {
  readonly id: string
  readonly state: number
  readonly lines: string
  readonly at: number
}

export interface PoolStatements {
  readonly pool: SqliteQuery<[string], { epoch: number }>
  /** (key, epoch) */
  readonly savePool: SqliteCommand<[string, number]>
  /** (now, wall clock, key): the times of another run of the machine. */
  readonly setTimes: SqliteCommand<[number, number, string]>
  readonly forgetWants: SqliteCommand<[string]>
  readonly item: SqliteQuery<[string, string], PoolItemRow>
  readonly items: SqliteQuery<[string], PoolItemRow>
  /** (key, item, stock, sold, held, wanted by, wanted until) */
  readonly saveItem: SqliteCommand<[string, string, number, number, number, string, number]>
  readonly hold: SqliteQuery<[string, string], PoolHoldRow>
  /** (key, id, state, lines, at, at by the wall clock) */
  readonly saveHold: SqliteCommand<[string, string, number, string, number, number]>
  readonly removeHold: SqliteCommand<[string, string]>
  /** (key, now, how many) */
  readonly lapsed: SqliteQuery<[string, number, number], PoolHoldRow>
  readonly forgettable: SqliteQuery<[string, number, number], PoolHoldRow>
  readonly nextLapse: SqliteQuery<[string], { at: number }>
  readonly heldCount: SqliteQuery<[string], { count: number }>
}

const ITEM = 'item, stock, sold, held, wanted_by, wanted_until'
const HOLD = 'id, state, lines, at'

/** Inside a transaction: the tables may have to be made. */
export function preparePools(database: BroughtDatabase): PoolStatements {
  const schema = schemaOf(database)
  const found = database.prepare(`select 1 from ${schema}.sqlite_schema where name = 'holdfast_pool_forgets'`).all()
  if (found.length === 0) database.exec(tablesIn(schema))
  const due = (states: string): string =>
    `select ${HOLD} from holdfast_pool_hold where key = ? and ${states} and at <= ? order by at limit ?`
  return {
    pool: query(database, 'select epoch from holdfast_pool where key = ?'),
    savePool: command(database, 'insert or replace into holdfast_pool (key, epoch) values (?, ?)'),
    setTimes: command(database, 'update holdfast_pool_hold set at = ? + (wall_ms - ?) where key = ?'),
    forgetWants: command(
      database,
      "update holdfast_pool_item set wanted_by = '', wanted_until = 0 where key = ? and wanted_by <> ''",
    ),
    item: query(database, `select ${ITEM} from holdfast_pool_item where key = ? and item = ?`),
    items: query(database, `select ${ITEM} from holdfast_pool_item where key = ?`),
    saveItem: command(
      database,
      `insert or replace into holdfast_pool_item (key, ${ITEM}) values (?, ?, ?, ?, ?, ?, ?)`,
    ),
    hold: query(database, `select ${HOLD} from holdfast_pool_hold where key = ? and id = ?`),
    saveHold: command(
      database,
      `insert or replace into holdfast_pool_hold (key, ${HOLD}, wall_ms) values (?, ?, ?, ?, ?, ?)`,
    ),
    removeHold: command(database, 'delete from holdfast_pool_hold where key = ? and id = ?'),
    lapsed: query(database, due('state = 0')),
    forgettable: query(database, due('state > 0')),
    nextLapse: query(database, 'select at from holdfast_pool_hold where key = ? and state = 0 order by at limit 1'),
    heldCount: query(database, 'select count(*) as count from holdfast_pool_hold where key = ? and state = 0'),
  }
}
