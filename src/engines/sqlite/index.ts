/**
 * `holdfast/sqlite`: locks across the processes of one host, in a file, with nothing to install. The embedded default.
 *
 * Read in this order: schema.ts (what is in the file), lines.ts (the verbs, inside a transaction), writer.ts (whose
 * turn it is), wake.ts and patrol.ts (how a waiter hears), process.ts (when a holder is dead), engine.ts (all of it
 * together).
 */
import { resolve } from 'node:path'
import type { BroughtDatabase } from '../../clients/sqlite/driver.ts'
import { defaultFile } from '../../clients/sqlite/folder.ts'
import { hostClock } from '../../clients/sqlite/host.ts'
import { type Chance, type Clock, systemChance } from '../../core/clock.ts'
import { SqliteEngine } from './engine.ts'
import { fileOf } from './store.ts'

export type { BroughtDatabase } from '../../clients/sqlite/driver.ts'
export { defaultFile } from '../../clients/sqlite/folder.ts'
export type { SqliteEngine } from './engine.ts'

export interface SqliteOptions {
  /**
   * The database file; it and its folder are made if need be. Default: `defaultFile()`. All processes that share locks
   * name the same one.
   */
  readonly file?: string
  /**
   * A database of your own instead of a file: one connection of better-sqlite3 or node:sqlite, for Holdfast alone. You
   * close it.
   */
  readonly database?: BroughtDatabase
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

/** An engine that keeps its lines in a SQLite file. Nothing is opened before the first call. */
export function sqlite(options: SqliteOptions = {}): SqliteEngine {
  const { file, database, durability = 'normal' } = options
  if (file !== undefined && database !== undefined) throw new TypeError('give either file or database, not both')
  if (file !== undefined && (typeof file !== 'string' || file === ''))
    throw new TypeError(`file must be a path; got ${JSON.stringify(file)}`)
  if (durability !== 'normal' && durability !== 'full')
    throw new TypeError(`durability must be 'normal' or 'full'; got ${String(durability)}`)
  return new SqliteEngine({
    file: database === undefined ? resolve(file ?? defaultFile()) : fileOf(database),
    database,
    durability,
    outlives: options.outlives ?? false,
    allowNetworkFs: options.allowNetworkFs ?? false,
    clock: options.clock ?? hostClock(),
    chance: options.chance ?? systemChance,
  })
}
