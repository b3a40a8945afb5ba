/**
 * What is in the file.
 *
 * - `holdfast_file`: one row. The format, the machine's run (`boot`, `epoch`), and the token counter that all lines of
 *   the file share.
 * - `holdfast_entry`: the entries of all lines, kept together by key. Most lines have one entry, held; for such a line
 *   this one row and its place among the expiries are all that is written.
 * - `holdfast_line`: totals of a line of two entries or more, so that no verb has to walk it. A line of one entry has
 *   no row here: the entry says it all.
 * - `holdfast_client`: engine objects that have entered a line, each with the process it lives in.
 *
 * All names begin with `holdfast_`, because the file may be a database that the user brought. Times are milliseconds of
 * the host's monotonic clock (clients/sqlite/host.ts).
 */
import { type BroughtDatabase, rollback, schemaOf } from '../../../clients/sqlite/driver.ts'
import { refusal } from '../../../clients/sqlite/errors.ts'

/** Raised by any change that an older Holdfast would misread. */
export const FORMAT = 1

/**
 * States of an entry. A removed one was evicted, and is remembered until it would have expired, so that its owner hears
 * the reason.
 */
export const WAITING = 0
export const HELD = 1
export const REMOVED = 2

/** `schema`: what SQL calls the file. */
const tablesIn = (schema: string): string => `
  create table if not exists ${schema}.holdfast_file (
    one integer primary key check (one = 1),
    format integer not null,
    boot text,                   -- null where the machine does not tell
    epoch integer not null,      -- which run of the machine the entries belong to; counts up
    token integer not null       -- the last one given out
  ) strict;

  create table if not exists ${schema}.holdfast_entry (
    key text not null,
    id text not null,
    token integer not null,      -- also the order of the line
    state integer not null,      -- 0 waiting, 1 held, 2 removed
    alone integer not null,      -- 1: the only one of its line ever since it entered
    weight integer not null,
    "limit" integer not null,
    ttl_ms real not null,
    expires_at real not null,
    entered_at real not null,
    held_at real,                -- null while it waits
    evicted integer not null,    -- 1: may not renew any more
    news integer not null,       -- 1: its state was changed by another client, and it has not renewed since
    client integer not null,     -- 0: of no engine, since it is to outlive its process
    holder text not null,
    primary key (key, id)
  ) strict, without rowid;

  create index if not exists ${schema}.holdfast_expiry on holdfast_entry (expires_at);
  -- The order of a line, only for lines in which order matters.
  create index if not exists ${schema}.holdfast_order on holdfast_entry (key, state, token) where alone = 0;
  create index if not exists ${schema}.holdfast_news on holdfast_entry (client) where news = 1;

  create table if not exists ${schema}.holdfast_line (
    key text primary key,
    held integer not null,       -- how many hold
    weight integer not null,     -- what they weigh
    "limit" integer not null,    -- the smallest of their limits
    at_limit integer not null,   -- how many of them have it
    waiting integer not null     -- how many wait
  ) strict, without rowid;

  create table if not exists ${schema}.holdfast_client (
    client integer primary key autoincrement,
    realm text,                  -- see process.ts; null where its death cannot be judged
    pid integer,
    born text,
    groups text not null,        -- a JSON array of process groups that have to be dead as well
    since real not null
  ) strict;
`

interface FileRow {
  readonly format: number
  readonly boot: string | null
  readonly epoch: number
}

/** What the opener knows of the machine. */
export interface SqliteHost {
  readonly boot: string | null
  readonly now: number
}

/**
 * Make or check the tables, and answer the epoch that our entries belong to. Throws "busy" when another process
 * does the same: try again.
 */
export function initialise(database: BroughtDatabase, file: string, host: SqliteHost): number {
  const found = readFile(database)
  if (found !== undefined && found.format === FORMAT && !isRestarted(database, found, host)) return found.epoch
  database.exec('begin immediate')
  try {
    const epoch = setUp(database, file, host)
    database.exec('commit')
    return epoch
  } catch (error) {
    rollback(database)
    throw error
  }
}

function readFile(database: BroughtDatabase): FileRow | undefined {
  const master = `${schemaOf(database)}.sqlite_schema`
  const tables = database.prepare(`select 1 from ${master} where type = 'table' and name = 'holdfast_file'`).all()
  if (tables.length === 0) return undefined
  const [row] = database.prepare('select * from holdfast_file').all() as FileRow[]
  return row
}

function setUp(database: BroughtDatabase, file: string, host: SqliteHost): number {
  const found = readFile(database)
  if (found !== undefined && found.format > FORMAT) {
    throw refusal(
      `'${file}' was written by a newer Holdfast (format ${found.format}; this one knows ${FORMAT}): update Holdfast here, or name another file`,
    )
  }
  if (found === undefined) {
    database.exec(tablesIn(schemaOf(database)))
    database
      .prepare('insert into holdfast_file (one, format, boot, epoch, token) values (1, ?, ?, 1, 0)')
      .run(FORMAT, host.boot)
    return 1
  }
  if (!isRestarted(database, found, host)) return found.epoch
  // The processes of the old run are gone, and so is what they held. The counter goes on.
  database.exec('delete from holdfast_entry; delete from holdfast_line; delete from holdfast_client')
  database.prepare('update holdfast_file set boot = ?, epoch = epoch + 1').run(host.boot)
  return found.epoch + 1
}

/** So far in the future that no process can have written it while we were looking. */
const FUTURE_MS = 60_000

/**
 * Another boot id says so. Where one of the two is unknown: an entry that was renewed in the future, which only an
 * earlier run can have written.
 */
function isRestarted(database: BroughtDatabase, found: FileRow, host: SqliteHost): boolean {
  if (found.boot !== null && host.boot !== null) return found.boot !== host.boot
  const future = 'select 1 from holdfast_entry where expires_at - ttl_ms > ? limit 1'
  return database.prepare(future).all(host.now + FUTURE_MS).length > 0
}
