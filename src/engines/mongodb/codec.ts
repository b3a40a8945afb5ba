/**
 * Replies: what a document says of entries, in the words of the contract. What is sent is in pipelines.ts.
 *
 * A whole number comes as a number, as a bigint or as an object of the driver (`Long`), by what the user's client is
 * told to make of it: `tokenOf` takes all of them.
 */
import type { Claim, Line, LineEntry, LineSummary, News, Place, Standing } from '../../core/engine.ts'
import { LineFullError } from '../../core/errors.ts'
import { heldCount } from '../../core/line.ts'
import type { Recheck } from '../shared/recheck-timer.ts'
import { newerFormat } from './errors.ts'
import { EVICTED, FORMAT, LOOK } from './settling.ts'

/** A change reads and writes the whole line, however little of it differs: 2 to 3 ms for this many. */
export const LINE_BOUND = 500

/** A whole number, as a driver gives it. */
export type WholeNumber = number | bigint | { toString(): string }

/** An entry, as far as it was asked for. */
export interface LineDocumentEntry {
  readonly id: string
  readonly token: WholeNumber
  readonly since: Date | null
  readonly expires_at: Date
  readonly evicted?: boolean
}

/** A line as a change leaves it, as far as it was asked for. */
export interface LineDocument {
  readonly _id: string
  readonly format: WholeNumber
  readonly held: WholeNumber
  readonly entries: readonly LineDocumentEntry[]
  readonly evicted: readonly { readonly id: string; readonly expires_at: Date }[]
  readonly news: string
  readonly left: string
  readonly at: Date
}

/** What of a line an answer needs: not who its holders are. */
export const ANSWERED_FIELDS = {
  format: 1,
  held: 1,
  evicted: 1,
  news: 1,
  left: 1,
  at: 1,
  'entries.id': 1,
  'entries.token': 1,
  'entries.since': 1,
  'entries.expires_at': 1,
  'entries.evicted': 1,
} as const

export function tokenOf(value: WholeNumber): bigint {
  return BigInt(value.toString())
}

/** Rejects what a newer version has written. */
export function readable<Stored extends Pick<LineDocument, '_id' | 'format'>>(stored: Stored): Stored {
  if (Number(stored.format) > FORMAT) throw newerFormat(stored._id, Number(stored.format))
  return stored
}

// ---- standings ----

/** Where an entry of `stored` stands; undefined if it is not there. `schedule` is told of one that waits. */
function standingOf(stored: LineDocument, place: Place, schedule: (recheck: Recheck) => void): Standing | undefined {
  const index = stored.entries.findIndex(({ id }) => id === place.id)
  const entry = stored.entries[index]
  if (entry === undefined) {
    const isRemembered = stored.evicted.some(({ id }) => id === place.id)
    return isRemembered ? { state: 'gone', why: 'evicted' } : undefined
  }
  if (entry.evicted === true) return { state: 'gone', why: 'evicted' }
  if (entry.since !== null) return { state: 'held', token: tokenOf(entry.token), heldForMs: place.ttlMs }
  schedule(recheckOf(stored, place, index))
  return { state: 'waiting', ahead: index }
}

/** The first in line looks when the next of the holders can expire; those behind, when the first can. */
function recheckOf(stored: LineDocument, { key, id, ttlMs }: Place, index: number): Recheck {
  const held = Number(stored.held)
  const ahead = index === held ? stored.entries.slice(0, held) : stored.entries.slice(held, held + 1)
  let next = Number.POSITIVE_INFINITY
  for (const { expires_at } of ahead) next = Math.min(next, expires_at.getTime())
  const recheckMs = Math.max(0, next - stored.at.getTime())
  return { key, id, ttlMs, recheckMs, place: index === held ? 'first' : 'behind' }
}

/** Where claims of one line stand after they have entered it, in their order. */
export function enteredStandings(
  stored: LineDocument,
  claims: readonly Claim[],
  schedule: (recheck: Recheck) => void,
): Standing[] {
  return claims.map((claim, index): Standing => {
    const standing = standingOf(stored, claim, schedule)
    if (standing !== undefined) return standing
    const { length } = stored.entries
    const isFull = length >= LINE_BOUND && (claim.wait || (Number(stored.held) === length && claim.limit > length))
    if (isFull) return { state: 'failed', error: new LineFullError(claim.key, LINE_BOUND) }
    // It was there, and is no more: the answer was long on its way.
    if (claim.wait) return { state: 'gone', why: 'unknown' }
    // Claims that came after it stand in the line as well, and are not to be counted.
    return { state: 'busy', ahead: index === claims.length - 1 ? length : null }
  })
}

/** Where entries of one line stand after a renewal. `stored` is undefined where there is no such line. */
export function renewedStandings(
  stored: LineDocument | undefined,
  places: readonly Place[],
  schedule: (recheck: Recheck) => void,
): Standing[] {
  return places.map((place) => {
    const standing = stored === undefined ? undefined : standingOf(stored, place, schedule)
    return standing ?? { state: 'gone', why: 'unknown' }
  })
}

/** Whether each of `ids` was there when it left. One that is named twice has left once. */
export function leaveAnswersOf(stored: Pick<LineDocument, 'left'> | undefined, ids: readonly string[]): boolean[] {
  const left = new Set(stored?.left.split('|'))
  return ids.map((id) => left.delete(id))
}

/** Whether this change has evicted an entry. */
export function hasEvicted(stored: Pick<LineDocument, 'news'> | undefined): boolean {
  return stored?.news.includes(`:${EVICTED}`) ?? false
}

// ---- news ----

/** The news for `engine` that a change of the line of `key` has to tell. Other text is not ours, and is passed over. */
export function newsIn(key: string, text: string, engine: string): News[] {
  const news: News[] = []
  for (const part of text.split('|')) {
    const [to, id, what, ms] = part.split(':')
    if (to !== engine || id === undefined || what === undefined) continue
    if (what === LOOK) news.push({ key, id })
    else if (what === EVICTED) news.push({ key, id, standing: { state: 'gone', why: 'evicted' } })
    else if (/^\d+$/.test(what) && Number(ms) > 0)
      news.push({ key, id, standing: { state: 'held', token: BigInt(what), heldForMs: Number(ms) } })
  }
  return news
}

/** By this a change stream knows, on the server, what is for `engine`: 32 hexadecimal digits. */
export function newsPattern(engine: string): string {
  return `\\|${engine}:`
}

// ---- looking ----

/** An entry as it is shown. */
export interface ShownEntry extends LineDocumentEntry {
  readonly holder: string
  readonly entered_at: Date
  readonly weight: number
  readonly limit: number
  readonly ttl_ms: WholeNumber
}

/** A line as it is read: perhaps some time after its last change, so some may have expired since. */
export interface ShownLine {
  readonly _id: string
  readonly format: WholeNumber
  readonly entries: readonly ShownEntry[]
  /** The server's time when it was read. */
  readonly now: Date
}

/** The entries that live, and how many of them hold: as the next change of the line will find them. */
function livingEntries({ entries, now }: ShownLine): { readonly living: readonly ShownEntry[]; readonly held: number } {
  const living = entries.filter(({ expires_at }) => expires_at > now)
  return { living, held: heldCount(living) }
}

export function lineOf(key: string, shown: ShownLine | undefined): Line {
  if (shown === undefined) return { key, entries: [] }
  const { living, held } = livingEntries(readable(shown))
  const now = shown.now.getTime()
  return { key, entries: living.map((entry, index) => lineEntryOf(entry, index < held, now)) }
}

function lineEntryOf(entry: ShownEntry, holds: boolean, now: number): LineEntry {
  const { id, holder, weight, limit } = entry
  // The clock may have been set back since.
  const sinceMs = (date: Date | null): number => Math.max(0, now - (date?.getTime() ?? now))
  return {
    ...{ id, holder, state: holds ? 'held' : 'waiting', token: tokenOf(entry.token), weight, limit },
    ttlMs: Number(entry.ttl_ms),
    remainingMs: entry.expires_at.getTime() - now,
    ageMs: sinceMs(entry.entered_at),
    heldMs: holds ? sinceMs(entry.since) : null,
    ...(entry.evicted === true ? { evicted: true as const } : {}),
  }
}

export function summaryOf(shown: ShownLine): LineSummary {
  const { living, held } = livingEntries(readable(shown))
  return { key: shown._id, held, waiting: living.length - held }
}
