/**
 * The records of a recipe: values instead of bytes, leases instead of ids, and calls that are repeated where that is
 * harmless. Every recipe makes one of these from the locks that it is given.
 *
 *     const records = new RecordStore<State>('once', locks, {})
 *     const put = await records.put(key, { state: 'started' }, { holding: lease, absent: true })
 *     if (put.state === 'refused') …   // put.found is what is stored
 *
 * A record has the key of its line: that is what lets the server check, in the step of the change, who holds.
 *
 * **Unknown outcomes.** A call whose answer was lost may have been applied. A change with the condition `absent` or
 * `version`, or with a mark above `markBelow`, can be applied once at most, so it is asked again. If that is refused,
 * and the very bytes that were sent are stored, the first try has been applied. So two writers that may not be taken
 * for each other have to store something different: an id of the attempt, for example. Any other change is not asked
 * again, and rejects with an `EngineError` whose `outcome` is `unknown`.
 *
 * A try that was given up can still arrive. With `absent` alone it is made then if the record was removed meanwhile. A
 * recipe that removes records gives `version` and `holding` as well: both refuse it.
 */
import type { EntryLease } from '../core/entry-lease.ts'
import { UnsupportedError } from '../core/errors.ts'
import type { Keeper } from '../core/keeper.ts'
import { checkKey } from '../core/keys.ts'
import type { CoreLease, Lease } from '../core/lease.ts'
import type { LineLock } from '../core/lock.ts'
import {
  type Change,
  HIGHEST_MARK,
  type Put,
  type ServerTimeMs,
  type Stored,
  type StoredSummary,
  type When,
} from '../core/store.ts'
import type { Read, StoreRequests, Written } from '../core/store-requests.ts'
import type { Locks } from '../locks.ts'
import { repeatFailed } from './repeat-call.ts'
import { encodeValue, jsonSerializer, type Serializer } from './serializer.ts'

/** Where a recipe keeps its records. */
export interface RecordStoreOptions {
  /** The locks on another engine, which has a store; those of the recipe unless given. */
  readonly store?: Locks | undefined
  readonly serialize?: Serializer | undefined
}

/** What is stored under a key. */
export interface Found<Value> {
  readonly exists: boolean
  /** Undefined also where that is what was stored: look at `exists`. */
  readonly value: Value | undefined
  readonly version: bigint
  readonly mark: bigint
  readonly livesForMs: number | null
  readonly serverTimeMs: ServerTimeMs
}

/** An entry that the engine was asked to let in, and has not answered yet. */
export interface EnteredAs {
  readonly key: string
  readonly entryId: string
}

/** How to store, and when: all conditions that are given have to be met. */
export interface PutOptions {
  /** Until it is removed unless given. */
  readonly ttlMs?: number | undefined
  readonly mark?: bigint | undefined
  /** A lease of the same key, or an entry. Where the store cannot check it (`checksHolding`), it is left out. */
  readonly holding?: Lease | EnteredAs | undefined
  readonly absent?: true | undefined
  readonly version?: bigint | undefined
  readonly markBelow?: bigint | undefined
  /** Whether it can be stored while the locks are being closed, by what `Keeper.endFirst` was told of. */
  readonly lastWords?: true | undefined
}

export type PutOutcome<Value> =
  | Extract<Written, { readonly state: 'stored' }>
  | {
      readonly state: 'refused'
      readonly by: keyof When
      readonly found: Found<Value>
      readonly serverTimeMs: ServerTimeMs
    }

/** What became of an entrance: a lease if and only if the change is stored. */
export interface EnteredPut<Value> {
  readonly lease: EntryLease | undefined
  readonly put: PutOutcome<Value>
}

/** Engines whose store can take part in a transaction. */
const TRANSACTIONAL = 'postgres, mysql or sqlite'

export class RecordStore<Value> {
  readonly #keeper: Keeper
  readonly #requests: StoreRequests
  readonly #serializer: Serializer
  /** Whether the server refuses a holder that has lost its lease, by itself. Without it only versions protect. */
  readonly checksHolding: boolean
  /** Whether a line can be entered in the step of a change. */
  readonly putsEntering: boolean

  /** `recipe`: its name, for error messages. Throws `UnsupportedError` where the engine has no store. */
  constructor(recipe: string, locks: Locks, { store = locks, serialize = jsonSerializer }: RecordStoreOptions) {
    const requests = store.keeper.store
    if (requests === undefined) {
      const { name } = store.engine
      const message =
        `${name} has no store for the records of ${recipe}(): give it the option store, ` +
        'which takes locks on an engine that has one (any but redlock)'
      throw new UnsupportedError(name, message)
    }
    this.#keeper = store.keeper
    this.#requests = requests
    this.#serializer = serialize
    this.checksHolding = requests.store.traits.holding && store.keeper === locks.keeper
    this.putsEntering = this.checksHolding && requests.store.putEntering !== undefined
  }

  /** `repeatMs`: for how long it is asked again if it fails, instead of as long as one call may take. */
  async get(key: string, repeatMs: number = this.#keeper.callTimeoutMs): Promise<Found<Value>> {
    checkKey(key)
    const giveUpAt = this.#keeper.clock.now() + repeatMs
    let read: Read
    try {
      read = await this.#requests.get(key)
    } catch (error) {
      const ask = (): Promise<Read> => this.#requests.get(key)
      read = await repeatFailed(this.#keeper, error, ask, () => true, giveUpAt)
    }
    return this.#found(read.stored, read.serverTimeMs)
  }

  /** Store `value`. Throws before anything is done if it cannot be stored. */
  async put(key: string, value: Value, options: PutOptions): Promise<PutOutcome<Value>> {
    return this.#put(key, this.encode(key, value), options)
  }

  /** Store what `encode` has answered. */
  putBytes(key: string, bytes: Uint8Array, options: PutOptions): Promise<PutOutcome<Value>> {
    return this.#put(key, bytes, options)
  }

  /**
   * Hold the lock at once and store a value of that entry in the same step, or do neither; where `putsEntering`.
   * Nothing is repeated: after an `EngineError` of unknown outcome, the value may be stored, or may still be. After a
   * cancellation as well: `onStored` is called if it was.
   */
  async putEntering(
    lock: LineLock,
    signal: AbortSignal | undefined,
    contentOf: (entryId: string) => Value,
    options: Omit<PutOptions, 'holding'>,
    onStored: () => void,
  ): Promise<EnteredPut<Value>> {
    const { key } = lock
    let answer: Put | undefined
    const lease = await lock.acquirePutting(
      signal,
      (entryId) => this.#change(key, this.encode(key, contentOf(entryId)), options),
      (put) => {
        answer = put
        if (put.state === 'stored') onStored()
      },
    )
    return { lease, put: this.#outcome(answer as Written) }
  }

  /**
   * `putBytes` under the key of a lease, which is released in the same step where the store can do that. If the change
   * is refused, or has to be asked for again, the lease goes on.
   */
  putLeaving(lease: EntryLease, bytes: Uint8Array, options: PutOptions): Promise<PutOutcome<Value>> {
    const leaves = this.putsEntering && this.#requests.putsLeaving && options.holding === undefined
    return this.#put(lease.key, bytes, options, leaves ? lease : undefined)
  }

  /** Store nothing. A holder that puts something by an earlier version is refused from now on. */
  async remove(key: string, options: Omit<PutOptions, 'ttlMs' | 'mark'> = {}): Promise<PutOutcome<Value>> {
    return this.#put(key, null, options)
  }

  /** Throws a `TypeError` or a `RangeError` if the value cannot be stored. */
  encode(key: string, value: Value): Uint8Array {
    return encodeValue(this.#serializer, key, value, this.#requests.store.traits.valueLimitBytes)
  }

  decode(bytes: Uint8Array): Value {
    return this.#serializer.decode(bytes) as Value
  }

  /** What a value looks like once it was stored and read. */
  copy(key: string, value: Value): Value {
    return this.#serializer.decode(this.encode(key, value)) as Value
  }

  /** `put`, inside of a transaction of the user. Throws an `UnsupportedError` where the store has no such thing. */
  async putIn(transaction: unknown, key: string, value: Value, options: PutOptions): Promise<PutOutcome<Value>> {
    const { store } = this.#requests
    const { name } = this.#keeper.engine
    if (store.putIn === undefined)
      throw new UnsupportedError(
        name,
        `${name} has no transactions of yours to store a record in; use ${TRANSACTIONAL}`,
      )
    const put = await store.putIn(transaction, this.#change(key, this.encode(key, value), options))
    if (put.state === 'failed') throw put.error
    return this.#outcome(put)
  }

  /** Records whose key starts with `prefix`, for people. */
  list(prefix: string): AsyncIterable<StoredSummary> {
    this.#keeper.refuseIfClosed()
    return this.#requests.store.list(prefix)
  }

  async #put(
    key: string,
    bytes: Uint8Array | null,
    options: PutOptions,
    leaving?: EntryLease,
  ): Promise<PutOutcome<Value>> {
    const change = this.#change(key, bytes, options)
    const giveUpAt = this.#keeper.clock.now() + this.#keeper.callTimeoutMs
    let put: Written
    try {
      put = await (leaving === undefined
        ? this.#requests.put(change, options.lastWords)
        : this.#requests.putLeaving({ change, id: leaving.entryId }))
    } catch (error) {
      return this.#putAgain(error, change, options, giveUpAt)
    }
    if (put.state === 'stored') leaving?.releasedByStore()
    return this.#outcome(put)
  }

  /** After a first try that has failed. What was in the way may be the line, which another transaction has locked. */
  async #putAgain(
    failure: unknown,
    change: Change,
    { holding, lastWords }: PutOptions,
    giveUpAt: number,
  ): Promise<PutOutcome<Value>> {
    let doubtful = false
    const put = await repeatFailed(
      this.#keeper,
      failure,
      () => this.#requests.put(change, lastWords),
      (error) => {
        if (error.outcome === 'not-applied') return true
        doubtful = true
        return isRepeatable(change) && (holding as Partial<Lease> | undefined)?.held !== false
      },
      giveUpAt,
    )
    if (put.state === 'refused' && doubtful && isSame(put.stored.value, change.value)) {
      const { stored, serverTimeMs } = put
      return { state: 'stored', version: stored.version, mark: stored.mark, serverTimeMs }
    }
    return this.#outcome(put)
  }

  #outcome(put: Written): PutOutcome<Value> {
    if (put.state === 'stored') return put
    const { by, stored, serverTimeMs } = put
    return { state: 'refused', by, found: this.#found(stored, serverTimeMs), serverTimeMs }
  }

  #change(key: string, value: Uint8Array | null, options: PutOptions): Change {
    checkKey(key)
    const { ttlMs, mark, holding, absent, version, markBelow } = options
    // What is not given is left out, without a copy for each: this is done for every change.
    const when: { -readonly [Condition in keyof When]: When[Condition] } = {}
    if (holding !== undefined && this.checksHolding) when.holding = entryIdOf(holding, key)
    if (absent !== undefined) when.absent = absent
    if (version !== undefined) when.version = version
    if (markBelow !== undefined) when.markBelow = markBelow
    const lives = ttlMs === undefined ? null : Math.ceil(ttlMs)
    if (mark === undefined) return { key, value, ttlMs: lives, when }
    checkMark(mark)
    return { key, value, ttlMs: lives, mark, when }
  }

  #found({ value, version, mark, livesForMs }: Stored, serverTimeMs: ServerTimeMs): Found<Value> {
    const decoded = value === null ? undefined : (this.#serializer.decode(value) as Value)
    return { exists: value !== null, value: decoded, version, mark, livesForMs, serverTimeMs }
  }
}

/** Whether applying it twice is applying it once. */
function isRepeatable({ mark, when }: Change): boolean {
  const { absent, version, markBelow } = when
  return (
    absent === true || version !== undefined || (markBelow !== undefined && mark !== undefined && mark >= markBelow)
  )
}

function isSame(a: Uint8Array | null, b: Uint8Array | null): boolean {
  return a === null || b === null ? a === b : Buffer.compare(a, b) === 0
}

/** The id of the entry behind a lease of `key`. */
function entryIdOf(lease: Lease | EnteredAs, key: string): string {
  const { entryId } = lease as CoreLease | EnteredAs
  if (typeof entryId === 'string' && lease.key === key) return entryId
  throw new TypeError(`holding must be a lease of '${key}' that a lock of these locks gave; got one of '${lease.key}'`)
}

function checkMark(mark: bigint): void {
  if (mark >= 0n && mark <= HIGHEST_MARK) return
  throw new RangeError(`a mark must be from 0 to ${HIGHEST_MARK}; got ${mark}`)
}
