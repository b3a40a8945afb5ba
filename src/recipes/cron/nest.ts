/**
 * For `@nestjs/schedule`: `@OncePerTick()` beside `@Cron()`, in either order.
 *
 * A method that `@Cron` calls is not told the instant that it was scheduled for. It is the last tick of the pattern, by
 * the clock of this host, which has called it: so the pattern is read from what `@Cron` has noted at the method.
 */
import { wallClockMs } from '../../core/clock.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import type { Locks } from '../../locks.ts'
import type { Run } from './cron-job.ts'
import { RUN_OPTIONS } from './options.ts'
import { scheduleOf } from './schedule.ts'
import { type TickOptions, tick } from './tick.ts'

/** Options of `@OncePerTick()`. */
export interface OncePerTickOptions<Service = unknown> extends TickOptions {
  /** The locks, or where the object has them: `(service) => service.locks`. */
  readonly locks: Locks | ((service: Service) => Locks)
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

/** reflect-metadata, which every Nest application loads. */
interface Metadata {
  getMetadataKeys(target: object): unknown[]
  getMetadata(key: unknown, target: object): unknown
  defineMetadata(key: unknown, value: unknown, target: object): void
}

type Method<Service> = (this: Service, run: Run) => unknown

const OPTIONS: OptionNames<OncePerTickOptions> = {
  ...RUN_OPTIONS,
  skew: true,
  signal: true,
  store: true,
  locks: true,
  name: true,
}
const CRON_NOTE = 'SCHEDULE_CRON_OPTIONS'
/** A timer may fire a little before its time. */
const EARLY_MS = 500

/**
 * Let one host of the fleet run the method for each tick. The method is given the `Run`; what it answers is answered
 * where it was run, and undefined elsewhere. A call by hand counts as one of the last tick.
 */
export function OncePerTick<Service>(
  options: OncePerTickOptions<Service>,
): (target: object, key: string | symbol, descriptor: TypedPropertyDescriptor<Method<Service>>) => void {
  checkOptions('@OncePerTick()', options, OPTIONS)
  const { locks, name, ...others } = options
  return (target, key, descriptor) => {
    const method = descriptor.value
    if (typeof method !== 'function')
      throw new TypeError(`@OncePerTick() belongs to a method; '${String(key)}' is none`)
    const title = `${target.constructor.name}.${String(key)}`
    const wrapped = async function (this: Service): Promise<unknown> {
      const note = noteOf(wrapped, title)
      const at = lastTick(title, note)
      const found = typeof locks === 'function' ? locks(this) : locks
      const result = await tick(found, name ?? note.name ?? title, at, others, (run) => method.call(this, run))
      return result.ran ? result.value : undefined
    }
    descriptor.value = Object.defineProperty(wrapped, 'name', { value: method.name })
    copyNotes(method, wrapped)
  }
}

/** What `@Cron` has noted before us. What it notes after us, it notes at the new method. */
function copyNotes(from: object, to: object): void {
  const metadata = metadataOf()
  for (const key of metadata?.getMetadataKeys(from) ?? [])
    metadata?.defineMetadata(key, metadata.getMetadata(key, from), to)
}

function metadataOf(): Metadata | undefined {
  return 'getMetadata' in Reflect ? (Reflect as unknown as Metadata) : undefined
}

function noteOf(method: object, title: string): CronNote {
  const note = metadataOf()?.getMetadata(CRON_NOTE, method) as CronNote | undefined
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
