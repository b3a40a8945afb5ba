/**
 * What is stored, what is read, and the transactions that enter lines.
 *
 * An entry is stored as JSON that a person can read, with the version of the format in front. Its place in line, which
 * is its token, is the revision that created it.
 */
import type {
  Compare,
  KeyRange,
  KeyValue,
  RangeRequest,
  RangeResponse,
  RequestOp,
  TxnRequest,
  TxnResponse,
} from '../../clients/etcd/messages.ts'
import type { Claim } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { heldCount } from '../../core/line.ts'
import { unreadable } from './errors.ts'
import type { EtcdNames } from './names.ts'

const VERSION = 1
export const LINE_BOUND = 1_000
/** How many entries of a line are read at once; more where more can hold together. */
export const FRONT_SIZE = 32

/** The value of the marker of an entry that was evicted. */
export const EVICTED_MARKER = 'evicted'

/** An entry as it is in etcd. */
export interface StoredEntry {
  readonly id: string
  /** The last part of its key in etcd: see names.ts. */
  readonly name: string
  readonly token: bigint
  readonly weight: number
  readonly limit: number
  readonly holder: string
  readonly lease: bigint
  readonly modRevision: bigint
}

/** A line, or its first entries, in order. */
export interface LineFront {
  /** Up to the first key that is no entry of ours, if there is one: entries behind it cannot know where they stand. */
  readonly entries: readonly StoredEntry[]
  /** How many of `entries` hold. */
  readonly held: number
  /** How many keys the whole line has. */
  readonly count: number
  /** Says which key behind `entries` is no entry of ours. */
  readonly stranger?: EngineError
}

// ---- what is read ----

/** An error, if it is no entry of ours. Any program can put a key into a line. */
export function readEntry({
  key,
  value,
  createRevision: token,
  lease,
  modRevision,
}: KeyValue): StoredEntry | EngineError {
  const { v, id, weight, limit, holder } = parseValue(value)
  if (typeof v !== 'number' || typeof weight !== 'number' || typeof limit !== 'number')
    return unreadable(key, 'is no entry of a line')
  if (v > VERSION) return unreadable(key, `was written by a newer Holdfast (format ${v})`)
  return {
    id: String(id),
    name: key.slice(key.lastIndexOf('/') + 1),
    token,
    weight,
    limit,
    holder: String(holder),
    lease,
    modRevision,
  }
}

/**
 * An entry as people are shown it. A key that is no entry of ours is shown as one that holds alone, without an id: no
 * entry can hold behind it. What is stored there may be a secret, and is not shown.
 */
export function readShownEntry(kv: KeyValue): StoredEntry {
  const entry = readEntry(kv)
  if (!(entry instanceof EngineError)) return entry
  const { key, value, createRevision: token, lease, modRevision } = kv
  const { v } = parseValue(value)
  const holder = typeof v === 'number' && v > VERSION ? 'a newer Holdfast' : 'a program without Holdfast'
  return { id: '', name: key.slice(key.lastIndexOf('/') + 1), token, weight: 1, limit: 1, holder, lease, modRevision }
}

function parseValue(value: Buffer): Record<string, unknown> {
  try {
    const read: unknown = JSON.parse(value.toString())
    if (typeof read === 'object' && read !== null) return read as Record<string, unknown>
  } catch {
    // What is no JSON has no properties, like JSON that is no object.
  }
  return {}
}

/** The response to a range that was read oldest first. */
export function toLineFront({ kvs, count }: RangeResponse): LineFront {
  const entries: StoredEntry[] = []
  for (const kv of kvs) {
    const entry = readEntry(kv)
    if (entry instanceof EngineError) return { entries, held: heldCount(entries), count, stranger: entry }
    entries.push(entry)
  }
  return { entries, held: heldCount(entries), count }
}

/** The front of a line that the operation `index` of a transaction has read. */
export function lineFrontIn({ responses }: TxnResponse, index: number): LineFront {
  return toLineFront(responses[index]?.range ?? { kvs: [], count: 0 })
}

/** What is left of a line when some entries have gone. */
export function withoutEntries(front: LineFront, isGone: (entry: StoredEntry) => boolean): LineFront {
  const { entries, count } = front
  const left = entries.filter((entry) => !isGone(entry))
  return { ...front, entries: left, held: heldCount(left), count: count - (entries.length - left.length) }
}

// ---- what is compared ----

export const isAbsent = (key: string): Compare => ({ key, target: 'create', result: 'equal', value: 0n })

export const isEmptyLine = ({ key, end }: Required<KeyRange>): Compare => ({
  key,
  end,
  target: 'version',
  result: 'equal',
  value: 0n,
})

/** No entry has come into this line, and none was moved to another lease, since `revision`. (One may have gone.) */
export const isUnchangedLine = (line: Required<KeyRange>, revision: bigint): Compare => ({
  ...line,
  target: 'mod',
  result: 'less',
  value: revision + 1n,
})

/** The entry that was read is still there, under the same lease. */
export const isUnchanged = (key: string, { modRevision }: StoredEntry): Compare => ({
  key,
  target: 'mod',
  result: 'equal',
  value: modRevision,
})

/** The entry with this token is still there, under any lease. */
export const hasToken = (key: string, token: bigint): Compare => ({
  key,
  target: 'create',
  result: 'equal',
  value: token,
})

// ---- what is sent ----

/** A claim, the lease that its entry is put under, and the name of the entry if the line is empty. */
export interface EnterRequest<Lease extends { readonly id: bigint } = { readonly id: bigint }> {
  readonly claim: Claim
  readonly lease: Lease
  readonly name: string
}

function entryValue({ id, weight, limit, holder }: Claim): string {
  return JSON.stringify({ v: VERSION, id, weight, limit, holder })
}

/**
 * Enter a line, and wait in it. If the line is empty, the entry is put by `name`; there is nothing to read. Else it is
 * put by its id, and operation 1 of the inner transaction reads the front of the line.
 */
export function enterTxn(names: EtcdNames, { claim, lease, name }: EnterRequest): TxnRequest {
  const line = names.line(claim.key)
  const entry = names.entry(claim.key, claim.id)
  const unmarked = isAbsent(names.marker(claim.key, claim.id))
  const value = entryValue(claim)
  const put = (key: string): RequestOp => ({ put: { key, value, lease: lease.id } })
  const behind: TxnRequest = {
    compare: [isAbsent(entry), unmarked],
    success: [put(entry), { range: frontRange(line, claim) }],
  }
  return {
    compare: [isEmptyLine(line), unmarked],
    success: [put(names.entry(claim.key, name))],
    failure: [{ txn: behind }],
  }
}

/** Enter a line only if `condition` is true of it. Else read, in this order, its front, the entry, and its marker. */
export function enterIfTxn(names: EtcdNames, { claim, lease, name }: EnterRequest, condition: Compare): TxnRequest {
  const line = names.line(claim.key)
  const marker = names.marker(claim.key, claim.id)
  return {
    compare: [condition, isAbsent(marker)],
    success: [{ put: { key: names.entry(claim.key, name), value: entryValue(claim), lease: lease.id } }],
    failure: [
      { range: frontRange(line, claim) },
      { range: { key: names.entry(claim.key, claim.id) } },
      { range: { key: marker } },
    ],
  }
}

/** As much of the line as it takes to know whether the claim holds. */
function frontRange({ key, end }: Required<KeyRange>, { limit }: Claim): RangeRequest {
  return { key, end, oldestFirst: true, limit: limit > LINE_BOUND ? 0 : Math.max(FRONT_SIZE, limit) }
}

/** A server takes 128 operations in one transaction, and operations of inner transactions count, too. */
const CLAIMS_AT_ONCE = 96
/**
 * A server takes a megabyte and a half in one request. A key is in the request of a claim about ten times, and has
 * three times its length there if it is nothing but slashes.
 */
const CHARACTERS_AT_ONCE = 32_768

/**
 * How many claims become transactions: as few as can be, and none too large. Two claims of one line are never in the
 * same round, since all that one transaction creates has one revision, and so one token. Answers rounds, which go one
 * after the other; each has transactions, and each of these has indexes of claims.
 */
export function enterRounds(claims: readonly Claim[]): readonly (readonly (readonly number[])[])[] {
  const turns = new Map<string, number>()
  const rounds: { transactions: number[][]; characters: number }[] = []
  for (const [index, { key, holder }] of claims.entries()) {
    const turn = turns.get(key) ?? 0
    turns.set(key, turn + 1)
    rounds[turn] ??= { transactions: [[]], characters: 0 }
    const round = rounds[turn]
    round.characters += key.length + holder.length
    if (round.transactions.at(-1)?.length === CLAIMS_AT_ONCE || round.characters > CHARACTERS_AT_ONCE) {
      round.transactions.push([])
      round.characters = key.length + holder.length
    }
    round.transactions.at(-1)?.push(index)
  }
  return rounds.map(({ transactions }) => transactions)
}
