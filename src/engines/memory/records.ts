/**
 * The records of a memory server: the reference of every store. What it does with a map, other engines do in a
 * transaction or a script. The conditions of a change are checked before it is made, and nothing happens in between.
 */
import { Heap, type Heaped } from '../../core/heap.ts'
import { unmetCondition } from '../../core/record-rule.ts'
import { type Change, type Put, type Stored, type StoredSummary, TOMBSTONE_MS } from '../../core/store.ts'

/** `Heaped.at` is the expiry; a record in no heap does not expire. A removal that is remembered has no value. */
interface MemoryRecord extends Heaped {
  readonly key: string
  readonly value: Uint8Array | null
  readonly version: bigint
  readonly mark: bigint
}

/** What the records have to know of the lines beside them. */
export interface MemoryLines {
  /** Whether that entry holds the line. */
  isHolding(key: string, id: string): boolean
  isEmpty(key: string): boolean
  /** A number that is higher than all before it. */
  nextToken(): bigint
}

export class MemoryRecords {
  readonly #lines: MemoryLines
  readonly #records = new Map<string, MemoryRecord>()
  readonly #expiries = new Heap<MemoryRecord>()

  constructor(lines: MemoryLines) {
    this.#lines = lines
  }

  /** How many are kept, removals included. */
  get size(): number {
    return this.#records.size
  }

  get(key: string, now: number): Stored {
    this.#expire(now)
    return stored(key, this.#records.get(key), now)
  }

  put(change: Change, now: number, serverTimeMs: number): Put {
    this.#expire(now)
    const { key, value, ttlMs, when } = change
    const known = this.#records.get(key)
    const found = stored(key, known, now)
    const by = unmetCondition(when, found, (id) => this.#lines.isHolding(key, id))
    if (by !== undefined) return { state: 'refused', by, stored: found, serverTimeMs }

    const version = this.#lines.nextToken()
    const mark = value === null ? 0n : highest(found.mark, change.mark ?? 0n)
    if (known !== undefined) this.#expiries.remove(known)
    // A holder may have found what is removed now, and is refused when it puts something by the old version. Where the
    // line is empty, there is no such holder.
    if (value === null && this.#lines.isEmpty(key)) {
      this.#records.delete(key)
    } else {
      const record = { key, value: copyOf(value), version, mark, at: 0, slot: -1 }
      this.#records.set(key, record)
      const livesForMs = value === null ? TOMBSTONE_MS : ttlMs
      if (livesForMs !== null) this.#expiries.put(record, now + livesForMs)
    }
    return { state: 'stored', version, mark, serverTimeMs }
  }

  *list(prefix: string, now: number): Iterable<StoredSummary> {
    this.#expire(now)
    for (const record of this.#records.values()) {
      const { key, value, version, mark } = record
      if (value === null || !key.startsWith(prefix)) continue
      yield { key, bytes: value.length, version, mark, livesForMs: livesForMsOf(record, now) }
    }
  }

  #expire(now: number): void {
    for (let first = this.#expiries.peek(); first !== undefined && first.at <= now; first = this.#expiries.peek()) {
      this.#expiries.remove(first)
      this.#records.delete(first.key)
    }
  }
}

function stored(key: string, record: MemoryRecord | undefined, now: number): Stored {
  if (record === undefined) return { key, value: null, version: 0n, mark: 0n, livesForMs: null }
  const { value, version, mark } = record
  if (value === null) return { key, value, version, mark, livesForMs: null }
  return { key, value: copyOf(value), version, mark, livesForMs: livesForMsOf(record, now) }
}

function livesForMsOf({ at, slot }: Heaped, now: number): number | null {
  return slot < 0 ? null : at - now
}

/** Not `slice`: that of a Buffer is no copy. */
function copyOf(value: Uint8Array | null): Uint8Array | null {
  return value === null ? null : new Uint8Array(value)
}

function highest(a: bigint, b: bigint): bigint {
  return a > b ? a : b
}
