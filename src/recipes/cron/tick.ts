/**
 * `tick(locks, name, scheduledAt, work)`: run the work of one tick once in the whole fleet, whatever scheduler has told
 * that the time has come. Every host calls it with the same instant.
 *
 * A call may find that a host has died in the middle of an earlier tick. With `takeover` it runs that one first, and
 * then goes on with its own: the answer is about the tick that was asked for.
 */
import { type Duration, parseDuration } from '../../core/duration.ts'
import type { LineAcquireOptions, Lock } from '../../core/lock.ts'
import { joinSignals, onAbort } from '../../core/on-abort.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import { type Found, RecordStore } from '../../store/record-store.ts'
import { CronJob, type RunWork } from './cron-job.ts'
import type { JobPolicy } from './decision.ts'
import { type JobRecord, keyOf } from './job-record.ts'
import { policyOf, RUN_OPTIONS, type RunOptions } from './options.ts'
import { type SingleTick, singleTick } from './schedule.ts'

/** Options of one tick. */
export interface TickOptions extends RunOptions {
  /**
   * How far the clock of this host may be ahead of the server's: 2 minutes unless given. A tick that is not there yet
   * by the server's time is waited for, if it comes within this time, and refused if not.
   */
  readonly skew?: Duration
  /** Ends the wait, and tells the work to stop. */
  readonly signal?: AbortSignal
  /** Locks on another engine, for the records. */
  readonly store?: Locks
}

/**
 * What became of the tick that was asked for. `claimed`: another host has begun it, or a later one. `late`: the grace
 * was over. `overlap`: the run before it was going on. `early`: it is further ahead of the server's time than `skew`;
 * the clock of this host is wrong. `stopped`: `signal` aborted before the work began.
 */
export type TickResult<Result> =
  | { readonly ran: true; readonly value: Result }
  | { readonly ran: false; readonly why: 'claimed' | 'late' | 'overlap' | 'early' | 'stopped' }

const TICK_OPTIONS: OptionNames<TickOptions> = { ...RUN_OPTIONS, skew: true, signal: true, store: true }
const DEFAULT_SKEW: Duration = '2m'

/**
 * Rejects with what the work threw, with `LeaseLostError`, or with what the engine says; with an `AggregateError` where
 * an earlier tick, which this call took over, has failed as well.
 */
export async function tick<Result>(
  locks: Locks,
  name: string,
  scheduledAt: Date | number,
  work: RunWork<Result>,
): Promise<TickResult<Result>>
export async function tick<Result>(
  locks: Locks,
  name: string,
  scheduledAt: Date | number,
  options: TickOptions,
  work: RunWork<Result>,
): Promise<TickResult<Result>>
export async function tick<Result>(
  locks: Locks,
  name: string,
  scheduledAt: Date | number,
  first: TickOptions | RunWork<Result>,
  second?: RunWork<Result>,
): Promise<TickResult<Result>> {
  const options = second === undefined ? {} : (first as TickOptions)
  const work = (second ?? first) as RunWork<Result>
  if (typeof work !== 'function')
    throw new TypeError(`tick takes the work as a function, and options before it; got ${typeof work}`)
  checkTickOptions('tick()', options)
  return await runTickOf(locks, name, singleTick(instantOf(scheduledAt)), options, work)
}

export function checkTickOptions(call: string, options: TickOptions): void {
  checkOptions(call, options, TICK_OPTIONS)
}

/** A tick that is ready to be run: its options are read. */
interface TickPlan {
  readonly skewMs: number
  readonly policy: JobPolicy
  readonly lock: Lock<LineAcquireOptions>
  readonly records: RecordStore<JobRecord>
}

/** Throws what is wrong with the options, and `UnsupportedError` where the engine cannot do it. */
export function planTick(locks: Locks, name: string, options: TickOptions): TickPlan {
  return {
    skewMs: parseDuration(options.skew ?? DEFAULT_SKEW, 'skew'),
    policy: policyOf(locks, 'skip', options),
    lock: locks.mutex(keyOf(name), options.ttl === undefined ? {} : { ttl: options.ttl }),
    records: new RecordStore<JobRecord>('tick', locks, options),
  }
}

/**
 * `schedule` has one tick, of a schedule that another scheduler keeps. `takesOlder`: whether the work may first finish
 * an earlier tick that a dead process has left unfinished.
 */
export async function runTickOf<Result>(
  locks: Locks,
  name: string,
  schedule: SingleTick,
  options: TickOptions,
  work: RunWork<Result>,
  takesOlder = true,
): Promise<TickResult<Result>> {
  const { skewMs, policy: asked, lock, records } = planTick(locks, name, options)
  const policy = { ...asked, takesOlder }
  const stop = joinSignals([options.signal])
  try {
    const job = new CronJob(locks, records, { name, schedule, policy, lock, work }, stop.signal)
    return await runTick(locks, job, schedule.tick, skewMs, stop.signal)
  } finally {
    stop.stop()
  }
}

async function runTick<Result>(
  locks: Locks,
  job: CronJob<Result>,
  at: number,
  skewMs: number,
  stop: AbortSignal,
): Promise<TickResult<Result>> {
  let found = await job.look()
  if (at - job.time.now() > skewMs) return { ran: false, why: 'early' }
  // The clock of this host is ahead: the tick is claimed when it is there by the server's.
  while (at > job.time.now() && !stop.aborted) {
    await pause(locks, at - job.time.now(), stop)
    locks.keeper.refuseIfClosed()
    found = await job.look()
  }
  const failures: unknown[] = []
  try {
    const result = await runAsked(locks, job, found, at, stop, failures)
    if (failures.length === 0) return result
  } catch (error) {
    failures.push(error)
  }
  if (failures.length === 1) throw failures[0]
  throw new AggregateError(failures, `several ticks of '${job.spec.name}' have failed`)
}

/** Run what was left behind first. What it threw goes to `failures`: the tick of this call is run all the same. */
async function runAsked<Result>(
  locks: Locks,
  job: CronJob<Result>,
  before: Found<JobRecord>,
  at: number,
  stop: AbortSignal,
  failures: unknown[],
): Promise<TickResult<Result>> {
  for (let found = before; ; found = await job.look()) {
    let begun: number | undefined
    try {
      const turn = await job.turn(found, stop, {
        begun: (tick) => {
          begun = tick
        },
      })
      if (!turn.ran) return await whyNot(job, at, stop)
      if (turn.tick === at) return { ran: true, value: turn.value }
    } catch (error) {
      const isOther = begun !== undefined && begun !== at
      if (!isOther || stop.aborted || locks.draining.aborted) throw error
      failures.push(error)
    }
  }
}

async function whyNot<Result>(job: CronJob<Result>, at: number, stop: AbortSignal): Promise<TickResult<Result>> {
  if (stop.aborted) return { ran: false, why: 'stopped' }
  const { mark } = await job.look()
  if (Number(mark) >= at) return { ran: false, why: 'claimed' }
  return { ran: false, why: job.time.now() - at > job.spec.policy.graceMs ? 'late' : 'overlap' }
}

/** Ends sooner if `stop` aborts, or the locks are closed. */
async function pause(locks: Locks, ms: number, stop: AbortSignal): Promise<void> {
  const { clock, closing } = locks.keeper
  const alive = clock.stayAlive()
  const ending = joinSignals([stop, closing])
  await new Promise<void>((resolve) => {
    const timer = clock.timer(ms, resolve)
    const end = (): void => {
      timer.cancel()
      resolve()
    }
    onAbort(ending.signal, end)
    if (ending.signal.aborted) end()
  })
  alive.cancel()
  ending.stop()
}

function instantOf(scheduledAt: Date | number): number {
  const at = scheduledAt instanceof Date ? scheduledAt.getTime() : scheduledAt
  if (typeof at === 'number' && Number.isInteger(at) && at > 0) return at
  throw new TypeError(`scheduledAt must be a date, or whole milliseconds since 1970; got ${String(scheduledAt)}`)
}
