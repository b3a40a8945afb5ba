/** What readers see of a list, and the rows that none of them sees any more. */

import { ConflictError, type UploadName } from '../../core/errors.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { type KnownList, LIST_OPTIONS, type ListOptions, ListRecord } from './list-record.ts'
import { nameOf, retiredGenerations, withRemoved } from './record.ts'

/** Options of `removeRetired()`. */
export interface RemoveRetiredOptions<Transaction = unknown> extends ListOptions {
  /**
   * Runs its work in a transaction of yours, as for `turn.batch`: `(work) => sql.begin(work)`. Left out where the rows
   * are not in the database of the record.
   */
  readonly begin?: (work: (transaction: Transaction) => Promise<void>) => Promise<unknown>
  /** Removes the rows of these generations, in that transaction. */
  readonly remove: (transaction: Transaction, generations: readonly number[]) => unknown
  /** How many generations in one transaction, at most: 100 unless given. */
  readonly limit?: number
}

const REMOVE_OPTIONS: OptionNames<RemoveRetiredOptions> = {
  ...LIST_OPTIONS,
  begin: true,
  remove: true,
  limit: true,
}
const DEFAULT_LIMIT = 100
const MOST_TRIES = 20

/** The upload that was published last; undefined if none was. Inside of SQL, read what `publish` has written there. */
export async function publishedUpload(
  locks: Locks,
  key: string,
  options: ListOptions = {},
): Promise<UploadName | undefined> {
  checkOptions('publishedUpload()', options, LIST_OPTIONS)
  const { record } = await new ListRecord(locks, key, options).look()
  return record.published === undefined ? undefined : nameOf(record.published)
}

/**
 * Remove rows that no reader sees: of uploads that were superseded, that have failed, and that were published before
 * the last one. Never of the one that is published, nor of one that is going on or can be resumed. Answers which
 * generations are gone.
 */
export async function removeRetired<Transaction = unknown>(
  locks: Locks,
  key: string,
  options: RemoveRetiredOptions<Transaction>,
): Promise<readonly number[]> {
  checkOptions('removeRetired()', options, REMOVE_OPTIONS)
  const { begin, remove, limit = DEFAULT_LIMIT } = options
  if (typeof remove !== 'function') throw new TypeError(`remove must be a function; got ${typeof remove}`)
  if (begin !== undefined && typeof begin !== 'function')
    throw new TypeError(`begin must be a function that runs its work in a transaction; got ${typeof begin}`)
  if (!Number.isSafeInteger(limit) || limit < 1)
    throw new RangeError(`limit must be a whole number, 1 or more; got ${limit}`)
  const list = new ListRecord(locks, key, options)
  const removed: number[] = []
  for (;;) {
    // Before the transaction: on SQLite, a connection of ours would wait for it.
    const known = await list.look()
    const retired = retiredGenerations(known.record, limit)
    if (retired.length === 0) return removed
    if (retired[0] === removed.at(-retired.length) && retired.at(-1) === removed.at(-1))
      throw new TypeError('begin() has not committed its transaction: the same generations are retired as before')
    const step = async (transaction: Transaction | null): Promise<void> => {
      // First the rows, which takes long, and then the record, which an upload may be waiting for.
      await remove(transaction as Transaction, retired)
      await noteRemoved(list, transaction, known, retired)
    }
    await (begin === undefined ? step(null) : begin(step))
    removed.push(...retired)
  }
}

/** What other calls change meanwhile is kept. */
async function noteRemoved(
  list: ListRecord,
  transaction: unknown,
  first: KnownList,
  gone: readonly number[],
): Promise<void> {
  let known = first
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const changed = await list.change(known, withRemoved(known.record, gone), transaction)
    if (changed.state === 'changed') return
    known = changed
  }
  throw new ConflictError(`the record of '${list.key}'`, MOST_TRIES, 'others changed it each time')
}
