/**
 * `holdfast/once`: run work once for each key, and answer duplicates with the result. For payments, webhooks, and
 * whatever a client may send twice.
 *
 *     const pay = once(locks, { keep: '24h', wait: '10s' })
 *     const { value, replayed } = await pay.run(key, { scope: tenant, fingerprint: body }, async (attempt) => {
 *       return psp.charge(cents, { idempotencyKey: attempt.id, signal: attempt.signal })
 *     })
 *
 * Read once.ts for the way of a call, record.ts for what is stored, and attempt.ts for what the work is given.
 */
import type { Locks } from '../../locks.ts'
import { OnceRunner } from './once.ts'
import type { Once, OnceOptions } from './options.ts'

export {
  type AttemptName,
  InProgressError,
  KeyReusedError,
  ReplayedFailureError,
  type StoredFailure,
  UnknownOutcomeError,
} from '../../core/errors.ts'
export type { Serializer } from '../../store/serializer.ts'
export type { Attempt } from './attempt.ts'
export type { Crashed, Once, OnceOptions, OnceResult, OnceRunOptions, OnceWork } from './options.ts'

/**
 * Idempotent requests on these locks. Throws `UnsupportedError` where the engine has no store, and names the option
 * that helps.
 */
export function once(locks: Locks, options: OnceOptions = {}): Once {
  return new OnceRunner(locks, options)
}
