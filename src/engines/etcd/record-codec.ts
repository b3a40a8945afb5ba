/**
 * A record as it is in etcd: 26 bytes, and then the value.
 *
 *     1 byte    the version of the format
 *     1 byte    what it is: a value, a removal that is remembered, or nothing
 *     8 bytes   its mark
 *     8 bytes   when it was put, by the clock of the process that put it (ms since 1970): for people
 *     8 bytes   its ttl (ms); 0: it stays
 *
 * Its version is the revision of its last change. For how long it lives is an estimate, by the clocks of two processes:
 * what ends the record is its lease.
 */
import type { KeyValue } from '../../clients/etcd/messages.ts'
import type { Change } from '../../core/store.ts'
import { type KeptRecord, RECORD_KINDS } from '../shared/kept-record.ts'
import { unreadable } from './errors.ts'

const FORMAT = 1
const HEAD_BYTES = 26

export const NO_RECORD: KeptRecord = {
  kind: 'nothing',
  version: 0n,
  mark: 0n,
  value: Buffer.alloc(0),
  ttlMs: 0,
  putAtMs: 0,
}

/** Throws an `EngineError` if a newer version, or another program, has put it. */
export function readRecord(kv: KeyValue | undefined): KeptRecord {
  if (kv === undefined) return NO_RECORD
  const { key, value: bytes, modRevision: version } = kv
  if (bytes.length < HEAD_BYTES || bytes[0] === 0) throw unreadable(key, 'is no record of ours')
  if (bytes[0] !== FORMAT) throw unreadable(key, `was written by a newer Holdfast (format ${bytes[0]})`)
  return {
    kind: RECORD_KINDS[bytes[1] as number] ?? 'nothing',
    version,
    mark: bytes.readBigUInt64BE(2),
    putAtMs: Number(bytes.readBigUInt64BE(10)),
    ttlMs: Number(bytes.readBigUInt64BE(18)),
    value: bytes.subarray(HEAD_BYTES),
  }
}

export function writeRecord({ kind, mark, putAtMs, ttlMs, value }: Omit<KeptRecord, 'version'>): Buffer {
  const head = Buffer.alloc(HEAD_BYTES)
  head[0] = FORMAT
  head[1] = RECORD_KINDS.indexOf(kind)
  head.writeBigUInt64BE(mark, 2)
  head.writeBigUInt64BE(BigInt(Math.round(putAtMs)), 10)
  head.writeBigUInt64BE(BigInt(ttlMs), 18)
  return Buffer.concat([head, value])
}

/** What a change makes of a record. */
export function changed(before: KeptRecord, change: Change, putAtMs: number): Omit<KeptRecord, 'version'> {
  const { value, ttlMs, mark = 0n } = change
  if (value === null) return { kind: 'removed', mark: 0n, putAtMs, ttlMs: 0, value: Buffer.alloc(0) }
  const highest = before.mark > mark ? before.mark : mark
  return { kind: 'value', mark: highest, putAtMs, ttlMs: ttlMs ?? 0, value: Buffer.from(value) }
}
