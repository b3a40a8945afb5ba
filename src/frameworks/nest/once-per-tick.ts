/**
 * For `@nestjs/schedule`: `@OncePerTick()` beside `@Cron()`, in either order.
 *
 * A method that `@Cron` calls is not told the instant that it was scheduled for. It is the last tick of the pattern, by
 * the clock of this host, which has called it: so the pattern is read from what `@Cron` has noted at the method. It is
 * read once when the application starts, too. What is wrong with it would be told at the first tick otherwise, and that
 * may be at three in the morning.
 */
import { Logger } from '@nestjs/common'
import { wallClockMs } from '../../core/clock.ts'
import { ClosedError, LeaseLostError } from '../../core/errors.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { thrownText } from '../../core/thrown.ts'
import type { Run } from '../../recipes/cron/cron-job.ts'
import { RUN_OPTIONS } from '../../recipes/cron/options.ts'
import { type Schedule, type SingleTick, scheduleOf, singleTick } from '../../recipes/cron/schedule.ts'
import { planTick, runTickOf, type TickOptions } from '../../recipes/cron/tick.ts'
import { areKnownAtStart, type LocksOfDecorator, locksFor } from './tokens.ts'
import { checkAtStart, type MethodWrapper, noteAt, titleOf, wrapMethod } from './wrap.ts'

/** Options of `@OncePerTick()`: those of `tick()`, and these. */
export interface OncePerTickOptions<Service = never> extends TickOptions, LocksOfDecorator<Service> {
  /** What the job is called on all hosts: the `name` that `@Cron` was given, or `Class.method`, unless given. */
  readonly name?: string
}

/** What `@Cron` notes at a method. */
interface CronNote {
  readonly cronTime?: unknown
  readonly name?: string
  readonly timeZone?: string
  readonly utcOffset?: unknown
}

const OPTIONS: OptionNames<OncePerTickOptions> = {
  ...RUN_OPTIONS,
  skew: true,
  signal: true,
  store: true,
  locks: true,
  module: true,
  name: true,
}
const CRON_NOTE = 'SCHEDULE_CRON_OPTIONS'
/**
 * A timer may fire a little before its time: by this, and by this part of the time between two ticks. A call that comes
 * late is not to be taken for an early one of the next tick: its own tick would be lost.
 */
const EARLY_MS = 500
const EARLY_PART = 0.05

/**
 * Let one host of the fleet run the method for each tick. The method is given the `Run`; what it answers is answered
 * where it was run, and undefined elsewhere. A call by hand counts as one of the last tick. What it throws because it
 * was told to stop, when the application ends, is a line of the log.
 */
export function OncePerTick<Service = never>(
  options: OncePerTickOptions<Service> = {},
): MethodWrapper<(run: Run) => unknown> {
  checkOptions('@OncePerTick()', options, OPTIONS)
  const { locks: _, module: __, name, ...others } = options
  return (target, key, descriptor) => {
    const locksOf = locksFor<Service>('@OncePerTick()', target, options)
    const title = titleOf({ target, key })
    const jobName = (noted: CronNote): string => name ?? noted.name ?? title
    const note = (): CronNote => noteOf([Reflect.get(target, key) as object, wrapped], title)
    const wrapped = wrapMethod('@OncePerTick()', { target, key, descriptor }, async ({ service, run }) => {
      const noted = note()
      const schedule = lastTick(title, noted)
      let last: Run | undefined
      let inWork = false
      const work = async (tickRun: Run): Promise<unknown> => {
        last = tickRun
        inWork = true
        const value = await run([tickRun])
        inWork = false
        return value
      }
      try {
        const result = await runTickOf(locksOf(service as Service), jobName(noted), schedule, others, work)
        return result.ran ? result.value : undefined
      } catch (error) {
        // The application is ending, as it should: Nest would log an error, with its stack.
        if (!inWork && error instanceof ClosedError) return undefined
        if (!(last?.signal.reason instanceof ClosedError)) throw error
        new Logger('OncePerTick').warn(`${title} of ${last.tick.toISOString()} ${howEnded(error)}`)
        return undefined
      }
    })
    checkAtStart(target, (service) => {
      const noted = note()
      lastTick(title, noted)
      if (areKnownAtStart(options)) planTick(locksOf(service as Service), jobName(noted), others)
    })
  }
}

/** What became of a run that was told to stop because the application ends, in one line. */
function howEnded(error: unknown): string {
  if (error instanceof LeaseLostError) return 'did not stop in time, and has lost its lock: the application ends'
  return `was stopped, because the application ends: ${thrownText(error).split('\n', 1)[0]}`
}

/** `methods`: that of the class, which another decorator may have wrapped since, and ours. */
function noteOf(methods: readonly object[], title: string): CronNote {
  const [note] = methods.flatMap((method) => (noteAt(CRON_NOTE, method) as CronNote | undefined) ?? [])
  if (note === undefined) throw new TypeError(`@OncePerTick() needs @Cron() beside it, at ${title}`)
  return note
}

function lastTick(title: string, { cronTime, timeZone, utcOffset }: CronNote): SingleTick {
  if (cronTime instanceof Date) return singleTick(cronTime.getTime())
  if (typeof cronTime !== 'string' || utcOffset !== undefined)
    throw new TypeError(`@OncePerTick() needs a pattern or a Date in @Cron(), and no utcOffset, at ${title}`)
  // Without a zone, @Cron() takes that of the host.
  const zone = timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone
  const schedule = scheduleOf(title, cronTime, zone, '')
  const last = tickOfCall(schedule, wallClockMs())
  if (last === undefined) throw new TypeError(`the schedule of ${title} has had no tick yet: '${cronTime}'`)
  return singleTick(last, schedule.text)
}

/** The last tick, or the next one, if it is about to come. Undefined where there was none. */
function tickOfCall({ next, newest }: Schedule, nowMs: number): number | undefined {
  const [last] = newest(0, nowMs, 1)
  const coming = next(nowMs)
  if (coming === null) return last
  const earlyMs = Math.min(EARLY_MS, EARLY_PART * (coming - (last ?? 0)))
  return coming - nowMs <= earlyMs ? coming : last
}
