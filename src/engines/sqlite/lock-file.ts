/** The open file: its statements, its transactions, and whether its path still leads to it. */
import { type BroughtDatabase, configure, type Database, refuseUnsafe, rollback } from '../../clients/sqlite/driver.ts'
import { isBusy, refusal } from '../../clients/sqlite/errors.ts'
import { type FileIdentity, identityOf } from '../../clients/sqlite/folder.ts'
import { type PoolStatements, preparePools } from './sql/pools.ts'
import { prepareRecords, type RecordStatements } from './sql/records.ts'
import { initialise, type SqliteHost } from './sql/schema.ts'
import { prepare, type SqliteStatements } from './sql/statements.ts'

/** How often the path is compared with the open file. */
const COMPARE_EVERY_MS = 100

export interface LockFileOptions {
  readonly file: string
  readonly durability: 'normal' | 'full'
  readonly host: SqliteHost
}

export class LockFile {
  readonly file: string
  readonly sql: SqliteStatements
  readonly epoch: number
  readonly #database: BroughtDatabase
  readonly #close: () => void
  readonly #identity: FileIdentity | undefined
  #comparedAt: number
  #records: RecordStatements | undefined
  #pools: PoolStatements | undefined

  /**
   * Throws "busy" while other processes set up the same fresh file; `open` then closes it, and the writer tries again.
   */
  private constructor(database: BroughtDatabase, close: () => void, { file, durability, host }: LockFileOptions) {
    this.file = file
    this.#database = database
    this.#close = close
    this.#comparedAt = host.now
    configure(database, durability)
    this.epoch = initialise(database, file, host)
    this.sql = prepare(database)
    this.#identity = identityOf(file)
  }

  static open(database: Database, options: LockFileOptions): LockFile {
    try {
      return new LockFile(database, () => database.close(), options)
    } catch (error) {
      database.close()
      throw error
    }
  }

  /** Use a database that the user brought, and closes. */
  static adopt(database: BroughtDatabase, options: LockFileOptions): LockFile {
    refuseUnsafe(database)
    return new LockFile(database, () => {}, options)
  }

  /**
   * False: another process is writing. `immediate`, because SQLite refuses the write to a transaction that has started
   * by reading, however long it waits.
   */
  begin(): boolean {
    try {
      this.sql.begin.run()
      return true
    } catch (error) {
      if (isBusy(error)) return false
      throw error
    }
  }

  commit(): void {
    this.sql.commit.run()
  }

  rollback(): void {
    rollback(this.#database)
    // Their table may have been made in this transaction.
    this.#records = undefined
    this.#pools = undefined
  }

  /** Inside a transaction. */
  get records(): RecordStatements {
    this.#records ??= prepareRecords(this.#database)
    return this.#records
  }

  /** The same for pools. */
  get pools(): PoolStatements {
    this.#pools ??= preparePools(this.#database)
    return this.#pools
  }

  /**
   * Whether the file was deleted, or another one put in its place: a process that opens the path now would not exclude
   * us.
   */
  isReplaced(now: number): boolean {
    if (now - this.#comparedAt < COMPARE_EVERY_MS) return false
    this.#comparedAt = now
    const found = identityOf(this.file)
    return found?.inode !== this.#identity?.inode || found?.device !== this.#identity?.device
  }

  /** Whether this is the same file, opened again, in the same run of the machine. */
  isSameAs(earlier: LockFile): boolean {
    const [a, b] = [this.#identity, earlier.#identity]
    return a?.inode === b?.inode && a?.device === b?.device && this.epoch === earlier.epoch
  }

  close(): void {
    this.#close()
  }
}

/** The file of a database that the user brought. */
export function fileOf(database: BroughtDatabase): string {
  const rows = database.prepare('pragma database_list').all() as { name: string; file: string }[]
  const file = rows.find(({ name }) => name === 'main')?.file ?? ''
  if (file !== '') return file
  throw refusal('the database is in memory, where no other process can see it: open a file, or use the memory engine')
}
