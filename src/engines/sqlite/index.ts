/**
 * `holdfast/sqlite`: locks across the processes of one host, in a file, with nothing to install. The embedded default.
 *
 * Read in this order:
 *
 *     sql/schema.ts                        what is in the file
 *     transaction.ts                       the verbs, inside a transaction
 *     context.ts, line-totals.ts, bulk.ts  what a transaction works with, and how a batch is one statement
 *     writer.ts, lock-file.ts              how verbs become transactions of the open file
 *     listen.ts, recheck.ts                how a waiter hears that it holds
 *     registry.ts, process.ts              when a holder is dead
 *     engine.ts                            all of it together: the verbs of the contract
 *     store.ts, records.ts, entrances.ts   records beside the lines
 *     pools.ts                             pools: stock of which parts are held for a while
 *     ../../clients/sqlite/                drivers, errors, and places of files
 *     diagnose.ts                          `holdfast doctor`
 */
import { resolve } from 'node:path'
import { type BroughtDatabase, loadDriver } from '../../clients/sqlite/driver.ts'
import { defaultFile, withoutLinks } from '../../clients/sqlite/folder.ts'
import { hostClock } from '../../clients/sqlite/host.ts'
import { pathOfUrl } from '../../clients/sqlite/places.ts'
import { type Chance, type Clock, systemChance } from '../../core/clock.ts'
import { checkOptions, type OptionNames, withoutUndefined } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { SqliteEngine } from './engine.ts'
import { fileOf } from './lock-file.ts'

export type { BroughtDatabase } from '../../clients/sqlite/driver.ts'
export { defaultFile } from '../../clients/sqlite/folder.ts'
export * from '../../transactions/sqlite.ts'
export type { SqliteEngine } from './engine.ts'

/** What does not depend on where the lines are. */
export interface SqliteEngineOptions {
  /**
   * `normal` (default): survives the death of any process. `full`: every grant is on the disk before it is answered, so
   * that also after a power cut tokens go on without help from the wall clock; about a tenth of the speed.
   */
  readonly durability?: 'normal' | 'full'
  /**
   * Entries stay until they are left or expire, also when their process dies. Default: a killed process is replaced at
   * once where its death is certain.
   */
  readonly outlives?: boolean
  /**
   * Accept a network or shared file system, where SQLite's locking may not work. Only if no other machine uses the
   * file.
   */
  readonly allowNetworkFs?: boolean
  /** For tests: time and chance of your own. All processes that use the file must share the time. */
  readonly clock?: Clock
  readonly chance?: Chance
}

/** Options of `sqlite()`. */
export interface SqliteOptions extends SqliteEngineOptions {
  /**
   * The database file; it is made if need be, in a folder that is there. Default: `defaultFile()`, whose folder is made
   * as well. All processes that share locks name the same one.
   */
  readonly file?: string
  /**
   * A database of your own instead of a file: one connection of better-sqlite3 or node:sqlite, for Holdfast alone. You
   * close it.
   */
  readonly database?: BroughtDatabase
}

const ENGINE_OPTIONS: OptionNames<SqliteEngineOptions> = {
  durability: true,
  outlives: true,
  allowNetworkFs: true,
  clock: true,
  chance: true,
}
const OPTIONS: OptionNames<SqliteOptions> = { file: true, database: true, ...ENGINE_OPTIONS }

/** An engine that keeps its lines in a SQLite file. Nothing is opened before the first call. */
export function sqlite(options: SqliteOptions = {}): SqliteEngine {
  checkOptions('sqlite()', options, OPTIONS)
  const { file, database, durability = 'normal' } = options
  if (file !== undefined && database !== undefined) throw new TypeError('give either file or database, not both')
  if (file !== undefined && (typeof file !== 'string' || file === ''))
    throw new TypeError(`file must be a path; got ${JSON.stringify(file)}`)
  if (file === ':memory:')
    throw new TypeError("a file is for locks across processes, and ':memory:' is none: use the memory engine (memory:)")
  if (durability !== 'normal' && durability !== 'full')
    throw new TypeError(`durability must be 'normal' or 'full'; got ${String(durability)}`)
  const engine = new SqliteEngine({
    file: database === undefined ? withoutLinks(resolve(file ?? defaultFile())) : fileOf(database),
    isDefaultFile: file === undefined && database === undefined,
    database,
    durability,
    outlives: options.outlives ?? false,
    allowNetworkFs: options.allowNetworkFs ?? false,
    clock: options.clock ?? hostClock(),
    chance: options.chance ?? systemChance,
  })
  return showEngine(engine, { file: engine.file })
}

type UrlOption = (value: string) => SqliteEngineOptions

const URL_OPTIONS: Readonly<Record<string, UrlOption>> = {
  // Checked by `sqlite`.
  durability: (value) => ({ durability: value as 'normal' | 'full' }),
  allowNetworkFs: (value) => ({ allowNetworkFs: yesOrNo('allowNetworkFs', value) }),
}

function yesOrNo(name: string, value: string): boolean {
  if (value === 'true' || value === 'false') return value === 'true'
  throw new TypeError(`${name} in a sqlite: URL must be true or false; got '${value}'`)
}

/**
 * From a URL to the engine: `sqlite:` (the default file), `sqlite:relative/path`, `sqlite:/absolute/path` and
 * `sqlite:///absolute/path`, with options as a query. On Windows also `sqlite:C:\path` and `sqlite:///C:/path`. Options
 * win over what the URL says. Rejects where there is no SQLite that can be used, like the other engines without their
 * client.
 */
export async function openSqlite(url: string, options: SqliteEngineOptions = {}): Promise<SqliteEngine> {
  checkOptions('openSqlite()', options, ENGINE_OPTIONS)
  const { path, query } = /^sqlite:(?<path>[^?#]*)(?:\?(?<query>[^#]*))?$/i.exec(url)?.groups ?? {}
  if (path === undefined) throw new TypeError(`a sqlite: URL is sqlite:path?option=value; got '${url}'`)
  let urlOptions: SqliteEngineOptions = {}
  for (const [name, value] of new URLSearchParams(query)) {
    const option = Object.hasOwn(URL_OPTIONS, name) ? URL_OPTIONS[name] : undefined
    if (option === undefined)
      throw new TypeError(`unknown option '${name}' in a sqlite: URL; known: ${Object.keys(URL_OPTIONS).join(', ')}`)
    urlOptions = { ...urlOptions, ...option(value) }
  }
  const file = pathOfUrl(path, process.platform)
  const engine = sqlite({ ...urlOptions, ...withoutUndefined(options), ...(file === '' ? {} : { file }) })
  await loadDriver()
  return engine
}
