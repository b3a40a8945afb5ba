/**
 * Which SQLite, and the four methods we call on it.
 *
 * Three kinds of database have them alike: `node:sqlite`, `@photostructure/sqlite` (the same API as a prebuilt binary,
 * for Nodes that have no safe one of their own) and better-sqlite3 (only if the user brings it). So there is one
 * adapter, one file format, and no code that asks which it is.
 *
 * A SQLite before 3.51.3 is refused: two processes that write and checkpoint one WAL file can corrupt it
 * (https://sqlite.org/wal.html#walresetbug), and that is exactly our use. Nothing here is loaded before an engine is
 * opened by its URL, or the first lock of `sqlite()` is asked for.
 */
import { EngineError } from '../../core/errors.ts'
import { isAtLeast } from '../../core/version-number.ts'
import { installCommand, isMissing, loadBinding, loadPackage } from '../shared/packages.ts'

export type Value = string | number | Uint8Array | null

/**
 * What a statement of the three drivers has. `get` is missing on purpose: on a write it can report success though the
 * commit failed.
 */
interface DriverStatement {
  all(...values: Value[]): unknown[]
  run(...values: Value[]): { changes: number | bigint }
}

/**
 * A database you bring: `new Database(file)` of better-sqlite3 or `new DatabaseSync(file)` of node:sqlite, for Holdfast
 * alone, because its pragmas are set and its transactions are ours. It stays open when the engine is disposed.
 */
export interface BroughtDatabase {
  exec(sql: string): unknown
  prepare(sql: string): DriverStatement
}

export interface Database extends BroughtDatabase {
  close(): unknown
}

/** A statement that answers rows. It is stepped to its end, so that a failure on the way is thrown, never swallowed. */
export interface SqliteQuery<Values extends Value[], Row> {
  all(...values: Values): Row[]
}

/** A statement that answers how many rows it changed. */
export interface SqliteCommand<Values extends Value[]> {
  run(...values: Values): number
}

/** Prepared when it is first used: a process that takes one lock needs a few of them only. */
export function query<Values extends Value[], Row>(database: BroughtDatabase, sql: string): SqliteQuery<Values, Row> {
  let statement: DriverStatement | undefined
  return {
    all: (...values) => {
      statement ??= database.prepare(sql)
      return statement.all(...values) as Row[]
    },
  }
}

/** The same. */
export function command<Values extends Value[]>(database: BroughtDatabase, sql: string): SqliteCommand<Values> {
  let statement: DriverStatement | undefined
  return {
    run: (...values) => {
      statement ??= database.prepare(sql)
      return Number(statement.run(...values).changes)
    },
  }
}

interface Driver {
  readonly name: string
  open(file: string): Database
  /** As `open`, but `schemaOf` says what SQL calls the file, and `close` keeps no descriptor of it. */
  openAlone(file: string): Database
}

type DatabaseClass = new (file: string) => Database

const SAFE_VERSION = [3, 51, 3] as const
const PREBUILT = '@photostructure/sqlite'
/** The newest for Node 20; the next one is for Nodes that have their own. */
const INSTALLED = `${PREBUILT}@1`

/** Whether this version can be written and checkpointed by several processes without harm. */
export function isSafe(version: string): boolean {
  return isAtLeast(version, SAFE_VERSION)
}

export function versionOf(database: BroughtDatabase): string {
  const [row] = database.prepare('select sqlite_version() as version').all() as { version: string }[]
  return row?.version ?? 'unknown'
}

/** For a database that the user brought: only the user can choose a better one. */
export function refuseUnsafe(database: BroughtDatabase): void {
  const version = versionOf(database)
  if (isSafe(version)) return
  const why = `one before ${SAFE_VERSION.join('.')} can corrupt a file that several processes write`
  throw notUsable(`the database brings SQLite ${version}, and ${why}: bring a newer one, or none`)
}

let loaded: Promise<Driver> | undefined

/** The driver for this process; the choice is made once. */
export function loadDriver(): Promise<Driver> {
  loaded ??= chooseDriver()
  loaded.catch(() => {
    // Installing what is missing does not need a restart of a program that tries again.
    loaded = undefined
  })
  return loaded
}

async function chooseDriver(): Promise<Driver> {
  const own = builtIn()
  if (own !== undefined && isSafe(probe(own))) {
    const open = (file: string): Database => new own(file)
    return { name: 'node:sqlite', open, openAlone: open }
  }
  const prebuilt = await importPrebuilt()
  if ('DatabaseSync' in prebuilt && isSafe(probe(prebuilt.DatabaseSync))) {
    const { DatabaseSync } = prebuilt
    return {
      name: PREBUILT,
      open: (file) => new DatabaseSync(file),
      openAlone: (file) => new AttachedFile(new DatabaseSync(':memory:'), file),
    }
  }
  throw noDriver(own === undefined ? undefined : probe(own), prebuilt)
}

type Prebuilt = { readonly DatabaseSync: DatabaseClass } | { readonly error: Error }

/** One sentence: what this Node has, why that will not do, and what to type. */
function noDriver(own: string | undefined, prebuilt: Prebuilt): EngineError {
  const safe = SAFE_VERSION.join('.')
  const has =
    own === undefined
      ? 'has no SQLite of its own'
      : `brings SQLite ${own}, and one before ${safe} can corrupt a file that several processes write`
  const broken = 'error' in prebuilt && !isMissing(prebuilt.error, PREBUILT) ? prebuilt.error : undefined
  const why = broken === undefined ? '' : ` (what is installed of it fails: ${broken.message.split('\n')[0]})`
  const todo = `${installCommand(INSTALLED)}${why}, or use Node 22.23.3+, 24.15+ or 26`
  return notUsable(`Node ${process.versions.node} ${has}: ${todo}`)
}

function notUsable(message: string): EngineError {
  return new EngineError('sqlite', message, { outcome: 'not-applied', transient: false })
}

const ATTACHED = 'holdfast_attached'

/**
 * A file that is attached to a database in memory, and detached to close it.
 *
 * @photostructure/sqlite 1.2 leaves it to the garbage collector to finalise statements, and until then SQLite keeps a
 * closed connection with all its descriptors: a program that opens and closes runs out of them. Detaching a file closes
 * it at once, whatever statements are left.
 */
class AttachedFile implements Database {
  readonly #memory: Database

  constructor(memory: Database, file: string) {
    this.#memory = memory
    try {
      memory.exec(`attach '${file.replaceAll("'", "''")}' as ${ATTACHED}`)
    } catch (error) {
      memory.close()
      throw error
    }
  }

  exec(sql: string): unknown {
    return this.#memory.exec(sql)
  }

  prepare(sql: string): DriverStatement {
    return this.#memory.prepare(sql)
  }

  close(): void {
    try {
      this.#memory.exec(`detach ${ATTACHED}`)
    } finally {
      this.#memory.close()
    }
  }
}

/** What SQL calls the file, where a statement does not find it by the names of its tables. */
export function schemaOf(database: BroughtDatabase): string {
  return database instanceof AttachedFile ? ATTACHED : 'main'
}

function probe(DatabaseClass: DatabaseClass): string {
  const database = new DatabaseClass(':memory:')
  try {
    return versionOf(database)
  } finally {
    database.close()
  }
}

/** Node's own. It will be renamed from `DatabaseSync` to `Database`. */
function builtIn(): DatabaseClass | undefined {
  const module = quietly(() => process.getBuiltinModule('node:sqlite')) as
    | { Database?: DatabaseClass; DatabaseSync?: DatabaseClass }
    | undefined
  return module?.Database ?? module?.DatabaseSync
}

/**
 * Node 22 warns that its SQLite is experimental. We know; the user did not ask for it by name. Any other warning
 * passes.
 */
function quietly<Result>(load: () => Result): Result {
  const emitWarning = process.emitWarning
  process.emitWarning = ((warning: string | Error, ...rest: unknown[]) => {
    if (rest[0] === 'ExperimentalWarning' && String(warning).includes('SQLite')) return
    Reflect.apply(emitWarning, process, [warning, ...rest])
  }) as typeof process.emitWarning
  try {
    return load()
  } finally {
    process.emitWarning = emitWarning
  }
}

async function importPrebuilt(): Promise<Prebuilt> {
  const binding = loadBinding(PREBUILT) as { readonly DatabaseSync?: DatabaseClass } | undefined
  if (binding?.DatabaseSync !== undefined) return { DatabaseSync: binding.DatabaseSync }
  try {
    return await loadPackage(PREBUILT, () => import(PREBUILT) as Promise<{ DatabaseSync: DatabaseClass }>)
  } catch (error) {
    return { error: error instanceof Error ? error : new Error(String(error)) }
  }
}

/** WAL, so that readers never block; no waiting inside SQLite, because that would block the event loop. */
export function configure(database: BroughtDatabase, durability: 'normal' | 'full'): void {
  const schema = schemaOf(database)
  database.exec('pragma busy_timeout = 0')
  // What the tables, views and triggers of a file say is not to call functions that reach beyond it.
  database.exec('pragma trusted_schema = off')
  const [mode] = database.prepare(`pragma ${schema}.journal_mode`).all() as { journal_mode: string }[]
  if (mode?.journal_mode !== 'wal') database.exec(`pragma ${schema}.journal_mode = wal`)
  database.exec(`pragma ${schema}.synchronous = ${durability}`)
  // A checkpoint waits for the disk, and all writers wait for it: four times rarer than SQLite would (16 MiB of log). A
  // longer log is cut at its next reset.
  database.exec('pragma wal_autocheckpoint = 4000')
  database.exec(`pragma ${schema}.journal_size_limit = 16777216`)
}

/** Whether a transaction was begun and has not ended. */
export function isInTransaction(database: BroughtDatabase): boolean {
  const { isTransaction, inTransaction } = database as { isTransaction?: boolean; inTransaction?: boolean }
  return isTransaction ?? inTransaction ?? refusesToBegin(database)
}

/** For drivers that do not say it: only outside of a transaction can one be begun. */
function refusesToBegin(database: BroughtDatabase): boolean {
  try {
    database.exec('begin')
  } catch {
    return true
  }
  database.exec('rollback')
  return false
}

export function rollback(database: BroughtDatabase): void {
  try {
    database.exec('rollback')
  } catch {
    // SQLite has rolled back by itself.
  }
}
