/**
 * What the running method is given besides its arguments. Those belong to Nest, so it asks: the lease of the innermost
 * `@Locked()` around it, and the attempt of the innermost `@Once()`.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { Lease } from '../../core/lease.ts'
import type { Attempt } from '../../recipes/once/attempt.ts'

interface Current {
  readonly lease?: Lease
  readonly attempt?: Attempt
}

const current = new AsyncLocalStorage<Current>()

export function runWith<Result>(given: Current, work: () => Result): Result {
  return current.run({ ...current.getStore(), ...given }, work)
}

/** The lease that the running `@Locked()` method holds: for its `signal`, and for guards. Throws outside of one. */
export function currentLease(): Lease {
  const lease = current.getStore()?.lease
  if (lease !== undefined) return lease
  throw new TypeError('currentLease() is for what runs inside of a @Locked() method, and this does not')
}

/** The attempt of the running `@Once()` method: for its `id`, `step` and `commit`. Throws outside of one. */
export function currentAttempt(): Attempt {
  const attempt = current.getStore()?.attempt
  if (attempt !== undefined) return attempt
  throw new TypeError('currentAttempt() is for what runs inside of a @Once() method, and this does not')
}
