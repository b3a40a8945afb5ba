/**
 * What `replace` stores for a list, and every decision about it. Pure: no I/O, no clock. One record under one key, in
 * the database of the rows, changed by its version and inside of the transactions that change the rows.
 *
 *     accepted ── batch 1 ── … ── batch n ── published      readers see it from now on, until the next one is
 *         └───────────┴─────────────┴─────── superseded     a newer upload was accepted: it cannot write any more
 *
 * Every upload has a generation, which its rows carry: a number that only rises, counted here. It is not the time, and
 * not a token: both can go back, and rows of two uploads would mix. At most one upload may write: `live`. All others
 * are published, or retired: their rows are waste.
 */
import type { UploadName } from '../../core/errors.ts'

/** The upload that may write. */
export interface LiveUpload extends UploadName {
  /** The call that works on it. One that takes over an upload after a crash has another one. */
  readonly by: string
  /** How many of its batches are stored. */
  readonly stored: number
}

/** An upload that is over. */
export interface PastUpload extends UploadName {
  /** Whether readers have seen it. */
  readonly published: boolean
}

export interface ReplaceRecord {
  /** The highest generation that was given out. */
  readonly latest: number
  /** The generation of the last upload that did not wait for those before it. */
  readonly won: number
  /** The highest number of the caller's own that was accepted. */
  readonly order?: number | undefined
  readonly live?: LiveUpload | undefined
  readonly published?: UploadName | undefined
  /** Rows of all generations up to this one were removed, but for the one that is published. */
  readonly removedTo: number
  /** The last ones, oldest first. */
  readonly past: readonly PastUpload[]
}

/** Nothing was ever uploaded. */
export const NO_UPLOADS: ReplaceRecord = { latest: 0, won: 0, removedTo: 0, past: [] }

/** How many uploads that are over are remembered. A retry of one that is forgotten counts as a new upload. */
export const MOST_PAST = 100

/** A call that wants to upload. */
export interface UploadClaim {
  readonly by: string
  readonly upload?: string | undefined
  readonly order?: number | undefined
  /** It does not wait for uploads before it: they are superseded. */
  readonly wins: boolean
  /** `won` of the record when the call came. An upload that has won since then is newer. */
  readonly wonBefore?: number | undefined
}

export type Acceptance =
  | { readonly state: 'accepted'; readonly record: ReplaceRecord; readonly live: LiveUpload }
  /** This very upload is what readers see already. */
  | { readonly state: 'published'; readonly generation: number }
  | { readonly state: 'superseded' }

/** Whether that call may upload. From then on no other call may, until another one is accepted. */
export function acceptUpload(record: ReplaceRecord, claim: UploadClaim): Acceptance {
  const { live, published } = record
  const { by, upload, order, wins } = claim
  if (upload !== undefined && upload === published?.upload)
    return { state: 'published', generation: published.generation }
  if (isOlder(record, claim)) return { state: 'superseded' }
  const isResumed = live !== undefined && isSame(live, claim)
  const generation = isResumed ? live.generation : record.latest + 1
  const next: LiveUpload = isResumed ? { ...live, by } : { generation, upload, order, by, stored: 0 }
  const accepted: ReplaceRecord = {
    ...record,
    latest: generation,
    won: wins ? generation : record.won,
    order: order ?? record.order,
    live: next,
    past: isResumed || live === undefined ? record.past : withPast(record.past, live, false),
  }
  return { state: 'accepted', record: accepted, live: next }
}

function isOlder({ live, past, order, won }: ReplaceRecord, claim: UploadClaim): boolean {
  if (claim.wonBefore !== undefined && won > claim.wonBefore) return true
  if (claim.upload !== undefined && past.some(({ upload }) => upload === claim.upload)) return true
  if (claim.order === undefined || order === undefined) return false
  return claim.order < order || (claim.order === order && !isSame(live, claim))
}

/** Whether the claim is for that upload, and not for another one. */
function isSame(live: LiveUpload | undefined, { upload }: UploadClaim): boolean {
  return upload !== undefined && upload === live?.upload
}

/** A call that was accepted, and the upload that it works on. */
export interface Uploader {
  readonly by: string
  readonly generation: number
}

/** Whether a step of an upload may be done. */
export type StepVerdict =
  /** Do it together with storing this record. */
  | { readonly state: 'store'; readonly record: ReplaceRecord }
  /** It was done before. */
  | { readonly state: 'stored' }
  /** A batch before it is not stored: no more than so many are. */
  | { readonly state: 'gap'; readonly stored: number }
  /** More batches are stored than the upload has: a batch that had no number is there twice. */
  | { readonly state: 'surplus'; readonly stored: number }
  | { readonly state: 'superseded' }

/** Whether a batch may be stored now. `number`: 1 for the first one; the next one unless given. */
export function storeBatch(record: ReplaceRecord, { by }: Uploader, number?: number): StepVerdict {
  const { live } = record
  if (live?.by !== by) return { state: 'superseded' }
  const { stored } = live
  if (number !== undefined && number <= stored) return { state: 'stored' }
  if (number !== undefined && number > stored + 1) return { state: 'gap', stored }
  return { state: 'store', record: { ...record, live: { ...live, stored: stored + 1 } } }
}

/** Whether the upload may be what readers see, from now on. `batches`: how many it has, if that is known. */
export function publishUpload(record: ReplaceRecord, { by, generation }: Uploader, batches?: number): StepVerdict {
  const { live, published, past } = record
  if (published?.generation === generation) return { state: 'stored' }
  if (live?.by !== by) return { state: 'superseded' }
  const { upload, order, stored } = live
  if (batches !== undefined && stored < batches) return { state: 'gap', stored }
  if (batches !== undefined && stored > batches) return { state: 'surplus', stored }
  const next: ReplaceRecord = {
    ...record,
    live: undefined,
    published: { generation, upload, order },
    // What was published is waste now, and the generations below it were not asked for since.
    removedTo: Math.min(record.removedTo, (published?.generation ?? Number.POSITIVE_INFINITY) - 1),
    past: published === undefined ? past : withPast(past, published, true),
  }
  return { state: 'store', record: next }
}

/** The call gives up, and no other can go on with its upload: it has no name. Undefined: nothing is to be changed. */
export function abandonUpload(record: ReplaceRecord, { by }: Uploader): ReplaceRecord | undefined {
  const { live, past } = record
  return live?.by === by ? { ...record, live: undefined, past: withPast(past, live, false) } : undefined
}

/** Whether readers see that generation, or have seen it. */
export function wasPublished({ published, past }: ReplaceRecord, generation: number): boolean {
  return (
    published?.generation === generation || past.some((one) => one.generation === generation && one.published === true)
  )
}

/** The upload that is newer than one that was superseded. */
export function newerUpload({ live, published, latest }: ReplaceRecord): UploadName {
  const newest = live ?? published
  return newest === undefined || newest.generation < latest ? { generation: latest } : nameOf(newest)
}

export function nameOf({ generation, upload, order }: UploadName): UploadName {
  return {
    generation,
    ...(upload === undefined ? {} : { upload }),
    ...(order === undefined ? {} : { order }),
  }
}

/** Generations whose rows can be removed: the lowest ones first, at most so many. */
export function retiredGenerations({ latest, live, published, removedTo }: ReplaceRecord, most: number): number[] {
  const retired: number[] = []
  for (let generation = removedTo + 1; generation <= latest && retired.length < most; generation += 1)
    if (generation !== live?.generation && generation !== published?.generation) retired.push(generation)
  return retired
}

/** The rows of these generations, which were retired, are not there any more. */
export function withRemoved(record: ReplaceRecord, removed: readonly number[]): ReplaceRecord {
  const gone = new Set(removed)
  let { removedTo } = record
  while (gone.has(removedTo + 1) || removedTo + 1 === record.published?.generation) removedTo += 1
  return { ...record, removedTo }
}

function withPast(past: readonly PastUpload[], over: UploadName, published: boolean): readonly PastUpload[] {
  return [...past, { ...nameOf(over), published }].slice(-MOST_PAST)
}
