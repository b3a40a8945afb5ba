/**
 * One alphabet for what servers answer about entries, in SQL and in Lua:
 *
 *     h  it holds since this call; an engine that sends the token instead needs no letter for it
 *     H  it holds since an earlier call (Redis, whose answer to a renewal has the token behind the letter)
 *     w  it waits, first in line            b  busy: it could not hold at once, and nothing of it remains
 *     q  it waits, behind another waiter    u  the server does not know it
 *     s  it waits, and may not be woken     e  it was evicted
 *     f  the line is full                   l  another transaction has locked the line
 *     x  what is stored at the key is no line that this engine can use
 *     t  another entry has the key (Redlock, of one of its servers)
 *
 * Not woken by the one before it, that is: on Redis that is a stranger, who tells nothing when it goes; on MySQL it is
 * an entry of another user of the database, who may not be allowed to wake this one.
 *
 * What stands behind a letter differs: it is said at the head of redis/lua/place.lua, of sql/enter.sql of PostgreSQL
 * and of MySQL, and in redlock/codec.ts.
 */
import type { Place, Standing } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import type { Recheck } from './recheck-timer.ts'

const PLACES = { w: 'first', q: 'behind', s: 'stranger' } as const

/** Whether that letter says that the entry waits. */
export function isWaiting(letter: string | undefined): letter is keyof typeof PLACES {
  return letter === 'w' || letter === 'q' || letter === 's'
}

/** It waits, with `ahead` before it ('' where that was not counted), and is to be rechecked after `recheckMs`. */
export function waitingStanding(
  letter: keyof typeof PLACES,
  { key, id, ttlMs }: Place,
  ahead: string,
  recheckMs: number,
  schedule: (recheck: Recheck) => void,
): Standing {
  schedule({ key, id, ttlMs, recheckMs, place: PLACES[letter] })
  return { state: 'waiting', ahead: ahead === '' ? null : Number(ahead) }
}

const DIGIT_9 = 57

/** What differs in the codes of PostgreSQL and MySQL. */
export interface SqlCodeReading {
  readonly lineBound: number
  recheckMsOf(text: string | undefined): number
  schedule(recheck: Recheck): void
}

/**
 * Where a place stands, by a code of SQL: the token of an entry that holds; or a letter, and behind colons how many are
 * before it and when to recheck. Undefined for a letter that an engine reads itself.
 */
export function sqlStandingOf(code: string, place: Place, reading: SqlCodeReading): Standing | undefined {
  if (code.charCodeAt(0) <= DIGIT_9) return { state: 'held', token: BigInt(code), heldForMs: place.ttlMs }
  const [letter, ahead = '', recheck] = code.split(':')
  if (isWaiting(letter)) return waitingStanding(letter, place, ahead, reading.recheckMsOf(recheck), reading.schedule)
  return settledStanding(letter, place.key, () => ahead, reading.lineBound)
}

/** What the other letters say that every engine has; undefined for one that an engine reads itself. */
export function settledStanding(
  letter: string | undefined,
  key: string,
  ahead: () => string,
  lineBound: number,
): Standing | undefined {
  switch (letter) {
    case 'b':
      return { state: 'busy', ahead: Number(ahead()) }
    case 'u':
      return { state: 'gone', why: 'unknown' }
    case 'e':
      return { state: 'gone', why: 'evicted' }
    case 'f':
      return { state: 'failed', error: new LineFullError(key, lineBound) }
    default:
      return undefined
  }
}
