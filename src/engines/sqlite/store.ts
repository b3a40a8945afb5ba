/** The open file: its statements, its transactions, and whether it still is the file of that name. */
import { type BroughtDatabase, configure, type Database, refuseUnsafe, rollback } from '../../clients/sqlite/driver.ts'
import { isBusy, refusal } from '../../clients/sqlite/errors.ts'
import { type FileIdentity, identityOf } from '../../clients/sqlite/folder.ts'
import { type Host, initialise } from './schema.ts'
import { prepare, type Statements } from './statements.ts'

/** How often the name is compared with the open file. */
const LOOK_EVERY_MS = 100

export interface StoreOptions {
  readonly file: string
  readonly durability: 'normal' | 'full'
  readonly host: Host
}

export class Store {
  readonly file: string
  readonly sql: Statements
  readonly epoch: number
  readonly #database: BroughtDatabase
  readonly #close: () => void
  readonly #identity: FileIdentity | undefined
  #lookedAt: number

  /** Throws "busy" while others do the same to a fresh file: close, and do all of it again. */
  private constructor(database: BroughtDatabase, close: () => void, { file, durability, host }: StoreOptions) {
    this.file = file
    this.#database = database
    this.#close = close
    this.#lookedAt = host.now
    configure(database, durability)
    this.epoch = initialise(database, file, host)
    this.sql = prepare(database)
    this.#identity = identityOf(file)
  }

  static open(database: Database, options: StoreOptions): Store {
    try {
      return new Store(database, () => database.close(), options)
    } catch (error) {
      database.close()
      throw error
    }
  }

  /** Into a database of the user's, who also closes it. */
  static adopt(database: BroughtDatabase, options: StoreOptions): Store {
    refuseUnsafe(database)
    return new Store(database, () => {}, options)
  }

  /**
   * False: somebody else is writing. `immediate`, because a transaction that starts by reading is refused the write,
   * whatever the patience.
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
  }

  /**
   * Somebody deleted the file, or put another one in its place: whoever opens it now is in another world than we are.
   */
  isReplaced(now: number): boolean {
    if (now - this.#lookedAt < LOOK_EVERY_MS) return false
    this.#lookedAt = now
    const found = identityOf(this.file)
    return found?.inode !== this.#identity?.inode || found?.device !== this.#identity?.device
  }

  /** Whether that one is the same file, opened again, in the same run of the machine. */
  continues(earlier: Store): boolean {
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
