/**
 * `holdfast/bullmq`: per-key concurrency for jobs of BullMQ. Three jobs of a user run at a time, however many workers
 * there are.
 *
 *     new Worker('mail', keyed(locks, (job) => job.data.user, { limit: 3 }, processor), { connection })
 *
 * A job whose key is busy is put back for a while (`moveToDelayed`), so that the worker is free for jobs of other keys.
 * With `wait` it stands in line first, inside of the worker: it is woken at once, and the worker is busy meanwhile.
 * BullMQ renews the lock of the job in both cases.
 *
 * It needs no import of BullMQ: what that looks at is the name of an error, and three members of a job.
 */
import { systemChance, wallClockMs } from '../core/clock.ts'
import { type Duration, parseDuration } from '../core/duration.ts'
import { AcquireTimeoutError, EngineError, LineFullError } from '../core/errors.ts'
import type { Lease } from '../core/lease.ts'
import type { LockOptions } from '../core/locks-options.ts'
import { checkOptions, type OptionNames } from '../core/options.ts'
import type { Locks } from '../locks.ts'

/** What a job of BullMQ has, as far as it is used here. */
export interface KeyedJob {
  readonly queueName: string
  moveToDelayed(timestamp: number, token?: string): Promise<void>
}

/** Options of `keyed()`: those of a lock, and these. */
export interface KeyedOptions extends LockOptions {
  /** How many jobs of one key run at a time: 1 unless given. */
  readonly limit?: number
  /** How long a job stands in line inside of its worker, before it is put back: 0 unless given. */
  readonly wait?: Duration
  /** For how long a job is put back at least: 1 s unless given. At most for twice as long, by chance. */
  readonly delay?: Duration
  /** What the keys begin with: `bullmq:` and the name of the queue unless given. Queues of one name share them. */
  readonly name?: string
}

/**
 * A processor as BullMQ has it. `signal` aborts when the lease is lost, or when BullMQ cancels the job. `lease` has the
 * fencing token; it is undefined for a job without a key.
 */
export type KeyedProcessor<Job, Result> = (
  job: Job,
  token: string | undefined,
  signal: AbortSignal | undefined,
  lease: Lease | undefined,
) => Promise<Result>

const OPTIONS: OptionNames<KeyedOptions> = {
  ttl: true,
  maxHold: true,
  limit: true,
  wait: true,
  delay: true,
  name: true,
}
const DEFAULT_DELAY_MS = 1000

/** BullMQ knows it by its name, and leaves the job where `moveToDelayed` has put it. */
class DelayedJobError extends Error {
  override readonly name = 'DelayedError'
}

/**
 * A processor of which at most `limit` run for one key at a time. `keyOf` answers undefined for jobs that need not wait
 * for any other. A job whose lease was lost fails with `LeaseLostError`, and is tried again as its `attempts` say.
 */
export function keyed<Job extends KeyedJob, Result>(
  locks: Locks,
  keyOf: (job: Job) => string | undefined,
  options: KeyedOptions,
  processor: KeyedProcessor<Job, Result>,
): (job: Job, token?: string, signal?: AbortSignal) => Promise<Result> {
  checkOptions('keyed()', options, OPTIONS)
  const { limit = 1, wait = 0, delay = DEFAULT_DELAY_MS, name, ...ofLock } = options
  const [waitMs, delayMs] = [parseDuration(wait, 'wait'), parseDuration(delay, 'delay')]
  if (typeof keyOf !== 'function' || typeof processor !== 'function')
    throw new TypeError('keyed takes locks, a function that makes the key of a job, options, and the processor')
  // So that a limit or a ttl that cannot be is refused here, and not by every job.
  locks.semaphore('bullmq', limit, ofLock)

  const putBack = async (job: Job, token: string | undefined): Promise<never> => {
    // By chance, so that those that were put back together do not come back together.
    const forMs = delayMs * (1 + systemChance.fraction())
    await job.moveToDelayed(wallClockMs() + Math.ceil(forMs), token)
    throw new DelayedJobError('the key of this job is busy: it was put back')
  }

  return async (job, token, signal) => {
    const key = keyOf(job)
    if (key === undefined) return processor(job, token, signal, undefined)
    if (typeof key !== 'string' || key === '')
      throw new TypeError(`the key of a job must be a string that is not empty, or undefined; got ${String(key)}`)
    const lock = locks.semaphore(`${name ?? `bullmq:${job.queueName}`}:${key}`, limit, ofLock)
    const cancelled = signal === undefined ? {} : { signal }
    let begun = false
    try {
      return await lock.using({ wait: waitMs, ...cancelled }, (lease) => {
        begun = true
        const either = signal === undefined ? lease.signal : AbortSignal.any([signal, lease.signal])
        return processor(job, token, either, lease)
      })
    } catch (error) {
      if (!begun && isBusy(error, locks)) return await putBack(job, token)
      throw error
    }
  }
}

/** Nothing has begun, and later it may. */
function isBusy(error: unknown, locks: Locks): boolean {
  if (error instanceof AcquireTimeoutError || error instanceof LineFullError) return true
  return error instanceof EngineError && (error.transient || locks.draining.aborted)
}
