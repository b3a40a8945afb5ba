/**
 * An execution of the work: run it, and store what came out, by the version of `started` (attempt.ts). The lease ends
 * in the step that stores it where the store can do that (`putLeaving`). Elsewhere it is released behind the answer.
 *
 * Only the first step of a caller needs the condition `holding`: without it, an execution that has begun could not be
 * told from one that has died. From then on, the version is the claim: an execution that was replaced finds another
 * one.
 */
import type { EntryLease } from '../../core/entry-lease.ts'
import { EngineError, LeaseLostError } from '../../core/errors.ts'
import type { OnceAttempt } from './attempt.ts'
import type { OnceWork } from './options.ts'
import type { SettledRecord } from './record.ts'

/** Answers what is stored in the end: its own result, or that of an execution after it. */
export async function execute(
  attempt: OnceAttempt,
  work: OnceWork<unknown>,
  keepFailures: boolean,
): Promise<SettledRecord> {
  const { lease } = attempt
  const { keepAlive } = lease.keeper
  // As with `using`: the work may await nothing but its signal.
  keepAlive.begin()
  try {
    let value: unknown
    try {
      value = await work(attempt)
    } catch (error) {
      return await failure(attempt, lease, error, keepFailures)
    }
    return await attempt.succeeded(value)
  } finally {
    // Not awaited: a caller has its result, and a release never rejects.
    void lease.release()
    keepAlive.end()
  }
}

async function failure(
  attempt: OnceAttempt,
  lease: EntryLease,
  error: unknown,
  keepFailures: boolean,
): Promise<SettledRecord> {
  const settled = await attempt.failed(error, keepFailures).catch(unlessUnreachable)
  // Its own failure is stored for good: its caller is told what the work threw.
  if (settled?.state === 'failed' && settled.by === lease.entryId) throw error
  if (settled !== undefined) return settled
  const { lossError } = lease
  if (lossError === undefined || error === lossError) throw error
  // As with `using`: the caller has to learn of the loss, and what the work threw is not forgotten.
  throw new LeaseLostError(lossError.key, lossError.token, lossError.why, { cause: error })
}

/** An engine that cannot be reached is no reason to hide what the work has thrown. */
function unlessUnreachable(error: unknown): undefined {
  if (error instanceof EngineError) return undefined
  throw error
}
