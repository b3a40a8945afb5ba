/**
 * The messages of etcd that we send and read, by the names of etcd's rpc.proto and kv.proto
 * (https://github.com/etcd-io/etcd/blob/main/api/etcdserverpb/rpc.proto). Field numbers never change. Fields that we do
 * not need are skipped.
 */
import { type ProtoReader, ProtoWriter } from './proto.ts'

export interface ResponseHeader {
  readonly revision: bigint
  /** The raft term: two responses with the same term were given under the same leader. */
  readonly term: bigint
}

export interface KeyValue {
  readonly key: string
  readonly createRevision: bigint
  readonly modRevision: bigint
  readonly value: Buffer
  /** 0: it has no lease. */
  readonly lease: bigint
}

/** The keys from `key` up to, not including, `end`; without it, one key. */
export interface KeyRange {
  readonly key: string
  readonly end?: string
}

const TARGETS = { version: 0, create: 1, mod: 2, lease: 4 } as const
const RESULTS = { equal: 0, greater: 1, less: 2 } as const
/** The field in which a comparison has its value, by target. */
const VALUES = { version: 4, create: 5, mod: 6, lease: 8 } as const

/** True if it is true of every key in the range. A key that does not exist has 0 in everything. */
export interface Compare extends KeyRange {
  readonly target: keyof typeof TARGETS
  readonly result: keyof typeof RESULTS
  readonly value: bigint
}

export interface RangeRequest extends KeyRange {
  readonly limit?: number
  /** In the order in which the keys were created; else in the order of the keys. */
  readonly oldestFirst?: boolean
  readonly keysOnly?: boolean
}

export interface PutRequest {
  readonly key: string
  readonly lease: bigint
  /** Without it, the key keeps its value, and has to exist. */
  readonly value?: string | Buffer
}

export interface DeleteRequest extends KeyRange {
  /** Answer with what was deleted. */
  readonly prevKv?: boolean
}

export type RequestOp =
  | { readonly range: RangeRequest }
  | { readonly put: PutRequest }
  | { readonly delete: DeleteRequest }
  | { readonly txn: TxnRequest }

export interface TxnRequest {
  readonly compare?: readonly Compare[]
  readonly success: readonly RequestOp[]
  readonly failure?: readonly RequestOp[]
}

export interface RangeResponse {
  readonly kvs: readonly KeyValue[]
  /** How many keys the range has, also beyond the limit. */
  readonly count: number
}

export interface TxnResponse {
  readonly header: ResponseHeader
  readonly succeeded: boolean
  readonly responses: readonly ResponseOp[]
}

export interface DeleteResponse {
  readonly count: number
  /** What was deleted, if `prevKv` asked for it. */
  readonly prevKvs: readonly KeyValue[]
}

export interface ResponseOp {
  readonly range?: RangeResponse
  readonly deletion?: DeleteResponse
  readonly txn?: TxnResponse
}

export interface WatchEvent {
  readonly kind: 'put' | 'delete'
  readonly kv: KeyValue
}

export interface WatchResponse {
  readonly header: ResponseHeader
  readonly watch: number
  readonly created: boolean
  readonly canceled: boolean
  /** Above 0: the revision that the watch was to go on from has been compacted. */
  readonly compactRevision: bigint
  readonly reason: string
  readonly events: readonly WatchEvent[]
}

export const NO_HEADER: ResponseHeader = { revision: 0n, term: 0n }

// ---- what is sent ----

export function writeTxn(writer: ProtoWriter, txn: TxnRequest): void {
  for (const compare of txn.compare ?? []) writer.message(1, (inner) => writeCompare(inner, compare))
  for (const op of txn.success) writer.message(2, (inner) => writeOp(inner, op))
  for (const op of txn.failure ?? []) writer.message(3, (inner) => writeOp(inner, op))
}

function writeCompare(writer: ProtoWriter, { key, end, target, result, value }: Compare): void {
  writer.number(1, RESULTS[result]).number(2, TARGETS[target]).bytes(3, key).number(VALUES[target], value).text(64, end)
}

function writeOp(writer: ProtoWriter, op: RequestOp): void {
  if ('range' in op) writer.message(1, (inner) => writeRange(inner, op.range))
  else if ('put' in op) writer.message(2, (inner) => writePut(inner, op.put))
  else if ('delete' in op) writer.message(3, (inner) => writeDelete(inner, op.delete))
  else writer.message(4, (inner) => writeTxn(inner, op.txn))
}

const ASCENDING = 1
const BY_CREATION = 2

export function writeRange(
  writer: ProtoWriter,
  { key, end, limit = 0, oldestFirst = false, keysOnly }: RangeRequest,
): void {
  writer.bytes(1, key).text(2, end).number(3, limit)
  if (oldestFirst) writer.number(5, ASCENDING).number(6, BY_CREATION)
  writer.flag(8, keysOnly)
}

function writePut(writer: ProtoWriter, { key, value, lease }: PutRequest): void {
  writer.bytes(1, key)
  if (value !== undefined && value.length > 0) writer.bytes(2, value)
  writer.number(3, lease)
  writer.flag(5, value === undefined)
}

export function writeDelete(writer: ProtoWriter, { key, end, prevKv }: DeleteRequest): void {
  writer.bytes(1, key).text(2, end).flag(3, prevKv)
}

export interface WatchCreateRequest extends KeyRange {
  /** The id that the events of this watch are to have. */
  readonly watch: number
  /** 0: from now on. */
  readonly fromRevision: bigint
  /** Leave out the events of puts. */
  readonly deletesOnly: boolean
}

/** A packed list of filters with one element: number 0 leaves out puts. */
const NO_PUTS = Buffer.from([0])

export function watchCreateRequest({ key, end, watch, fromRevision, deletesOnly }: WatchCreateRequest): Buffer {
  const writer = new ProtoWriter().message(1, (inner) => {
    inner.bytes(1, key).text(2, end).number(3, fromRevision)
    if (deletesOnly) inner.bytes(5, NO_PUTS)
    inner.number(7, watch)
  })
  return writer.framed()
}

export function watchCancelRequest(watch: number): Buffer {
  return new ProtoWriter().message(2, (inner) => inner.number(1, watch)).framed()
}

// ---- what is read ----

function readHeader(reader: ProtoReader): ResponseHeader {
  let [revision, term] = [0n, 0n]
  while (reader.next()) {
    if (reader.field === 3) revision = reader.long()
    else if (reader.field === 4) term = reader.long()
  }
  return { revision, term }
}

const EMPTY: Buffer = Buffer.alloc(0)

function readKeyValue(reader: ProtoReader): KeyValue {
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

export function readRange(reader: ProtoReader): RangeResponse & { readonly header: ResponseHeader } {
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

export function readTxn(reader: ProtoReader): TxnResponse {
  let header = NO_HEADER
  let succeeded = false
  const responses: ResponseOp[] = []
  while (reader.next()) {
    if (reader.field === 1) header = readHeader(reader.message())
    else if (reader.field === 2) succeeded = reader.number() === 1
    else if (reader.field === 3) responses.push(readOp(reader.message()))
  }
  return { header, succeeded, responses }
}

function readOp(reader: ProtoReader): ResponseOp {
  let answer: ResponseOp = {}
  while (reader.next()) {
    if (reader.field === 1) answer = { range: readRange(reader.message()) }
    else if (reader.field === 3) answer = { deletion: readDelete(reader.message()) }
    else if (reader.field === 4) answer = { txn: readTxn(reader.message()) }
  }
  return answer
}

export function readDelete(reader: ProtoReader): DeleteResponse {
  let count = 0
  const prevKvs: KeyValue[] = []
  while (reader.next()) {
    if (reader.field === 2) count = reader.number()
    else if (reader.field === 3) prevKvs.push(readKeyValue(reader.message()))
  }
  return { count, prevKvs }
}

export function readWatch(reader: ProtoReader): WatchResponse {
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

function readEvent(reader: ProtoReader): WatchEvent {
  let [kind, kv]: ['put' | 'delete', KeyValue] = ['put', NO_KEY]
  while (reader.next()) {
    if (reader.field === 1) kind = reader.number() === 1 ? 'delete' : 'put'
    else if (reader.field === 2) kv = readKeyValue(reader.message())
  }
  return { kind, kv }
}

/** A response that is a header and whole numbers, by their fields. */
export interface NumbersResponse {
  readonly header: ResponseHeader
  readonly numbers: ReadonlyMap<number, bigint>
}

/** Read a header, and those of `fields` that are there. */
export function readNumbers(reader: ProtoReader, fields: readonly number[]): NumbersResponse {
  let header = NO_HEADER
  const numbers = new Map<number, bigint>()
  while (reader.next()) {
    if (reader.field === 1) header = readHeader(reader.message())
    else if (fields.includes(reader.field)) numbers.set(reader.field, reader.long())
  }
  return { header, numbers }
}

/** One text of a response. */
export function readText(reader: ProtoReader, field: number): string {
  let text = ''
  while (reader.next()) if (reader.field === field) text = reader.text()
  return text
}
