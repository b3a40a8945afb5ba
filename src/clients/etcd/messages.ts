/**
 * The messages of etcd that we send and read. Field numbers are those of etcd's rpc.proto and kv.proto
 * (https://github.com/etcd-io/etcd/blob/main/api/etcdserverpb/rpc.proto), which never change; whatever else an answer
 * has is passed over.
 */
import { type Reader, Writer } from './proto.ts'

export interface Header {
  readonly revision: bigint
  /** Of the raft term: two answers with the same one were given under the same leader. */
  readonly term: bigint
}

export interface KeyValue {
  readonly key: string
  readonly createRevision: bigint
  readonly modRevision: bigint
  readonly value: Buffer
  /** 0: none. */
  readonly lease: bigint
}

/** The keys from `key` up to, not including, `end`; without it, one key. */
export interface Keys {
  readonly key: string
  readonly end?: string
}

const TARGETS = { version: 0, create: 1, mod: 2, lease: 4 } as const
const RESULTS = { equal: 0, greater: 1, less: 2 } as const
/** The field in which a comparison has its value, by target. */
const VALUES = { version: 4, create: 5, mod: 6, lease: 8 } as const

/** True if it is so of every key named. A key that does not exist has 0 in everything. */
export interface Compare extends Keys {
  readonly target: keyof typeof TARGETS
  readonly result: keyof typeof RESULTS
  readonly value: bigint
}

export interface Range extends Keys {
  readonly limit?: number
  /** In the order in which they were created; else in that of the keys. */
  readonly oldestFirst?: boolean
  readonly keysOnly?: boolean
}

export interface Put {
  readonly key: string
  readonly lease: bigint
  /** Without one, the key keeps what it has; then it has to exist. */
  readonly value?: string
}

export interface Deletion extends Keys {
  /** Answer with what was deleted. */
  readonly telling?: boolean
}

export type Op =
  | { readonly range: Range }
  | { readonly put: Put }
  | { readonly delete: Deletion }
  | { readonly txn: Txn }

export interface Txn {
  readonly compare?: readonly Compare[]
  readonly success: readonly Op[]
  readonly failure?: readonly Op[]
}

export interface RangeAnswer {
  readonly kvs: readonly KeyValue[]
  /** How many there are in all, also beyond the limit. */
  readonly count: number
}

export interface TxnAnswer {
  readonly header: Header
  readonly succeeded: boolean
  readonly answers: readonly OpAnswer[]
}

export interface DeletionAnswer {
  readonly count: number
  /** What was deleted, if that was asked for. */
  readonly before: readonly KeyValue[]
}

export interface OpAnswer {
  readonly range?: RangeAnswer
  readonly deletion?: DeletionAnswer
  readonly txn?: TxnAnswer
}

export interface WatchEvent {
  readonly kind: 'put' | 'delete'
  readonly kv: KeyValue
}

export interface WatchAnswer {
  readonly header: Header
  readonly watch: number
  readonly created: boolean
  readonly canceled: boolean
  /** Above 0: what was asked for has been compacted. */
  readonly compactRevision: bigint
  readonly reason: string
  readonly events: readonly WatchEvent[]
}

export const NO_HEADER: Header = { revision: 0n, term: 0n }

// ---- what is sent ----

export function writeTxn(writer: Writer, txn: Txn): void {
  for (const compare of txn.compare ?? []) writer.message(1, (inner) => writeCompare(inner, compare))
  for (const op of txn.success) writer.message(2, (inner) => writeOp(inner, op))
  for (const op of txn.failure ?? []) writer.message(3, (inner) => writeOp(inner, op))
}

function writeCompare(writer: Writer, { key, end, target, result, value }: Compare): void {
  writer.number(1, RESULTS[result]).number(2, TARGETS[target]).bytes(3, key).number(VALUES[target], value).text(64, end)
}

function writeOp(writer: Writer, op: Op): void {
  if ('range' in op) writer.message(1, (inner) => writeRange(inner, op.range))
  else if ('put' in op) writer.message(2, (inner) => writePut(inner, op.put))
  else if ('delete' in op) writer.message(3, (inner) => writeDeletion(inner, op.delete))
  else writer.message(4, (inner) => writeTxn(inner, op.txn))
}

const ASCENDING = 1
const BY_CREATION = 2

export function writeRange(writer: Writer, { key, end, limit = 0, oldestFirst = false, keysOnly }: Range): void {
  writer.bytes(1, key).text(2, end).number(3, limit)
  if (oldestFirst) writer.number(5, ASCENDING).number(6, BY_CREATION)
  writer.flag(8, keysOnly)
}

function writePut(writer: Writer, { key, value, lease }: Put): void {
  writer.bytes(1, key).text(2, value).number(3, lease)
  writer.flag(5, value === undefined)
}

export function writeDeletion(writer: Writer, { key, end, telling }: Deletion): void {
  writer.bytes(1, key).text(2, end).flag(3, telling)
}

export interface WatchCreation extends Keys {
  readonly watch: number
  readonly fromRevision: bigint
  readonly deletesOnly: boolean
}

/** The filter that leaves out puts is number 0 of a packed list. */
const NO_PUTS = Buffer.from([0])

export function watchCreation({ key, end, watch, fromRevision, deletesOnly }: WatchCreation): Buffer {
  const writer = new Writer().message(1, (inner) => {
    inner.bytes(1, key).text(2, end).number(3, fromRevision)
    if (deletesOnly) inner.bytes(5, NO_PUTS)
    inner.number(7, watch)
  })
  return writer.framed()
}

export function watchCancelation(watch: number): Buffer {
  return new Writer().message(2, (inner) => inner.number(1, watch)).framed()
}

// ---- what is read ----

export function readHeader(reader: Reader): Header {
  let [revision, term] = [0n, 0n]
  while (reader.next()) {
    if (reader.field === 3) revision = reader.long()
    else if (reader.field === 4) term = reader.long()
  }
  return { revision, term }
}

const EMPTY: Buffer = Buffer.alloc(0)

function readKeyValue(reader: Reader): KeyValue {
  let [key, createRevision, modRevision, value, lease]: [string, bigint, bigint, Buffer, bigint] = [
    '',
    0n,
    0n,
    EMPTY,
    0n,
  ]
  while (reader.next()) {
    if (reader.field === 1) key = reader.text()
    else if (reader.field === 2) createRevision = reader.long()
    else if (reader.field === 3) modRevision = reader.long()
    else if (reader.field === 5) value = reader.bytes()
    else if (reader.field === 6) lease = reader.long()
  }
  return { key, createRevision, modRevision, value, lease }
}

export function readRange(reader: Reader): RangeAnswer & { readonly header: Header } {
  let header = NO_HEADER
  const kvs: KeyValue[] = []
  let count = 0
  while (reader.next()) {
    if (reader.field === 1) header = readHeader(reader.message())
    else if (reader.field === 2) kvs.push(readKeyValue(reader.message()))
    else if (reader.field === 4) count = reader.number()
  }
  return { header, kvs, count }
}

export function readTxn(reader: Reader): TxnAnswer {
  let header = NO_HEADER
  let succeeded = false
  const answers: OpAnswer[] = []
  while (reader.next()) {
    if (reader.field === 1) header = readHeader(reader.message())
    else if (reader.field === 2) succeeded = reader.number() === 1
    else if (reader.field === 3) answers.push(readOp(reader.message()))
  }
  return { header, succeeded, answers }
}

function readOp(reader: Reader): OpAnswer {
  let answer: OpAnswer = {}
  while (reader.next()) {
    if (reader.field === 1) answer = { range: readRange(reader.message()) }
    else if (reader.field === 3) answer = { deletion: readDeletion(reader.message()) }
    else if (reader.field === 4) answer = { txn: readTxn(reader.message()) }
  }
  return answer
}

export function readDeletion(reader: Reader): DeletionAnswer {
  let count = 0
  const before: KeyValue[] = []
  while (reader.next()) {
    if (reader.field === 2) count = reader.number()
    else if (reader.field === 3) before.push(readKeyValue(reader.message()))
  }
  return { count, before }
}

export function readWatch(reader: Reader): WatchAnswer {
  let [header, watch, created, canceled, compactRevision, reason] = [NO_HEADER, 0, false, false, 0n, '']
  const events: WatchEvent[] = []
  while (reader.next()) {
    if (reader.field === 1) header = readHeader(reader.message())
    else if (reader.field === 2) watch = reader.number()
    else if (reader.field === 3) created = reader.number() === 1
    else if (reader.field === 4) canceled = reader.number() === 1
    else if (reader.field === 5) compactRevision = reader.long()
    else if (reader.field === 6) reason = reader.text()
    else if (reader.field === 11) events.push(readEvent(reader.message()))
  }
  return { header, watch, created, canceled, compactRevision, reason, events }
}

const NO_KEY: KeyValue = { key: '', createRevision: 0n, modRevision: 0n, value: EMPTY, lease: 0n }

function readEvent(reader: Reader): WatchEvent {
  let [kind, kv]: ['put' | 'delete', KeyValue] = ['put', NO_KEY]
  while (reader.next()) {
    if (reader.field === 1) kind = reader.number() === 1 ? 'delete' : 'put'
    else if (reader.field === 2) kv = readKeyValue(reader.message())
  }
  return { kind, kv }
}

/** The fields of a short answer that are whole numbers, and the first text: leases, tokens, versions. */
export interface Plain {
  readonly header: Header
  readonly numbers: ReadonlyMap<number, bigint>
}

/** An answer that is a header and whole numbers. */
export function readPlain(reader: Reader, fields: readonly number[]): Plain {
  let header = NO_HEADER
  const numbers = new Map<number, bigint>()
  while (reader.next()) {
    if (reader.field === 1) header = readHeader(reader.message())
    else if (fields.includes(reader.field)) numbers.set(reader.field, reader.long())
  }
  return { header, numbers }
}

/** One text of an answer. */
export function readText(reader: Reader, field: number): string {
  let text = ''
  while (reader.next()) if (reader.field === field) text = reader.text()
  return text
}
