/**
 * `holdfast/replace`: an upload that replaces a list. The newest one wins, and readers see the old list or the new one,
 * never a mixture.
 *
 *     await replace(locks, 'group:7', { newest: 'wins', upload: job.id }, async (turn) => {
 *       for await (const rows of turn.resume(batches))
 *         await sql.begin((tx) => turn.batch(tx, () => insert(tx, rows, turn.generation)))
 *       await sql.begin((tx) => turn.publish(tx, (generation) => setGeneration(tx, 7, generation)))
 *     })
 *
 * Read record.ts for the rule, replace.ts for the way of a call, and turn.ts for what the work is given.
 */
import type { Locks } from '../../locks.ts'
import type { ReplaceOptions, ReplaceResult, ReplaceWork } from './options.ts'
import { Upload } from './replace.ts'

export { InProgressError, SupersededError, type UploadName } from '../../core/errors.ts'
export type { ListOptions } from './list-record.ts'
export type { Newest, ReplaceOptions, ReplaceResult, ReplaceWork } from './options.ts'
export { publishedUpload, type RemoveRetiredOptions, removeRetired } from './retired.ts'
export type { Turn } from './turn.ts'

/**
 * Replace the list of this key. Rejects with `SupersededError` if a newer upload was accepted, with `LeaseLostError` if
 * this process was stopped for too long, or with what the work throws.
 */
export async function replace<Value>(
  locks: Locks,
  key: string,
  options: ReplaceOptions,
  work: ReplaceWork<Value>,
): Promise<ReplaceResult<Value>> {
  return new Upload(locks, key, options, work).run()
}
