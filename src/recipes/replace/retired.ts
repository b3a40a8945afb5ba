/** What readers see of a list, and the rows that none of them sees any more. */

import type { UploadName } from '../../core/errors.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { type Known, ListRecord } from './list-record.ts'
import { LIST_OPTIONS, type ListOptions } from './options.ts'
import { nameOf, retiredGenerations, withRemoved } from './record.ts'

/** Options of `removeRetired()`. */
export interface RemoveRetiredOptions extends ListOptions {
  /** Your transaction, as for `turn.batch`; null where the rows are not in a database of the record. */
  readonly transaction: unknown
  /** Remove the rows of these generations, in that transaction. */
  readonly remove: (generations: readonly number[]) => unknown
  /** How many generations at once, at most: 100 unless given. */
  readonly limit?: number
}

const REMOVE_OPTIONS: OptionNames<RemoveRetiredOptions> = {
  ...LIST_OPTIONS,
  transaction: true,
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
 * generations are gone with this transaction: none, when all are.
 */
export async function removeRetired(
  locks: Locks,
  key: string,
  options: RemoveRetiredOptions,
): Promise<readonly number[]> {
  checkOptions('removeRetired()', options, REMOVE_OPTIONS)
  const { transaction, remove, limit = DEFAULT_LIMIT } = options
  if (typeof remove !== 'function') throw new TypeError(`remove must be a function; got ${typeof remove}`)
  if (!Number.isSafeInteger(limit) || limit < 1)
    throw new RangeError(`limit must be a whole number, 1 or more; got ${limit}`)
  const list = new ListRecord(locks, key, options)
  let known: Known = transaction === null ? await list.look() : await list.lookIn(transaction)
  const retired = retiredGenerations(known.record, limit)
  if (retired.length === 0) return retired
  // First the rows, which takes long, and then the record, which an upload may be waiting for.
  await remove(retired)
  for (let tries = 0; tries < MOST_TRIES; tries += 1) {
    const next = withRemoved(known.record, retired)
    const changed =
      transaction === null ? await list.change(known, next) : await list.changeIn(transaction, known, next)
    if (changed.state === 'changed') return retired
    known = changed
  }
  // Other calls change the record all the time. To remove rows that are gone once more does no harm.
  return retired
}
