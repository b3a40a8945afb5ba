/**
 * For node-cron 4: `setRunCoordinator(coordinator(locks))`, and `{ name, distributed: true }` for each task.
 *
 * node-cron asks before it runs a task, with a key of the task's name and the instant that it was scheduled for, and
 * tells when the run is over. In between, the lock is held and renewed. It runs the task once for that, and the task is
 * not told for which tick: so an earlier tick, which a host has left behind, is not taken over.
 */
import type { Locks } from '../../locks.ts'
import { singleTick } from './schedule.ts'
import { checkTickOptions, runTickOf, type TickOptions } from './tick.ts'

/** What node-cron asks. Its own type has the same members. */
export interface NodeCronCoordinator {
  shouldRun(key: string, ttlMs: number): Promise<boolean>
  onComplete(key: string): Promise<void>
}

/** `2026-11-16T12:00:00.000Z` and the colon before it. */
const KEY = /^(.+):(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)$/s
/** What node-cron calls a task without a name: something else in each process. */
const UNNAMED = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/

interface Running {
  end(): void
  readonly ended: Promise<unknown>
}

/** Tasks of node-cron, each run by one host. The lock of a task lives by `ttl`, not by its `distributedLease`. */
export function coordinator(locks: Locks, options: TickOptions = {}): NodeCronCoordinator {
  checkTickOptions('coordinator()', options)
  const running = new Map<string, Running>()
  return {
    async shouldRun(key) {
      const [, name = '', scheduledAt = ''] = KEY.exec(key) ?? []
      if (name === '') throw new TypeError(`node-cron gave a key without an instant: '${key}'`)
      if (UNNAMED.test(name))
        throw new TypeError('give the task a name: without one, node-cron calls it otherwise on each host')
      return new Promise((resolve, reject) => {
        const work = (): Promise<void> =>
          new Promise((end) => {
            running.set(key, { end, ended })
            resolve(true)
          })
        const ended = runTickOf(locks, name, singleTick(Date.parse(scheduledAt)), options, work, false)
        ended.then(() => resolve(false), reject)
      })
    },
    // node-cron logs what this throws: that the lock was lost while the task ran.
    async onComplete(key) {
      const run = running.get(key)
      running.delete(key)
      run?.end()
      await run?.ended
    },
  }
}
