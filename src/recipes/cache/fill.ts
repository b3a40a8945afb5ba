/**
 * One fill, under a lease: call what the user has given, and store what it has answered, or thrown.
 *
 * It is stored by the version of the claim, or of the value that it replaces, and in no other way. So it is refused if
 * there was an invalidation in between, or if another filler has begun, and also if the server has forgotten the record
 * meanwhile, for whatever reason: nothing that was forgotten is taken for "nothing has happened".
 */
import type { EntryLease } from '../../core/entry-lease.ts'
import { EngineError, type StoredFailure } from '../../core/errors.ts'
import type { Keeper } from '../../core/keeper.ts'
import { storedFailure } from '../once/record.ts'
import type { CacheBackend, CacheLook } from './backend.ts'
import type { Ticket } from './local.ts'
import { type CacheFill, type Lifetime, type ReadCache, readTtl } from './options.ts'
import { type CacheRecord, jittered, keptAfterFailure, spareMsOf, type ValueRecord } from './record.ts'

/** A moment of this process: higher than all before it. A value that was true then can be given to earlier callers. */
export interface Moment {
  readonly asOf: number
  /** For the first level. */
  readonly ticket: Ticket
  /** The same by the clock of this process. */
  readonly askedAt: number
}

/** What came of it. */
export type FillOutcome =
  /** A value that was true at a moment. `version`: of the record; undefined if it is not stored. */
  | ({
      readonly state: 'value'
      readonly bytes: Uint8Array
      readonly version: bigint | undefined
      readonly freshMs: number
    } & Moment)
  /** A fill before has failed, and that is remembered. */
  | { readonly state: 'failure'; readonly failure: StoredFailure }
  /** The fill has thrown. */
  | { readonly state: 'threw'; readonly error: unknown }
  /** Another process fills, and this one was not to wait for it. */
  | { readonly state: 'busy' }
  /** Nothing is known: look again. */
  | { readonly state: 'again' }

export const AGAIN: FillOutcome = { state: 'again' }

export interface FillSpec {
  /** As the user has given it. */
  readonly key: string
  readonly recordKey: string
  readonly fill: CacheFill<unknown>
  readonly lifetime: Lifetime
  readonly cache: ReadCache
  readonly backend: CacheBackend
  readonly keeper: Keeper
  readonly moment: () => Moment
  readonly encode: (value: unknown) => Uint8Array
}

interface Made {
  readonly bytes: Uint8Array
  /** The record with it. */
  readonly stored: Uint8Array
  readonly ttlMs: number
  readonly freshMs: number
}

export class HeldFill {
  readonly #spec: FillSpec

  constructor(spec: FillSpec) {
    this.#spec = spec
  }

  /** `version` is that of the claim, or of the value that is refreshed: `before`. */
  async run(lease: EntryLease, version: bigint, before: CacheLook | undefined): Promise<FillOutcome> {
    const { cache, backend, recordKey, keeper } = this.#spec
    const [begun, startedAt] = [this.#spec.moment(), keeper.clock.now()]
    let made: Made
    try {
      made = await this.#make(lease, startedAt)
    } catch (error) {
      return this.#failed(lease, version, before, error)
    }
    const { bytes, stored, ttlMs, freshMs } = made
    // The value was true when the fill began. If it can be stored, its claim was still there: then it is true now, too.
    let outcome: FillOutcome = { state: 'value', bytes, version: undefined, freshMs, ...begun }
    try {
      await backend.put(recordKey, lease.entryId, bytes, ttlMs)
      const storing = this.#spec.moment()
      const put = await backend.records.putLeaving(lease, stored, { version, ttlMs })
      if (put.state === 'stored') outcome = { state: 'value', bytes, version: put.version, freshMs, ...storing }
    } catch (error) {
      if (!(error instanceof EngineError) || cache.outage === 'fail') throw error
    }
    return outcome
  }

  /** Throws what the fill throws, and also what is wrong with its value: one that cannot be stored is a failure. */
  async #make(lease: EntryLease, startedAt: number): Promise<Made> {
    const { key, fill, cache, backend, recordKey, keeper, encode } = this.#spec
    const { staleMs } = this.#spec.lifetime
    let { ttlMs } = this.#spec.lifetime
    const value = await fill({
      key,
      signal: lease.signal,
      ttl: (ttl) => {
        ttlMs = readTtl(ttl)
      },
    })
    const tookMs = keeper.clock.now() - startedAt
    const bytes = encode(value)
    const spareMs = spareMsOf(tookMs)
    const inside = backend.inside(bytes)
    const record: ValueRecord = { is: 'value', by: lease.entryId, staleMs, tookMs, spareMs, ...inside }
    const stored = encodeRecord(backend, recordKey, key, record)
    const freshMs = jittered(ttlMs, cache.jitter, keeper.chance.fraction())
    return { bytes, stored, freshMs, ttlMs: Math.ceil(freshMs + staleMs + spareMs) }
  }

  async #failed(
    lease: EntryLease,
    version: bigint,
    before: CacheLook | undefined,
    error: unknown,
  ): Promise<FillOutcome> {
    const { cache, backend } = this.#spec
    // It was told to stop, and another one may fill by now: why it threw does not matter.
    if (lease.lossError !== undefined) return AGAIN
    if (cache.negativeMs > 0) {
      const { record, ttlMs } = this.#recordOf(storedFailure(error), lease.entryId, before)
      try {
        await backend.records.putLeaving(lease, encodeFailure(backend, lease.key, record), { version, ttlMs })
      } catch (unstored) {
        // What the fill has thrown is what callers have to know.
        if (!(unstored instanceof EngineError || unstored instanceof RangeError)) throw unstored
      }
    }
    return { state: 'threw', error }
  }

  /** What is stored of a failure: with the value that it was to replace, as long as that may be served. */
  #recordOf(failure: StoredFailure, by: string, before: CacheLook | undefined): { record: CacheRecord; ttlMs: number } {
    const { cache, backend, keeper } = this.#spec
    const { negativeMs } = cache
    if (before?.verdict.is === 'value') {
      const { record } = before.verdict
      const sinceMs = keeper.clock.now() - before.askedAt
      const leftMs = (before.found.livesForMs ?? 0) - record.spareMs - sinceMs
      const value = { ...record, ...backend.inside(record.bytes) }
      if (leftMs > 0) return keptAfterFailure(value, leftMs, negativeMs, failure, by)
    }
    return { record: { is: 'failed', by, failure }, ttlMs: negativeMs }
  }
}

function encodeRecord(backend: CacheBackend, recordKey: string, key: string, record: ValueRecord): Uint8Array {
  try {
    return backend.records.encode(recordKey, record)
  } catch (error) {
    if (!(error instanceof RangeError)) throw error
    throw new RangeError(
      `the value of '${key}' has ${record.bytes.length} bytes, which is too many for a record: ` +
        'give cache() the option values, a key-value store for large ones',
      { cause: error },
    )
  }
}

/** Beside a value that is nearly too large, there is only room for the name of the failure. */
function encodeFailure(backend: CacheBackend, recordKey: string, record: CacheRecord): Uint8Array {
  try {
    return backend.records.encode(recordKey, record)
  } catch (error) {
    if (!(error instanceof RangeError) || record?.is !== 'value') throw error
    const failure = { name: record.failure?.name ?? '', message: '', fields: {} }
    return backend.records.encode(recordKey, { ...record, failure })
  }
}
