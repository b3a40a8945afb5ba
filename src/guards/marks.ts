/**
 * What a guard remembers of a resource, and how it decides. Pure: no I/O, no clock. Each backend decides the same way
 * in its own words (SQL, Lua), and tests compare it with this file.
 *
 * Two marks for each resource:
 *
 *     seen      the highest token that ever read or wrote it
 *     written   the highest token that ever wrote it
 *
 * A write needs a token at least as high as `seen`: a holder with a lower one has been replaced, and its replacement
 * has already read. A read needs one at least as high as `written`, no more, so that readers who hold together do not
 * refuse each other. Either raises the marks. The same token may act again, as often as it likes.
 *
 * Reads count because of this schedule, which a guard of writes alone lets through: A reads and is stopped; B takes
 * over and reads; A wakes and writes; B writes back what it made of the value from before. A's write is lost. Here B's
 * read has raised `seen`, and A's write is refused.
 *
 * A mark stays for ever, unless the user says how long one is to stay that no token uses any more (`forget`). Each use
 * puts its end off, and never brings it nearer: where guards of one resource do not agree, the longest time counts.
 */
import { type Duration, parseDuration } from '../core/duration.ts'
import { StaleTokenError } from '../core/errors.ts'

/** Raised by any change of what is stored that an older Holdfast would misread. */
export const FORMAT = 1

/** Where guards keep marks in a database, unless the user names another table. */
export const MARKS_TABLE = 'holdfast_marks'

export type Access = 'read' | 'write'

/** The highest token that was seen, and the highest that has written. */
export interface Marks {
  readonly seen: bigint
  readonly written: bigint
}

/** The marks of a resource that no token has read or written. */
export const NO_MARKS: Marks = { seen: 0n, written: 0n }

/** The marks of a resource, as they are listed. */
export interface Mark extends Marks {
  readonly resource: string
}

/**
 * How long to keep the mark of a resource that no token uses: milliseconds, or a number with its unit, days (`'30d'`)
 * among them.
 */
export type ForgetAfter = Duration | `${number}d`

/** When a mark ends that is never forgotten: later than any clock, and the highest number that backends store. */
export const FOR_EVER: bigint = 2n ** 63n - 1n

const DAY_HOURS = 24

/** Milliseconds; undefined for ever. */
export function parseForget(forget: ForgetAfter | undefined): number | undefined {
  if (forget === undefined) return undefined
  const [, days] = (typeof forget === 'string' && /^(\d+(?:\.\d+)?)d$/.exec(forget)) || []
  const ms = Math.ceil(
    parseDuration(days === undefined ? (forget as Duration) : `${Number(days) * DAY_HOURS}h`, 'forget'),
  )
  if (ms > 0 && Number.isSafeInteger(ms)) return ms
  throw new RangeError(`forget must be longer than nothing, and end at some time; got '${forget}'`)
}

/** The lowest token that may do it now. Asked after `raiseMarks`, it answers the same as before. */
export function lowestToken(marks: Marks, access: Access): bigint {
  return access === 'write' ? marks.seen : marks.written
}

/** The marks after an access with that token: unchanged if the token was too low. */
export function raiseMarks(marks: Marks, token: bigint, access: Access): Marks {
  if (token < lowestToken(marks, access)) return marks
  return { seen: token > marks.seen ? token : marks.seen, written: access === 'write' ? token : marks.written }
}

/** Throws `StaleTokenError` unless that token may do it. `marks` from before they were raised, or from after it. */
export function checkToken(resource: string, token: bigint, access: Access, marks: Marks): void {
  const lowest = lowestToken(marks, access)
  if (token < lowest) throw new StaleTokenError(resource, token, lowest)
}
