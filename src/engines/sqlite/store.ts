/** The store of a SQLite engine: records in a table of the same file, changed in the batch's transaction. */
import { type BroughtDatabase, isInTransaction } from '../../clients/sqlite/driver.ts'
import { identityOf } from '../../clients/sqlite/folder.ts'
import { type Clock, wallClockMs } from '../../core/clock.ts'
import {
  type Change,
  type Entered,
  type Entrance,
  type Got,
  type Leaving,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  VALUE_LIMIT_BYTES,
} from '../../core/store.ts'
import type { PoolAnswer, PoolStep } from '../../core/store-hold.ts'
import type { Draw, Drawn } from '../../core/store-take.ts'
import { putEntering, putLeaving } from './entrances.ts'
import { fileOf } from './lock-file.ts'
import { SqliteRecords } from './records.ts'
import { prepareRecords, type RecordStatements } from './sql/records.ts'
import type { SqliteWriter } from './writer.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: 200,
  takesSignal: ['get', 'put', 'take', 'hold', 'putEntering', 'putLeaving'],
  survives:
    'the death of any process and a restart of the machine; a power cut can take the last ones, unless durability is full',
}

/** How many records of a listing are read at once. */
const PAGE = 500

export interface SqliteStoreSetup {
  readonly file: string
  readonly clock: Clock
  readonly writer: SqliteWriter
}

export class SqliteStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #options: SqliteStoreSetup
  /** By database of the user: our statements, prepared there. */
  readonly #prepared = new WeakMap<BroughtDatabase, RecordStatements>()

  constructor(options: SqliteStoreSetup) {
    this.#options = options
  }

  get(keys: readonly string[], signal?: AbortSignal): Promise<readonly Got[]> {
    return this.#options.writer.run('get', (transaction) => transaction.records.get(keys), signal)
  }

  put(changes: readonly Change[], signal?: AbortSignal): Promise<readonly Put[]> {
    return this.#options.writer.run('put', (transaction) => transaction.records.put(changes), signal)
  }

  take(draws: readonly Draw[], signal?: AbortSignal): Promise<readonly Drawn[]> {
    return this.#options.writer.run('take', (transaction) => transaction.records.take(draws), signal)
  }

  hold(steps: readonly PoolStep[], signal?: AbortSignal): Promise<readonly PoolAnswer[]> {
    return this.#options.writer.run('hold', (transaction) => transaction.holdUnits(steps), signal)
  }

  putEntering(entrances: readonly Entrance[], signal?: AbortSignal): Promise<readonly Entered[]> {
    return this.#options.writer.run('put', (transaction) => putEntering(transaction, entrances), signal)
  }

  putLeaving(leavings: readonly Leaving[], signal?: AbortSignal): Promise<readonly Put[]> {
    return this.#options.writer.run('put', (transaction) => putLeaving(transaction, leavings), signal)
  }

  /**
   * `transaction`: your own connection to the same file, in a transaction.
   *
   * While this engine has its file open, as it has where a lease is held, the change is made before this returns. So it
   * can be called in a transaction whose function may not await.
   */
  async putIn(transaction: unknown, change: Change): Promise<Put> {
    const database = this.#checkDatabase(transaction)
    const { writer, file, clock } = this.#options
    // An empty call: the writer opens the file on its first one.
    if (writer.lockFile === undefined) await writer.run('put', () => {})
    const epoch = writer.lockFile?.epoch ?? 0
    let sql = this.#prepared.get(database)
    if (sql === undefined) {
      sql = prepareRecords(database)
      this.#prepared.set(database, sql)
    }
    const records = new SqliteRecords({ sql, now: clock.now(), wallMs: wallClockMs(), epoch, file })
    return records.put([change])[0] as Put
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    for (let from = prefix, except = ''; ; ) {
      const page = await this.#options.writer.run('list', (transaction) => transaction.records.page(from, except, PAGE))
      for (const record of page.records) {
        if (!record.key.startsWith(prefix)) return
        yield record
      }
      if (page.last === undefined || !page.last.startsWith(prefix)) return
      from = page.last
      except = page.last
    }
  }

  #checkDatabase(transaction: unknown): BroughtDatabase {
    const { file } = this.#options
    const database = transaction as BroughtDatabase
    if (typeof database?.prepare !== 'function' || typeof database.exec !== 'function')
      throw new TypeError(
        `a record is stored by a database of SQLite that is in a transaction; got ${typeof transaction}`,
      )
    if (!isInTransaction(database))
      throw new TypeError(
        "a record is stored inside of your transaction, and there is none: exec('begin immediate') first",
      )
    const [own, theirs] = [identityOf(file), identityOf(fileOf(database))]
    if (own?.inode === theirs?.inode && own?.device === theirs?.device) return database
    throw new TypeError(
      `the records are kept in '${file}', and your transaction is in '${fileOf(database)}': name that file to sqlite(), and both are in one transaction`,
    )
  }
}
