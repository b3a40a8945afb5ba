/** A lock in words, so that a test can name the same lock to itself and to another process. */
import { UNLIMITED } from '../src/core/engine.ts'
import type { Lock } from '../src/core/lock.ts'
import type { Locks } from '../src/locks.ts'

export interface LockSpec {
  readonly kind: 'mutex' | 'semaphore' | 'read' | 'write' | 'all'
  readonly key: string
  /** For a semaphore. */
  readonly limit?: number
  readonly ttlMs?: number
}

export function lockBySpec(locks: Locks, spec: LockSpec): Lock {
  const { key, limit = UNLIMITED } = spec
  const options = spec.ttlMs === undefined ? {} : { ttl: spec.ttlMs }
  switch (spec.kind) {
    case 'mutex':
      return locks.mutex(key, options)
    case 'semaphore':
      return locks.semaphore(key, limit, options)
    case 'read':
      return locks.rw(key, options).read
    case 'write':
      return locks.rw(key, options).write
    case 'all':
      return locks.all([locks.mutex(key, options)])
  }
}
