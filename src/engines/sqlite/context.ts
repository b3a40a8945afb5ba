/** What a transaction works with: the file as it sees it, the tokens it gives out, and what follows its commit. */
import { refusal } from '../../clients/sqlite/errors.ts'
import type { News } from '../../core/engine.ts'
import type { BulkStatements } from './bulk.ts'
import type { SqliteOwnEntry } from './recheck.ts'
import type { EngineRegistry } from './registry.ts'
import type { PoolStatements } from './sql/pools.ts'
import type { RecordStatements } from './sql/records.ts'
import type { SqliteStatements } from './sql/statements.ts'

/** The file as this transaction sees it. */
export interface TransactionContext {
  readonly sql: SqliteStatements
  /** Those on records, which may have to make their table first. */
  readonly recordSql: () => RecordStatements
  /** The same for pools. */
  readonly poolSql: () => PoolStatements
  readonly registry: EngineRegistry
  readonly bulk: BulkStatements
  readonly now: number
  readonly epoch: number
  readonly file: string
  /** An entry of this engine is about to wait: be ready to be woken before that is committed. */
  readonly prepareToWait: (engineId: number) => void
  /**
   * Remove the wake files of engines that are not in the file any more. No other process can be about to make one while
   * this one writes.
   */
  readonly removeOldWakeFiles: (isKnown: (engineId: number) => boolean) => void
}

/** What is to be done once the transaction is committed; forgotten if the commit fails. */
export interface AfterCommit {
  /** For our own holders and waiters. */
  readonly news: News[]
  /** Other engines that have news, each with the token of a grant among it; 0 where it is something else. */
  readonly wake: Map<number, number>
  /** Lines in which an entry came to hold, or went. */
  readonly changed: Set<string>
  /** Our own entries, in order, that wait in line now; `entry` undefined: this one does not wait any more. */
  readonly waiters: { readonly key: string; readonly id: string; readonly entry: SqliteOwnEntry | undefined }[]
}

export function nothingToDo(): AfterCommit {
  return { news: [], wake: new Map(), changed: new Set(), waiters: [] }
}

type TokenContext = Pick<TransactionContext, 'epoch' | 'file'> & { readonly sql: Pick<SqliteStatements, 'takeTokens'> }

/**
 * Tokens of one transaction, from the file's one counter. A batch takes one step of it for all the tokens it may need;
 * gaps are harmless.
 *
 * The counter never goes back, whatever is deleted and whatever the clock does, because it is read and raised under the
 * file's write lock (see `takeTokens` in sql/statements.ts).
 */
export class TokenCounter {
  readonly #context: TokenContext
  #next = 0
  #last = -1

  constructor(context: TokenContext) {
    this.#context = context
  }

  /** The next one. `wanted`: how many this batch may still ask for, this one included. */
  next(wanted: number): number {
    if (this.#next > this.#last) this.#take(wanted)
    const token = this.#next
    this.#next += 1
    return token
  }

  /** The first of `count` tokens in a row. They count as given out only when `use` says so. */
  reserve(count: number): number {
    if (this.#last - this.#next + 1 < count) this.#take(count)
    return this.#next
  }

  /** So many of the reserved ones were given out. */
  use(count: number): void {
    this.#next += count
  }

  #take(count: number): void {
    const { sql, epoch, file } = this.#context
    const [row] = sql.takeTokens.all(count, epoch)
    if (row === undefined) {
      throw refusal(
        `'${file}' has been taken over by another machine, or by this one after a restart: it serves the processes of one host`,
      )
    }
    this.#last = row.token
    this.#next = row.token - count + 1
  }
}
