/**
 * Schedules: from a pattern, or a length of time, to ticks.
 *
 * A tick is an instant that every host computes alike, whatever its clock says and whenever it was started. So nothing
 * here asks what time it is, and a pattern is read in UTC unless a zone is named: hosts may be set to different ones.
 * Patterns are read by croner, which is used for this arithmetic only. All hosts of a fleet need the same version of
 * it: parsers differ about what to do when clocks are changed (docs/recipes/cron.md). They need the same time zones,
 * too, which are those of Node.
 */
import { createRequire } from 'node:module'
import type { Cron } from 'croner'
import { type Duration, parseDuration } from '../../core/duration.ts'

/** When a job runs: a cron pattern, or a length of time. */
export type JobSchedule = string | { readonly every: Duration }

/** The ticks of a job. Times are milliseconds since 1970. */
export interface Schedule {
  /** For people: `0 3 * * * (Europe/Berlin)`. */
  readonly text: string
  /** The first tick after `afterMs`; null if there is none. */
  next(afterMs: number): number | null
  /** The last ticks that are after `afterMs` and not after `untilMs`: at most `most` of them, the oldest first. */
  newest(afterMs: number, untilMs: number, most: number): readonly number[]
}

const SHORTEST_EVERY_MS = 100
/** Patterns are of whole seconds: two ticks of one are never closer. */
const SHORTEST_GAP_MS = 1000

const WITHOUT_CRONER = "; { every: '1h' } needs none"

/**
 * Throws a `TypeError` or a `RangeError` that says what is wrong with `when` or `zone`. `withoutCroner`: what the user
 * can write instead of a pattern, which is told where croner is missing.
 */
export function scheduleOf(
  name: string,
  when: JobSchedule,
  zone: string | undefined,
  withoutCroner: string = WITHOUT_CRONER,
): Schedule {
  if (typeof when === 'string') return patternSchedule(name, when, zone ?? 'UTC', withoutCroner)
  if (typeof when !== 'object' || when === null || !('every' in when))
    throw new TypeError(`the schedule of '${name}' must be a cron pattern or { every: '30s' }; got ${typeof when}`)
  if (zone !== undefined) throw new TypeError(`the job '${name}' has slots, which are the same in every zone: no zone`)
  return everySchedule(name, when.every)
}

/** A schedule of one tick. */
export interface SingleTick extends Schedule {
  readonly tick: number
}

/** Only this one. `text`: what people call the schedule that it is of, where that is known. */
export function singleTick(tick: number, text: string = new Date(tick).toISOString()): SingleTick {
  return {
    tick,
    text,
    next: (afterMs) => (afterMs < tick ? tick : null),
    newest: (afterMs, untilMs) => (afterMs < tick && tick <= untilMs ? [tick] : []),
  }
}

/** Slots: the whole multiples of `every` since 1970. A host that is started later has the same ones. */
function everySchedule(name: string, every: Duration): Schedule {
  const everyMs = parseDuration(every, 'every')
  if (!Number.isInteger(everyMs) || everyMs < SHORTEST_EVERY_MS)
    throw new RangeError(
      `every of '${name}' must be at least ${SHORTEST_EVERY_MS} ms, and whole milliseconds; got ${every}`,
    )
  return {
    text: `every ${every}`,
    next: (afterMs) => (Math.floor(afterMs / everyMs) + 1) * everyMs,
    newest(afterMs, untilMs, most) {
      const last = Math.floor(untilMs / everyMs)
      const first = Math.max(Math.floor(afterMs / everyMs), last - most) + 1
      return Array.from({ length: Math.max(0, last - first + 1) }, (_, index) => (first + index) * everyMs)
    },
  }
}

function patternSchedule(name: string, pattern: string, zone: string, withoutCroner: string): Schedule {
  const cron = parsed(name, pattern, zone, withoutCroner)
  const next = (afterMs: number): number | null => cron.nextRun(new Date(afterMs))?.getTime() ?? null
  return {
    text: zone === 'UTC' ? pattern : `${pattern} (${zone})`,
    next,
    newest: (afterMs, untilMs, most) => newestOf(next, afterMs, untilMs, most),
  }
}

/**
 * Span by span, from the end. Inside of one forwards only: a tick has to be the same one from wherever the count
 * begins. How dense ticks are is not known, so a span that had too few of them is followed by a longer one. A longer
 * one may be full of them (all seconds of a Monday, seen on Sunday): it is given up after some, and the count goes on
 * at its last.
 */
function newestOf(next: Schedule['next'], afterMs: number, untilMs: number, most: number): readonly number[] {
  let found: number[] = []
  let end = untilMs
  for (let spanMs = most * SHORTEST_GAP_MS; found.length < most && end > afterMs; spanMs *= 4) {
    const from = Math.max(afterMs, end - spanMs)
    const some = firstOf(next, from, end, 2 * most)
    if (some.length === 2 * most) {
      end = lastOf(next, from, end)
      spanMs = (most * SHORTEST_GAP_MS) / 4
    } else {
      found = [...some, ...found]
      end = from
    }
  }
  return found.slice(-most)
}

/** The first ticks that are after `afterMs` and not after `untilMs`. */
function firstOf(next: Schedule['next'], afterMs: number, untilMs: number, most: number): number[] {
  const found: number[] = []
  for (let tick = next(afterMs); tick !== null && tick <= untilMs && found.length < most; tick = next(tick))
    found.push(tick)
  return found
}

/** The last tick that is after `afterMs` and not after `untilMs`, where there is one: by halves. */
function lastOf(next: Schedule['next'], afterMs: number, untilMs: number): number {
  let last = next(afterMs) ?? untilMs
  for (let [from, until] = [last, untilMs]; until - from >= SHORTEST_GAP_MS; ) {
    const middle = Math.floor((from + until) / 2)
    const tick = next(middle)
    if (tick === null || tick > untilMs) {
      until = middle
    } else {
      last = tick
      from = tick
    }
  }
  return last
}

function parsed(name: string, pattern: string, zone: string, withoutCroner: string): Cron {
  // croner puts the time of its start there, which is another one on each host.
  if (pattern.includes('?')) throw new TypeError(`'?' in the schedule of '${name}' would be another time on each host`)
  const { Cron: Pattern } = loadCroner(name, withoutCroner)
  try {
    const cron = new Pattern(pattern, { paused: true, timezone: zone })
    if (cron.getPattern() === undefined) throw new TypeError('a date is no pattern')
    cron.nextRun(new Date(0))
    return cron
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause)
    throw new TypeError(`the schedule of '${name}' cannot be read: '${pattern}' in the zone '${zone}': ${why}`, {
      cause,
    })
  }
}

/** At once, not by `import()`: `add` can then refuse a wrong pattern where it was written. */
function loadCroner(name: string, instead: string): typeof import('croner') {
  try {
    return createRequire(import.meta.url)('croner') as typeof import('croner')
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code !== 'MODULE_NOT_FOUND' || !message.includes("'croner'")) throw cause
    throw new TypeError(`the cron pattern of '${name}' needs a package: npm install croner${instead}`, { cause })
  }
}
