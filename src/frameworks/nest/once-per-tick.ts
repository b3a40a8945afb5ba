/**
 * For `@nestjs/schedule`: `@OncePerTick()` beside `@Cron()`, in either order.
 *
 * A method that `@Cron` calls is not told the instant that it was scheduled for. It is the last tick of the pattern, by
 * the clock of this host, which has called it: so the pattern is read from what `@Cron` has noted at the method.
 */
import { wallClockMs } from '../../core/clock.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Run } from '../../recipes/cron/cron-job.ts'
import { RUN_OPTIONS } from '../../recipes/cron/options.ts'
import { scheduleOf } from '../../recipes/cron/schedule.ts'
import { type TickOptions, tick } from '../../recipes/cron/tick.ts'
import { type LocksOfDecorator, locksFor } from './tokens.ts'
import { type MethodWrapper, noteAt, titleOf, wrapMethod } from './wrap.ts'

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
/** A timer may fire a little before its time. */
const EARLY_MS = 500

/**
 * Let one host of the fleet run the method for each tick. The method is given the `Run`; what it answers is answered
 * where it was run, and undefined elsewhere. A call by hand counts as one of the last tick.
 */
export function OncePerTick<Service = never>(
  options: OncePerTickOptions<Service> = {},
): MethodWrapper<(run: Run) => unknown> {
  checkOptions('@OncePerTick()', options, OPTIONS)
  const { locks: _, module: __, name, ...others } = options
  return (target, key, descriptor) => {
    const locksOf = locksFor<Service>('@OncePerTick()', target, options)
    const title = titleOf({ target, key })
    const wrapped = wrapMethod('@OncePerTick()', { target, key, descriptor }, async ({ service, run }) => {
      const note = noteOf([Reflect.get(target, key) as object, wrapped], title)
      const at = lastTick(title, note)
      const jobName = name ?? note.name ?? title
      const result = await tick(locksOf(service as Service), jobName, at, others, (tickRun) => run([tickRun]))
      return result.ran ? result.value : undefined
    })
  }
}

/** `methods`: that of the class, which another decorator may have wrapped since, and ours. */
function noteOf(methods: readonly object[], title: string): CronNote {
  const [note] = methods.flatMap((method) => (noteAt(CRON_NOTE, method) as CronNote | undefined) ?? [])
  if (note === undefined) throw new TypeError(`@OncePerTick() needs @Cron() beside it, at ${title}`)
  return note
}

function lastTick(title: string, { cronTime, timeZone, utcOffset }: CronNote): number {
  if (cronTime instanceof Date) return cronTime.getTime()
  if (typeof cronTime !== 'string' || utcOffset !== undefined)
    throw new TypeError(`@OncePerTick() needs a pattern or a Date in @Cron(), and no utcOffset, at ${title}`)
  // Without a zone, @Cron() takes that of the host.
  const zone = timeZone ?? Intl.DateTimeFormat().resolvedOptions().timeZone
  const [last] = scheduleOf(title, cronTime, zone).newest(0, wallClockMs() + EARLY_MS, 1)
  if (last === undefined) throw new TypeError(`the schedule of ${title} has had no tick yet: '${cronTime}'`)
  return last
}
