/**
 * What a guard remembers of a resource, and how it decides. Pure: no I/O, no clock. Each backend decides the same way
 * in its own words (SQL, Lua), and tests compare it with this file.
 *
 * Two marks for each resource:
 *
 *     seen      the highest token that ever touched it, to read or to write
 *     written   the highest token that ever wrote it
 *
 * A write needs a token at least as high as `seen`: whoever has a lower one has been replaced, and its replacement has
 * already looked. A read needs one at least as high as `written`, no more, so that readers who hold together do not
 * refuse each other. Either raises the marks. The same token may act again, as often as it likes.
 *
 * Reads count because of this schedule, which a guard of writes alone lets through: A reads and is stopped; B takes
 * over and reads; A wakes and writes; B writes back what it made of the value from before. A's write is lost. Here B's
 * read has raised `seen`, and A's write is refused.
 */
import { StaleTokenError } from '../core/errors.ts'

/** Raised by any change of what is stored that an older Holdfast would misread. */
export const FORMAT = 1

export type Touch = 'read' | 'write'

export interface Marks {
  readonly seen: bigint
  readonly written: bigint
}

/** Nobody has touched it. */
export const UNTOUCHED: Marks = { seen: 0n, written: 0n }

/** The marks of a resource, as they are listed. */
export interface Mark extends Marks {
  readonly resource: string
}

/** The lowest token that may do it now. Asked after `raised`, it answers the same as before. */
export function least(marks: Marks, touch: Touch): bigint {
  return touch === 'write' ? marks.seen : marks.written
}

/** The marks after that token has come by: unchanged if it was too low. */
export function raised(marks: Marks, token: bigint, touch: Touch): Marks {
  if (token < least(marks, touch)) return marks
  return { seen: token > marks.seen ? token : marks.seen, written: touch === 'write' ? token : marks.written }
}

/** Throws `StaleTokenError` unless that token may do it. `marks` from before the touch, or from after it. */
export function demand(resource: string, token: bigint, touch: Touch, marks: Marks): void {
  const seen = least(marks, touch)
  if (token < seen) throw new StaleTokenError(resource, token, seen)
}
