/**
 * `cron(locks)`: jobs that run once for each tick in the whole fleet.
 *
 * Every host of the fleet adds the same jobs. Each job has a timer (job-timer.ts).
 */
import type { Timer } from '../../core/clock.ts'
import { type DrainOptions, graceMsOf } from '../../core/drain.ts'
import { onAbort } from '../../core/on-abort.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { showAs } from '../../core/show.ts'
import { thrownText } from '../../core/thrown.ts'
import { fallbackAfter } from '../../core/time-limit.ts'
import type { Locks } from '../../locks.ts'
import { RecordStore } from '../../store/record-store.ts'
import { CronJob, type RunWork } from './cron-job.ts'
import { type JobSummary, listJobs, type PastRun, pastRuns } from './history.ts'
import { type JobRecord, keyOf } from './job-record.ts'
import { JobTimer } from './job-timer.ts'
import { type JobOptions, jobPolicyOf } from './options.ts'
import { type JobSchedule, scheduleOf } from './schedule.ts'

/** Options for all jobs of a `cron()`. */
export interface CronOptions {
  /** Locks on another engine, for the records: for an engine without a store (redlock). */
  readonly store?: Locks
  /**
   * Hears what the work of a job throws, that a lock was lost, and that the server cannot be reached. Without it, each
   * is a warning of the process.
   */
  readonly onError?: (error: unknown, name: string) => void
}

/** Jobs that run once for each tick, whichever host runs them. */
export interface Jobs extends AsyncDisposable {
  /**
   * Run `work` at each tick. Every host adds the same jobs. `schedule`: a cron pattern (with seconds if it has six
   * fields), or `{ every: '30s' }`. Throws if the pattern cannot be read.
   */
  add(name: string, schedule: JobSchedule, work: RunWork): void
  add(name: string, schedule: JobSchedule, options: JobOptions, work: RunWork): void
  /** When a job of this host runs next; undefined if never again. */
  next(name: string): Date | undefined
  /** The last runs of a job, on any host, the newest first. */
  history(name: string): AsyncGenerator<PastRun, void, void>
  /** Every job that has a record, of any host. */
  list(prefix?: string): AsyncGenerator<JobSummary, void, void>
  /**
   * Begin nothing new. Runs have `grace` (5 s unless given) to end by themselves; then their signals abort. Resolves
   * when all have ended, or a little later if one does not heed its signal. `locks.drain()` does the same.
   */
  drain(options?: DrainOptions): Promise<void>
  /** `drain` without a grace. The locks stay open. */
  close(): Promise<void>
}

const CRON_OPTIONS: OptionNames<CronOptions> = { store: true, onError: true }

/** Jobs on `locks`. They run until `close()`, or until the locks are drained or closed. */
export function cron(locks: Locks, options: CronOptions = {}): Jobs {
  checkOptions('cron()', options, CRON_OPTIONS)
  return new CronJobs(locks, options)
}

class CronJobs implements Jobs {
  readonly #locks: Locks
  readonly #records: RecordStore<JobRecord>
  readonly #onError: NonNullable<CronOptions['onError']>
  readonly #jobs = new Map<string, JobTimer>()
  /** Nothing new begins once it has aborted. */
  readonly #ending = new AbortController()
  /** The work is to stop once it has aborted. */
  readonly #stopWork = new AbortController()
  readonly #forget: () => void
  #alive: Timer | undefined

  static {
    showAs('Jobs', CronJobs)
  }

  constructor(locks: Locks, options: CronOptions) {
    this.#locks = locks
    this.#records = new RecordStore('cron', locks, options)
    this.#onError = options.onError ?? warn
    this.#forget = onAbort(locks.draining, () => this.#stop())
    if (locks.draining.aborted) this.#stop()
  }

  add(name: string, schedule: JobSchedule, first: JobOptions | RunWork, second?: RunWork): void {
    const options = second === undefined ? {} : (first as JobOptions)
    const work = (second ?? first) as RunWork
    if (typeof work !== 'function')
      throw new TypeError(`add takes the work as a function, and options before it; got ${typeof work}`)
    if (this.#jobs.has(name)) throw new TypeError(`there is a job '${name}' already`)
    if (this.#ending.signal.aborted) throw new TypeError(`the job '${name}' comes too late: the jobs were closed`)
    const policy = jobPolicyOf(this.#locks, options)
    const { zone, ttl, onError = this.#onError } = options
    const lock = this.#locks.mutex(keyOf(name), ttl === undefined ? {} : { ttl })
    const spec = { name, schedule: scheduleOf(name, schedule, zone), policy, lock, work }
    const job = new CronJob(this.#locks, this.#records, spec, this.#stopWork.signal)
    const { keeper } = this.#locks
    const tell = (error: unknown): void => {
      // What hears of errors may throw, or reject, itself.
      void (async () => onError(error, name))().catch((thrown: unknown) => warn(thrown, name))
    }
    const timer = new JobTimer(job, keeper, this.#ending.signal, tell)
    this.#jobs.set(name, timer)
    this.#alive ??= keeper.clock.stayAlive()
    timer.start()
  }

  next(name: string): Date | undefined {
    const job = this.#jobs.get(name)?.job
    if (job === undefined) throw new TypeError(`this host has no job '${name}'`)
    const next = job.spec.schedule.next(job.time.now())
    return next === null ? undefined : new Date(next)
  }

  history(name: string): AsyncGenerator<PastRun, void, void> {
    return pastRuns(this.#locks, this.#records, name)
  }

  list(prefix = ''): AsyncGenerator<JobSummary, void, void> {
    return listJobs(this.#locks, this.#records, prefix)
  }

  async drain(options: DrainOptions = {}): Promise<void> {
    const graceMs = graceMsOf(options)
    const { clock, callTimeoutMs, closing } = this.#locks.keeper
    this.#stop()
    if (graceMs > 0) await fallbackAfter(clock, graceMs, this.#ended(), undefined, closing)
    this.#stopWork.abort(new Error('the jobs were closed'))
    await fallbackAfter(clock, callTimeoutMs, this.#ended(), undefined)
  }

  close(): Promise<void> {
    return this.drain({ grace: 0 })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  toJSON(): object {
    return { engine: this.#locks.engine.name, jobs: [...this.#jobs.keys()] }
  }

  async #ended(): Promise<void> {
    await Promise.all([...this.#jobs.values()].map((job) => job.ended()))
  }

  /** Begin nothing new. */
  #stop(): void {
    this.#forget?.()
    this.#alive?.cancel()
    for (const job of this.#jobs.values()) job.stop()
    this.#ending.abort(new Error('the jobs were closed'))
  }
}

function warn(error: unknown, name: string): void {
  process.emitWarning(`cron job '${name}': ${thrownText(error)}`, {
    code: 'HOLDFAST_CRON',
    detail: error instanceof Error ? (error.stack ?? '') : '',
  })
}
