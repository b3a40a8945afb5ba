/**
 * Everything that must behave like a mutex. The cases in cases/mutex.ts are written once and hold for each of these: a
 * stronger primitive that is used as a weaker one has no weaknesses of its own.
 */
import type { Lock } from '../src/core/lock.ts'
import type { Locks } from '../src/locks.ts'
import { type LockSpec, lockBySpec } from './locks-by-spec.ts'
import { type Need, readers, semaphores } from './needs.ts'
import type { Scene } from './scene.ts'

export interface MutexLike {
  readonly name: string
  readonly needs: readonly Need[]
  spec(key: string): LockSpec
  /** A key on which it behaves like a mutex, and how many entries are in its line for that. */
  prepare(scene: Scene): Promise<{ readonly key: string; readonly standing: number }>
}

const free = async (scene: Scene): Promise<{ key: string; standing: number }> => ({ key: scene.key(), standing: 0 })

export const mutexes: readonly MutexLike[] = [
  { name: 'mutex', needs: [], spec: (key) => ({ kind: 'mutex', key }), prepare: free },
  { name: 'semaphore of 1', needs: [], spec: (key) => ({ kind: 'semaphore', key, limit: 1 }), prepare: free },
  {
    name: 'semaphore of 5 with four drained',
    needs: [semaphores],
    spec: (key) => ({ kind: 'semaphore', key, limit: 5 }),
    async prepare(scene) {
      const key = scene.key()
      const drain = await scene.locks()
      await drain.semaphore(key, 5).acquire({ weight: 4 })
      return { key, standing: 1 }
    },
  },
  { name: 'write lock', needs: [readers], spec: (key) => ({ kind: 'write', key }), prepare: free },
  { name: 'all of one', needs: [], spec: (key) => ({ kind: 'all', key }), prepare: free },
]

/** The lock of that kind. */
export function lockOf(like: MutexLike, locks: Locks, key: string, ttlMs?: number): Lock {
  return lockBySpec(locks, ttlMs === undefined ? like.spec(key) : { ...like.spec(key), ttlMs })
}
