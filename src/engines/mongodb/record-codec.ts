/** What a document says of the record in it, in the words of the contract. */
import type { Got, Put, Stored, StoredSummary, When } from '../../core/store.ts'
import { readable, tokenOf, type WholeNumber } from './codec.ts'

export interface StoredRecord {
  /** Null: it was removed, and that is remembered. */
  readonly value: Uint8Array | null
  readonly bytes: WholeNumber | null
  readonly version: WholeNumber
  readonly mark: WholeNumber
  readonly expires_at: Date | null
}

/** A document as a put leaves it, as far as it was asked for. */
export interface PutDocument {
  readonly _id: string
  readonly format: WholeNumber
  readonly token: WholeNumber
  readonly news: string
  readonly record: StoredRecord | null
  readonly refused_by: '' | keyof When
  readonly at: Date
}

export const PUT_FIELDS = { format: 1, token: 1, news: 1, record: 1, refused_by: 1, at: 1 } as const

/** A document with a record, as it is read. */
export interface ShownRecord {
  readonly _id: string
  readonly format: WholeNumber
  readonly record?: StoredRecord | null
  /** The server's time when it was read. */
  readonly now: Date
}

export const SHOWN_FIELDS = { format: 1, record: 1 } as const

export function putOf(key: string, answer: PutDocument): Put {
  const { token, record, refused_by: by, at } = readable(answer)
  const serverTimeMs = at.getTime()
  if (by !== '') return { state: 'refused', by, stored: storedOf(key, record, at), serverTimeMs }
  return { state: 'stored', version: tokenOf(token), mark: tokenOf(record?.mark ?? 0), serverTimeMs }
}

/** `when` needs something that a key without a document does not have. */
export function putNowhere(key: string, { holding }: When, serverTimeMs: number): Put {
  const by = holding === undefined ? 'version' : 'holding'
  return { state: 'refused', by, stored: nothing(key), serverTimeMs }
}

export function gotNothing(key: string, serverTimeMs: number): Got {
  return { state: 'read', stored: nothing(key), serverTimeMs }
}

export function gotOf(key: string, shown: ShownRecord): Got {
  const { record, now } = readable(shown)
  return { state: 'read', stored: storedOf(key, record, now), serverTimeMs: now.getTime() }
}

/** Undefined: it has expired. */
export function recordSummaryOf(shown: ShownRecord): StoredSummary | undefined {
  const { _id: key, record, now } = readable(shown)
  if (!isLiving(record, now)) return undefined
  const { bytes, version, mark } = record
  const livesForMs = livesForMsOf(record, now)
  return { key, bytes: Number(bytes), version: tokenOf(version), mark: tokenOf(mark), livesForMs }
}

function nothing(key: string): Stored {
  return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
}

function storedOf(key: string, record: StoredRecord | null | undefined, now: Date): Stored {
  if (!isLiving(record, now)) return nothing(key)
  const { value, version, mark } = record
  const livesForMs = value === null ? null : livesForMsOf(record, now)
  return {
    key,
    value: value === null ? null : new Uint8Array(value),
    version: tokenOf(version),
    mark: tokenOf(mark),
    livesForMs,
  }
}

function isLiving(record: StoredRecord | null | undefined, now: Date): record is StoredRecord {
  return record !== null && record !== undefined && (record.expires_at === null || record.expires_at > now)
}

function livesForMsOf({ expires_at }: StoredRecord, now: Date): number | null {
  return expires_at === null ? null : expires_at.getTime() - now.getTime()
}
