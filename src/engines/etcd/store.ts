/**
 * The store: a record is a key, `holdfast/record/<key>`. A change is one transaction. It compares the revision of the
 * record with the one that the change was made from, and for `holding` that the entry is still there, by the revision
 * that created it. If either has changed, the same transaction reads both, and the change is made anew from that.
 *
 * Most changes are made from what this process has put or read last, and so take one round trip. Changes of a batch are
 * sent at the same time, each as a transaction of its own: all that one transaction puts has one revision, and each
 * change is to have its own.
 */
import type { EtcdCallOptions, EtcdClient } from '../../clients/etcd/client.ts'
import type { Compare, KeyValue, RequestOp, TxnRequest } from '../../clients/etcd/messages.ts'
import { type Clock, wallClockMs } from '../../core/clock.ts'
import { failingAs } from '../../core/failed-call.ts'
import { heldCount } from '../../core/line.ts'
import { unmetCondition } from '../../core/record-rule.ts'
import {
  type Change,
  type Got,
  type Put,
  type Store,
  type StoredSummary,
  type StoreTraits,
  TOMBSTONE_MS,
  VALUE_LIMIT_BYTES,
  type When,
} from '../../core/store.ts'
import { foundOf, type KeptRecord, livesForMsOf, storedOf, unsettledPut } from '../shared/kept-record.ts'
import { hasToken, isEmptyLine, readEntry } from './codec.ts'
import { asEngineError, ENGINE, isLeaseGone } from './errors.ts'
import type { EtcdNames } from './names.ts'
import type { EtcdOwnEntries, EtcdOwnEntry } from './own-entries.ts'
import { changed, NO_RECORD, readRecord, writeRecord } from './record-codec.ts'
import { RecordLeases } from './record-leases.ts'

const traits: StoreTraits = {
  holding: true,
  valueLimitBytes: VALUE_LIMIT_BYTES,
  batchLimit: 64,
  takesSignal: ['get', 'put'],
  survives: 'the death of any client, and of any minority of members; not the restore of a snapshot',
}

/** How many records one transaction reads: a megabyte of the largest. */
const READS_AT_ONCE = 16
/** How often a change is tried. If another client was faster each time, it is given up, and was not made. */
const TRIES = 50
/** How many records are remembered, to make changes from. */
const REMEMBERED = 1000
/** How long the key of a removal stays where no holder can have found what was removed: the line is empty. */
const NOTHING_MS = 10_000

export interface EtcdStoreSetup {
  readonly client: EtcdClient
  readonly clock: Clock
  readonly names: EtcdNames
  readonly entries: EtcdOwnEntries
}

/** A record, and whether the entry that a change asks about holds, both read in one transaction. */
interface EtcdRecordRead {
  readonly record: KeptRecord
  readonly holds: boolean
}

export class EtcdStore implements Store {
  readonly traits: StoreTraits = traits
  readonly #context: EtcdStoreSetup
  readonly #leases: RecordLeases
  /** What this process has put or read last, without values; the longest ago first. */
  readonly #recent = new Map<string, KeptRecord>()

  constructor(context: EtcdStoreSetup) {
    this.#context = context
    this.#leases = new RecordLeases(context.client, context.clock)
  }

  async get(keys: readonly string[], signal?: AbortSignal): Promise<readonly Got[]> {
    const parts: Promise<readonly Got[]>[] = []
    for (let from = 0; from < keys.length; from += READS_AT_ONCE)
      parts.push(this.#get(keys.slice(from, from + READS_AT_ONCE), { signal }))
    return (await failingAs(asEngineError, 'get', Promise.all(parts))).flat()
  }

  async put(changes: readonly Change[], signal?: AbortSignal): Promise<readonly Put[]> {
    const before = new Map<string, Promise<Put>>()
    const puts = changes.map((change) => {
      const earlier = before.get(change.key)
      const made =
        earlier === undefined ? this.#put(change, { signal }) : earlier.then(() => this.#put(change, { signal }))
      const put = made.catch((error: unknown): Put => ({ state: 'failed', error: asEngineError('put', error) }))
      before.set(change.key, put)
      return put
    })
    return await Promise.all(puts)
  }

  async *list(prefix: string): AsyncGenerator<StoredSummary> {
    const { client, names } = this.#context
    const { key: first, end } = names.records(prefix)
    for (let [from, more] = [first, true]; more; ) {
      const page = client.range({ key: from, end, limit: READS_AT_ONCE })
      const { kvs, count } = await failingAs(asEngineError, 'list', page)
      for (const kv of kvs) {
        if (!kv.key.startsWith(first)) return
        const record = readRecord(kv)
        const { mark, version, value } = record
        if (record.kind !== 'value') continue
        const livesForMs = livesForMsOf(record, wallClockMs())
        yield { key: names.parseRecord(kv.key), bytes: value.length, version, mark, livesForMs }
      }
      from = `${kvs.at(-1)?.key}\0`
      more = count > kvs.length
    }
  }

  async #get(keys: readonly string[], options: EtcdCallOptions): Promise<readonly Got[]> {
    const { client, names } = this.#context
    const success = keys.map((key) => ({ range: { key: names.record(key) } }))
    const { responses } = await client.txn({ success }, options)
    return keys.map((key, index): Got => {
      try {
        const record = readRecord(responses[index]?.range?.kvs[0])
        this.#remember(key, record)
        return { state: 'read', stored: storedOf(key, record, wallClockMs()), serverTimeMs: null }
      } catch (error) {
        // A newer version, or another program, has put it. The others are there.
        return { state: 'failed', error: asEngineError('get', error) }
      }
    })
  }

  async #put(change: Change, options: EtcdCallOptions): Promise<Put> {
    const { key, when } = change
    const entry = await this.#holder(key, when.holding, options)
    const mayHold = when.holding === undefined || entry !== undefined
    // What is expected of a record that this process does not know: if that is wrong, the transaction says so.
    const expectsNothing = when.absent === true || when.version === 0n
    let known = this.#recent.get(key) ?? (expectsNothing ? NO_RECORD : undefined)
    if (!mayHold || (known !== undefined && unmetCondition(when, foundOf(known), () => true) !== undefined))
      known = undefined
    for (let tries = 1; tries <= TRIES; tries += 1) {
      if (known === undefined) {
        const read = await this.#read(key, entry, options)
        const by = unmetCondition(when, foundOf(read.record), () => mayHold && read.holds)
        if (by !== undefined) return this.#refused(key, by, read.record)
        known = read.record
      }
      const made = await this.#try(change, known, entry, options)
      if (typeof made === 'bigint') return this.#stored(change, known, made)
      const { record, holds } = made
      const by = unmetCondition(when, foundOf(record), () => holds)
      if (by !== undefined) return this.#refused(key, by, record)
      known = record
    }
    throw unsettledPut(ENGINE, key)
  }

  /** The revision of the change; or, if it was not made, what is there. */
  async #try(
    change: Change,
    known: KeptRecord,
    entry: EtcdOwnEntry | undefined,
    options: EtcdCallOptions,
  ): Promise<bigint | EtcdRecordRead> {
    const { client, names } = this.#context
    const name = names.record(change.key)
    const compare: Compare[] = [{ key: name, target: 'mod', result: 'equal', value: known.version }]
    if (entry !== undefined) compare.push(hasToken(names.entry(entry.key, entry.name), entry.token))
    const { op, leases } = await this.#writing(change, known)
    try {
      const txn: TxnRequest = { compare, success: [op], failure: this.#reading(change.key, entry) }
      const { succeeded, responses, header } = await client.txn(txn, options)
      return succeeded ? header.revision : readOf(responses, entry)
    } catch (error) {
      if (!isLeaseGone(error)) throw error
      // Nothing was applied.
      for (const lease of leases) this.#leases.forget(lease)
      return await this.#read(change.key, entry, options)
    }
  }

  /** What the change puts, and under which leases. */
  async #writing(
    change: Change,
    known: KeptRecord,
  ): Promise<{ readonly op: RequestOp; readonly leases: readonly bigint[] }> {
    const { names } = this.#context
    const key = names.record(change.key)
    const record = changed(known, change, wallClockMs())
    if (change.value !== null) {
      const lease = change.ttlMs === null ? 0n : await this.#leases.idFor(change.ttlMs)
      return { op: { put: { key, value: writeRecord(record), lease } }, leases: [lease] }
    }
    // A holder may have found what is removed now. Where the line is empty, there is none.
    const [short, long] = await Promise.all([this.#leases.idFor(NOTHING_MS), this.#leases.idFor(TOMBSTONE_MS)])
    const nothing = { put: { key, value: writeRecord({ ...record, kind: 'nothing' }), lease: short } }
    const removed = { put: { key, value: writeRecord(record), lease: long } }
    const txn = { compare: [isEmptyLine(names.line(change.key))], success: [nothing], failure: [removed] }
    return { op: { txn }, leases: [short, long] }
  }

  /**
   * The entry, if it holds as far as this process knows. One that was let in since the last renewal is looked for. From
   * then on it holds for as long as it is there.
   */
  async #holder(key: string, id: string | undefined, options: EtcdCallOptions): Promise<EtcdOwnEntry | undefined> {
    const { client, names, entries } = this.#context
    const entry = id === undefined ? undefined : entries.get(id)
    if (entry?.key !== key) return undefined
    if (entry.held) return entry
    const { kvs } = await client.range({ ...names.line(key), oldestFirst: true }, options)
    const line = kvs.map(readEntry).filter((one) => 'token' in one)
    const place = line.findIndex(({ token }) => token === entry.token)
    // A key that is no entry of ours: what is behind it does not hold.
    const isBehindStranger = line.length < kvs.length
    if (place < 0 || isBehindStranger || place >= heldCount(line)) return undefined
    entry.held = true
    return entry
  }

  #reading(key: string, entry: EtcdOwnEntry | undefined): RequestOp[] {
    const { names } = this.#context
    const record = { range: { key: names.record(key) } }
    return entry === undefined ? [record] : [record, { range: { key: names.entry(entry.key, entry.name) } }]
  }

  async #read(key: string, entry: EtcdOwnEntry | undefined, options: EtcdCallOptions): Promise<EtcdRecordRead> {
    const { responses } = await this.#context.client.txn({ success: this.#reading(key, entry) }, options)
    return readOf(responses, entry)
  }

  #stored(change: Change, before: KeptRecord, version: bigint): Put {
    const { mark } = changed(before, change, 0)
    // Whether a removal is remembered was decided by etcd.
    if (change.value === null) this.#recent.delete(change.key)
    else this.#remember(change.key, { ...changed(before, change, wallClockMs()), version })
    return { state: 'stored', version, mark, serverTimeMs: null }
  }

  #refused(key: string, by: keyof When, record: KeptRecord): Put {
    this.#remember(key, record)
    return { state: 'refused', by, stored: storedOf(key, record, wallClockMs()), serverTimeMs: null }
  }

  #remember(key: string, record: KeptRecord): void {
    this.#recent.delete(key)
    this.#recent.set(key, { ...record, value: NO_RECORD.value })
    const [oldest] = this.#recent.keys()
    if (this.#recent.size > REMEMBERED && oldest !== undefined) this.#recent.delete(oldest)
  }
}

function readOf(
  responses: readonly { readonly range?: { readonly kvs: readonly KeyValue[] } }[],
  entry: EtcdOwnEntry | undefined,
): EtcdRecordRead {
  const [record, holder] = responses.map(({ range }) => range?.kvs[0])
  return { record: readRecord(record), holds: entry === undefined || holder?.createRevision === entry.token }
}
