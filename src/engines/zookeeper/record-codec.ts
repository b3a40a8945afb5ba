/**
 * A record as it is in the data of its node: 26 bytes, and then the value.
 *
 *     1 byte    the version of the format
 *     1 byte    what it is: a value, a removal that is remembered, or nothing
 *     8 bytes   its mark
 *     8 bytes   its ttl (ms); 0: it stays
 *     8 bytes   in which slot it is to be swept (record-slots.ts); 0: in none
 *
 * Its version is the transaction of its last change (`mzxid`). The servers note when that was, by the clock of the
 * leader (`mtime`): so a record expires by that clock, and no client has to know the time to put one.
 */
import type { NodeData } from '../../clients/zookeeper/messages.ts'
import { type Change, TOMBSTONE_MS } from '../../core/store.ts'
import { type KeptRecord, RECORD_KINDS } from '../shared/kept-record.ts'
import { unreadable } from './errors.ts'
import { slotFor } from './record-slots.ts'

const FORMAT = 1
const HEAD_BYTES = 26
/** How long the node of a removal stays where no holder can have found what was removed: the line is empty. */
const NOTHING_MS = 10_000

/** `putAtMs` is by the clock of the servers. */
export interface ZooKeeperRecord extends KeptRecord {
  readonly slot: number
  /** How often the node was changed: what the server compares. */
  readonly nodeVersion: number
}

/** What is in the data of a node. */
export type RecordContent = Pick<ZooKeeperRecord, 'kind' | 'mark' | 'ttlMs' | 'slot' | 'value'>

const NO_VALUE = Buffer.alloc(0)

export const NO_RECORD: ZooKeeperRecord = {
  kind: 'nothing',
  mark: 0n,
  ttlMs: 0,
  slot: 0,
  value: NO_VALUE,
  version: 0n,
  nodeVersion: 0,
  putAtMs: 0,
}

/** Throws an `EngineError` if a newer version, or another program, has put it. */
export function readRecord(path: string, { data, stat }: NodeData): ZooKeeperRecord {
  if (data.length < HEAD_BYTES || data[0] === 0) throw unreadable(path, 'is no record of ours')
  if (data[0] !== FORMAT) throw unreadable(path, `was written by a newer Holdfast (format ${data[0]})`)
  return {
    kind: RECORD_KINDS[data[1] as number] ?? 'nothing',
    mark: data.readBigUInt64BE(2),
    ttlMs: Number(data.readBigUInt64BE(10)),
    slot: Number(data.readBigUInt64BE(18)),
    value: data.subarray(HEAD_BYTES),
    version: stat.mzxid,
    nodeVersion: stat.version,
    putAtMs: stat.mtimeMs,
  }
}

export function writeRecord({ kind, mark, ttlMs, slot, value }: RecordContent): Buffer {
  const head = Buffer.alloc(HEAD_BYTES)
  head[0] = FORMAT
  head[1] = RECORD_KINDS.indexOf(kind)
  head.writeBigUInt64BE(mark, 2)
  head.writeBigUInt64BE(BigInt(ttlMs), 10)
  head.writeBigUInt64BE(BigInt(slot), 18)
  return Buffer.concat([head, value])
}

/** What is there at `nowMs`, by the clock of the servers: what has expired counts as nothing. */
export function asOf(record: ZooKeeperRecord, nowMs: number): ZooKeeperRecord {
  const { kind, ttlMs, putAtMs } = record
  const isOver = ttlMs > 0 && nowMs >= putAtMs + ttlMs
  return kind === 'nothing' || isOver ? { ...record, kind: 'nothing', mark: 0n, value: NO_VALUE } : record
}

/**
 * What a change makes of a record. `remembered`: whether a removal has to be (`TOMBSTONE_MS` in core/store.ts).
 * `nowMs`: roughly what time it is. Only the slot depends on it.
 */
export function changed(before: ZooKeeperRecord, change: Change, remembered: boolean, nowMs: number): RecordContent {
  const { value, mark = 0n } = change
  if (value === null) {
    const ttlMs = remembered ? TOMBSTONE_MS : NOTHING_MS
    return { kind: remembered ? 'removed' : 'nothing', mark: 0n, ttlMs, slot: slotFor(ttlMs, nowMs), value: NO_VALUE }
  }
  const ttlMs = change.ttlMs ?? 0
  return {
    kind: 'value',
    mark: before.mark > mark ? before.mark : mark,
    ttlMs,
    slot: ttlMs === 0 ? 0 : slotFor(ttlMs, nowMs),
    value: Buffer.from(value),
  }
}
