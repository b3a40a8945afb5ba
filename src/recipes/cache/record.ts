/**
 * What `cache` stores for a key, and the rules about time.
 *
 *     nothing ── filling ── value ── (stale) ── nothing
 *                   └────── failed ──────────── nothing
 *
 * *filling* is the claim of a filler: it is stored before the fill begins, and what is filled replaces it by its
 * version. So a claim that was removed by an invalidation, or replaced by the next filler, refuses the value. A claim
 * in a line that is free was left by a filler that has died.
 *
 * Time is the server's: how much longer a record lives (`livesForMs`) says how old its value is. No clock of a host is
 * compared with that of another one.
 */
import type { StoredFailure } from '../../core/errors.ts'
import type { Found } from '../../store/record-store.ts'
import type { Serializer } from '../../store/serializer.ts'

/** All have these. */
interface CommonCacheRecord {
  /** The entry of the filler: what two fillers store is never the same. */
  readonly by: string
}

export interface FillingRecord extends CommonCacheRecord {
  readonly is: 'filling'
}

export interface ValueRecord extends CommonCacheRecord {
  readonly is: 'value'
  /** For how long of its life it is stale: the last part of it. */
  readonly staleMs: number
  /** How long the fill took. */
  readonly tookMs: number
  /**
   * A refresh has failed: none is tried until the value has no more than this left (ms). Below 0: until so long after
   * the end of the value.
   */
  readonly restMs?: number
  /** The entry of the filler whose refresh has failed. */
  readonly restBy?: string
  /** What that fill has thrown. Callers are given it between the end of the value and the next try. */
  readonly failure?: StoredFailure
  /** For how long the record is kept beyond its value: a refresh replaces it by its version, and may take longer. */
  readonly spareMs: number
  /** The value is in a key-value store of the user. A process that was not given that store has no value here. */
  readonly outside?: true
  /** The value. Empty where it is outside. */
  readonly bytes: Uint8Array
}

export interface FailureRecord extends CommonCacheRecord {
  readonly is: 'failed'
  readonly failure: StoredFailure
}

/** What another recipe has stored under the key, by whatever form: it is no record of a cache. */
export interface ForeignRecord {
  readonly is: 'foreign'
}

/** Undefined: there is none, or its value is not to be had. */
export type CacheRecord = FillingRecord | ValueRecord | FailureRecord | ForeignRecord | undefined

const NEWLINE = 10
const NO_BYTES = Buffer.alloc(0)
const FOREIGN: ForeignRecord = { is: 'foreign' }

/** One line of JSON, and then the value as it is: it is not made JSON a second time. */
export const recordSerializer: Serializer = {
  encode(record) {
    const { bytes, ...head } = record as Partial<ValueRecord>
    return Buffer.concat([Buffer.from(`${JSON.stringify(head)}\n`), bytes ?? NO_BYTES])
  },
  decode(stored) {
    const all = Buffer.from(stored.buffer, stored.byteOffset, stored.byteLength)
    const end = all.indexOf(NEWLINE)
    try {
      const head = JSON.parse(all.toString('utf8', 0, end)) as FillingRecord | ValueRecord | FailureRecord | null
      if (head === null || !isOurs(head)) return FOREIGN
      return head.is === 'value' ? { ...head, bytes: all.subarray(end + 1) } : head
    } catch {
      return FOREIGN
    }
  },
}

/** Every release has had these two. A kind that only a later one knows is replaced: it is a cache's all the same. */
function isOurs({ by, is }: { readonly by?: unknown; readonly is?: unknown }): boolean {
  return typeof by === 'string' && typeof is === 'string'
}

/**
 * What a record is good for.
 * - `value`: it can be served. `freshMs` is how much longer it is fresh, 0 if it is stale. `refresh`: it is time to
 *   make a new one.
 * - `failure`: the fill has failed, a short while ago.
 * - `nothing`: there is no value.
 */
export type CacheVerdict =
  | { readonly is: 'value'; readonly record: ValueRecord; readonly freshMs: number; readonly refresh: boolean }
  | { readonly is: 'failure'; readonly failure: StoredFailure }
  | { readonly is: 'nothing' }

const NOTHING: CacheVerdict = { is: 'nothing' }

/** `early` is the factor of XFetch, and `fraction` its chance. */
export function judge(
  { value: record, livesForMs }: Pick<Found<CacheRecord>, 'value' | 'livesForMs'>,
  early: number,
  fraction: () => number,
): CacheVerdict {
  if (record?.is === 'failed') return { is: 'failure', failure: record.failure }
  if (record?.is !== 'value') return NOTHING
  const leftMs = (livesForMs ?? Number.POSITIVE_INFINITY) - record.spareMs
  const { failure, restMs, staleMs } = record
  const rests = restMs !== undefined && leftMs > restMs
  if (leftMs <= 0) return rests && failure !== undefined ? { is: 'failure', failure } : NOTHING
  const freshMs = Math.max(0, leftMs - staleMs)
  const due = freshMs === 0 || (early > 0 && isEarly(early, record.tookMs, freshMs, fraction()))
  return { is: 'value', record, freshMs, refresh: due && !rests }
}

/**
 * XFetch: the one who asks tosses a coin, which shows "refresh" more often the nearer the end is, and the longer a fill
 * takes. So one of many callers begins in time, without a word between them.
 */
function isEarly(beta: number, tookMs: number, leftMs: number, fraction: number): boolean {
  // A fraction is below 1, so the logarithm is finite.
  return -beta * tookMs * Math.log(1 - fraction) >= leftMs
}

/** What was stored together does not end together. Only ever shorter: the user has said how old a value may be. */
export function jittered(ttlMs: number, jitter: number, fraction: number): number {
  return ttlMs * (1 - jitter * fraction)
}

const SHORTEST_SPARE_MS = 30_000
const LONGEST_SPARE_MS = 3_600_000

/** A refresh most often takes about as long as the fill before it. */
export function spareMsOf(tookMs: number): number {
  return Math.ceil(Math.min(Math.max(SHORTEST_SPARE_MS, 3 * tookMs), LONGEST_SPARE_MS))
}

/**
 * A refresh has failed, and the value of `before` is kept: for as long as it would have lived, and with a note that no
 * other refresh is tried for `negativeMs`. If it ends before that is over, what is left is the failure.
 */
export function keptAfterFailure(
  before: ValueRecord,
  leftMs: number,
  negativeMs: number,
  failure: StoredFailure,
  restBy: string,
): { readonly record: ValueRecord; readonly ttlMs: number } {
  const spareMs = Math.ceil(Math.max(before.spareMs, negativeMs - leftMs))
  const record = { ...before, restBy, restMs: leftMs - negativeMs, failure, spareMs }
  return { record, ttlMs: leftMs + spareMs }
}

const SPECIAL = /[%:]/

/** The key of the line and of the record. Names and keys cannot run into each other: a colon in a name is escaped. */
export function recordKeyOf(name: string, key: string): string {
  if (typeof key !== 'string' || key === '')
    throw new TypeError(`the key of a value must be a string that is not empty; got ${key === '' ? "''" : typeof key}`)
  return `${SPECIAL.test(name) ? name.replaceAll('%', '%25').replaceAll(':', '%3A') : name}:${key}`
}
