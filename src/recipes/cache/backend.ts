/** Where records and values are: the store of an engine, and beside it, if there is one, a store of the user's. */
import type { Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import type { Found, RecordStore } from '../../store/record-store.ts'
import { type CacheRecord, type CacheVerdict, judge, type ValueRecord } from './record.ts'
import { bytesOf, labelled, type ValueStore, valueKeyOf } from './values.ts'

/** What was found under a key, and what it is good for. */
export interface CacheLook {
  readonly found: Found<CacheRecord>
  readonly verdict: CacheVerdict
  /**
   * When it was asked for, by the clock of this process. What it has left to live counts from then: the server told it
   * later. So none is served whose time on the server is over.
   */
  readonly askedAt: number
}

export interface CacheBackendSpec {
  readonly records: RecordStore<CacheRecord>
  /** The name of the engine that keeps them, for error messages. */
  readonly engine: string
  /** The name of the cache. */
  readonly name: string
  readonly values: ValueStore | undefined
  readonly clock: Clock
  /** The factor of XFetch (record.ts). */
  readonly early: number
  readonly fraction: () => number
  /** For how long a read that fails is asked again; undefined: for as long as one call may take. */
  readonly repeatMs: number | undefined
}

export class CacheBackend {
  readonly #spec: CacheBackendSpec

  constructor(spec: CacheBackendSpec) {
    this.#spec = spec
  }

  get records(): RecordStore<CacheRecord> {
    return this.#spec.records
  }

  look(recordKey: string): Promise<CacheLook> {
    const { records, values, clock, repeatMs } = this.#spec
    const askedAt = clock.now()
    if (values !== undefined) return this.#lookAtBoth(values, recordKey, askedAt)
    return records.get(recordKey, repeatMs).then((found) => this.#look(recordKey, found, askedAt))
  }

  async #lookAtBoth(values: ValueStore, recordKey: string, askedAt: number): Promise<CacheLook> {
    const { records, repeatMs } = this.#spec
    // Both at once: one round trip. What was read of the values may be older than the record.
    const [found, stored] = await Promise.all([records.get(recordKey, repeatMs), this.#get(values, recordKey)])
    const { value } = found
    if (value?.is !== 'value' || bytesOf(value.by, stored) === undefined) return this.lookAt(recordKey, found, askedAt)
    return this.#look(recordKey, withBytes(found, bytesOf(value.by, stored)), askedAt)
  }

  /** What the store has answered to a change that it has refused. */
  async lookAt(recordKey: string, found: Found<CacheRecord>, askedAt: number): Promise<CacheLook> {
    const { values } = this.#spec
    const { value } = found
    if (values === undefined || value?.is !== 'value') return this.#look(recordKey, found, askedAt)
    return this.#look(recordKey, withBytes(found, bytesOf(value.by, await this.#get(values, recordKey))), askedAt)
  }

  /** Remove what is stored, unless it is no cache's: a removal tells, which is refused if there is anything. */
  async remove(recordKey: string): Promise<void> {
    const { records } = this.#spec
    const first = await records.remove(recordKey, { absent: true })
    if (first.state === 'stored') return
    this.#refuseForeign(recordKey, first.found)
    await records.remove(recordKey)
  }

  /** What a record has inside of it: the value, unless that is put beside it, where `put` has to be called first. */
  inside(bytes: Uint8Array): Pick<ValueRecord, 'bytes' | 'outside'> {
    return this.#spec.values === undefined ? { bytes } : { bytes: new Uint8Array(0), outside: true }
  }

  /** Put the value into the key-value store, if there is one. It does not count before the record says so. */
  async put(recordKey: string, by: string, bytes: Uint8Array, ttlMs: number): Promise<void> {
    const { values } = this.#spec
    if (values === undefined) return
    try {
      await values.set(valueKeyOf(recordKey), labelled(by, bytes), ttlMs)
    } catch (error) {
      throw valuesError('could not set', error, 'unknown')
    }
  }

  async #get(values: ValueStore, recordKey: string): Promise<Uint8Array | string | null | undefined> {
    try {
      return await values.get(valueKeyOf(recordKey))
    } catch (error) {
      throw valuesError('could not get', error, 'not-applied')
    }
  }

  #look(recordKey: string, found: Found<CacheRecord>, askedAt: number): CacheLook {
    this.#refuseForeign(recordKey, found)
    const { values, early, fraction } = this.#spec
    const isElsewhere = values === undefined && found.value?.is === 'value' && found.value.outside === true
    // To serve the bytes of such a record would be to serve `undefined`: that is what no bytes at all are, as JSON.
    const seen = isElsewhere ? withBytes(found, undefined) : found
    return { found: seen, verdict: judge(seen, early, fraction), askedAt }
  }

  /** A cache with the name of another recipe would take its records for nothing, and store its own values instead. */
  #refuseForeign(recordKey: string, { value }: Found<CacheRecord>): void {
    if (value?.is !== 'foreign') return
    const { engine, name } = this.#spec
    const what = `what is stored under '${recordKey}' is no record of cache(): `
    const why = `another recipe has the name '${name}', so give cache() another one`
    const error = new EngineError(engine, what + why, { outcome: 'not-applied', transient: false })
    refusals.add(error)
    throw error
  }
}

const refusals = new WeakSet<object>()

/** Whether this error is about a record of another recipe, and not about a store that cannot be asked. */
export function isAboutForeign(error: EngineError): boolean {
  return refusals.has(error)
}

/** A record whose value is not there is none: the value was evicted, or is from another fill. */
function withBytes(found: Found<CacheRecord>, bytes: Uint8Array | undefined): Found<CacheRecord> {
  if (found.value?.is !== 'value') return found
  return { ...found, value: bytes === undefined ? undefined : { ...found.value, bytes } }
}

function valuesError(what: string, error: unknown, outcome: EngineError['outcome']): EngineError {
  const why = error instanceof Error ? error.message : String(error)
  return new EngineError('values', `the key-value store of cache() ${what} a value: ${why}`, { outcome, cause: error })
}
