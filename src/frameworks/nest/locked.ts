/**
 * `@Locked('order:{0.id}')`: the method runs under a lock, in whatever way it is called. It is `using`: it waits in
 * line, and a lease that is lost while the method runs makes the call reject with `LeaseLostError`.
 */
import { type Duration, parseDuration } from '../../core/duration.ts'
import type { AcquireOptions, Lock } from '../../core/lock.ts'
import type { ReentrantLockOptions } from '../../core/locks-options.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { runWith } from './current.ts'
import { type KeyOfCall, keyMaker } from './key-template.ts'
import { type LocksOfDecorator, locksFor } from './tokens.ts'
import { type MethodWrapper, wrapMethod } from './wrap.ts'

/** Options of `@Locked()`: those of a mutex, and these. */
export interface LockedOptions<Service = never> extends ReentrantLockOptions, LocksOfDecorator<Service> {
  /** How long a call stands in line: for ever unless given, so give one in requests. Then `AcquireTimeoutError`. */
  readonly wait?: Duration
  /** How many calls may run at a time for one key: a semaphore. 1 unless given. */
  readonly limit?: number
}

const OPTIONS: OptionNames<LockedOptions> = {
  ttl: true,
  maxHold: true,
  reentrant: true,
  locks: true,
  module: true,
  wait: true,
  limit: true,
}

/** Run the method under a lock. The method must return a promise: `currentLease()` is the lease, while it runs. */
export function Locked<Service = never>(key: KeyOfCall, options: LockedOptions<Service> = {}): MethodWrapper {
  checkOptions('@Locked()', options, OPTIONS)
  const { locks: _, module: __, wait, limit, ...ofLock } = options
  const keyOf = keyMaker('@Locked()', 'its key', key)
  if (wait !== undefined) parseDuration(wait, 'wait')
  if (limit !== undefined && ofLock.reentrant !== undefined)
    throw new TypeError('@Locked() takes limit or reentrant, not both: a semaphore cannot be nested')
  const lockOf = (found: Locks, name: string): Lock<AcquireOptions> =>
    limit === undefined ? found.mutex(name, ofLock) : found.semaphore(name, limit, ofLock)
  return (target, name, descriptor) => {
    const locksOf = locksFor<Service>('@Locked()', target, options)
    wrapMethod('@Locked()', { target, key: name, descriptor }, async ({ service, args, run }) =>
      lockOf(locksOf(service as Service), keyOf(args)).using(wait === undefined ? {} : { wait }, async (lease) =>
        runWith({ lease }, run),
      ),
    )
  }
}
