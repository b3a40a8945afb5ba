/**
 * A record as it is in etcd: 26 bytes, and then the value.
 *
 *     1 byte    the version of the format
 *     1 byte    what it is: a value, a removal that is remembered, or nothing
 *     8 bytes   its mark
 *     8 bytes   when it was put, by the clock of the process that put it (ms since 1970): for people
 *     8 bytes   its ttl (ms); 0: it stays
 *
 * Its version is the revision of its last change.
 */
import type { KeyValue } from '../../clients/etcd/messages.ts'
import type { Change, Stored } from '../../core/store.ts'
import { unreadable } from './errors.ts'

const FORMAT = 1
const HEAD_BYTES = 26

/** `nothing`: a removal that need not be remembered. Its key stays for a moment: it gives the removal a number. */
export type EtcdRecordKind = 'value' | 'removed' | 'nothing'

const KINDS: readonly EtcdRecordKind[] = ['nothing', 'removed', 'value']

export interface EtcdRecord {
  readonly kind: EtcdRecordKind
  /** 0: there is no such key. */
  readonly modRevision: bigint
  readonly mark: bigint
  readonly value: Buffer
  readonly ttlMs: number
  readonly putAtMs: number
}

export const NO_RECORD: EtcdRecord = {
  kind: 'nothing',
  modRevision: 0n,
  mark: 0n,
  value: Buffer.alloc(0),
  ttlMs: 0,
  putAtMs: 0,
}

/** Throws an `EngineError` if a newer version, or another program, has put it. */
export function readRecord(kv: KeyValue | undefined): EtcdRecord {
  if (kv === undefined) return NO_RECORD
  const { key, value: bytes, modRevision } = kv
  if (bytes.length < HEAD_BYTES || bytes[0] === 0) throw unreadable(key, 'is no record of ours')
  if (bytes[0] !== FORMAT) throw unreadable(key, `was written by a newer Holdfast (format ${bytes[0]})`)
  return {
    kind: KINDS[bytes[1] as number] ?? 'nothing',
    modRevision,
    mark: bytes.readBigUInt64BE(2),
    putAtMs: Number(bytes.readBigUInt64BE(10)),
    ttlMs: Number(bytes.readBigUInt64BE(18)),
    value: bytes.subarray(HEAD_BYTES),
  }
}

export function writeRecord({ kind, mark, putAtMs, ttlMs, value }: Omit<EtcdRecord, 'modRevision'>): Buffer {
  const head = Buffer.alloc(HEAD_BYTES)
  head[0] = FORMAT
  head[1] = KINDS.indexOf(kind)
  head.writeBigUInt64BE(mark, 2)
  head.writeBigUInt64BE(BigInt(Math.round(putAtMs)), 10)
  head.writeBigUInt64BE(BigInt(ttlMs), 18)
  return Buffer.concat([head, value])
}

/** What a change makes of a record. */
export function changed(before: EtcdRecord, change: Change, putAtMs: number): Omit<EtcdRecord, 'modRevision'> {
  const { value, ttlMs, mark = 0n } = change
  if (value === null) return { kind: 'removed', mark: 0n, putAtMs, ttlMs: 0, value: Buffer.alloc(0) }
  const highest = before.mark > mark ? before.mark : mark
  return { kind: 'value', mark: highest, putAtMs, ttlMs: ttlMs ?? 0, value: Buffer.from(value) }
}

export function storedOf(key: string, record: EtcdRecord, nowMs: number): Stored {
  const { kind, modRevision, mark, value } = record
  if (kind === 'nothing') return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
  if (kind === 'removed') return { key, value: null, version: modRevision, mark: 0n, livesForMs: null }
  return { key, value, version: modRevision, mark, livesForMs: livesForMsOf(record, nowMs) }
}

/** By the clocks of two processes, so it is an estimate; what ends the record is its lease. */
export function livesForMsOf({ ttlMs, putAtMs }: EtcdRecord, nowMs: number): number | null {
  return ttlMs === 0 ? null : Math.min(ttlMs, Math.max(1, putAtMs + ttlMs - nowMs))
}
