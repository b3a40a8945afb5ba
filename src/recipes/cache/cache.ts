/**
 * `cache(locks, …)`: one cache, and the way of a `get`:
 *
 * 1. The first level, if there is one. Else one read of the store, in one call with what else this turn asks.
 * 2. A value that can be served is served. If it is time for a new one, a filler begins behind it.
 * 3. Nothing: the callers of this process wait for one filler (flights.ts), and that for the one of all processes
 *    (filler.ts).
 *
 * **Old values.** Each caller has a moment at which it began. It is only given what was true at a later one: its own
 * read, a value that was stored after it came, or one whose fill began after it came. Else it looks again. So no caller
 * that comes after an invalidation, of any process, is given what was there before.
 */
import { CachedFailureError, EngineError } from '../../core/errors.ts'
import type { Keeper } from '../../core/keeper.ts'
import type { LineLock } from '../../core/lock.ts'
import { showAs } from '../../core/show.ts'
import type { Locks } from '../../locks.ts'
import { RecordStore } from '../../store/record-store.ts'
import { repeatCall } from '../../store/repeat-call.ts'
import { encodeValue, jsonSerializer, type Serializer } from '../../store/serializer.ts'
import { CacheBackend, type CacheLook, isAboutForeign } from './backend.ts'
import type { FillOutcome, Moment } from './fill.ts'
import { Filler } from './filler.ts'
import { SingleFlights, waitFor } from './flights.ts'
import { LocalValues, type Ticket } from './local.ts'
import {
  type Cache,
  type CacheFill,
  type CacheGetOptions,
  type CacheOptions,
  type ReadCache,
  type ReadGet,
  readCacheOptions,
  readGetOptions,
  readTtl,
} from './options.ts'
import { type CacheRecord, recordKeyOf, recordSerializer } from './record.ts'

/** Another process refreshes: this one does not ask again for so long. */
const REST_MS = 200

/** What a caller wants, its options read. */
interface CacheCall extends ReadGet {
  /** As the user has given it. */
  readonly key: string
  readonly recordKey: string
  readonly fill: CacheFill<unknown>
}

/** What the fill of a user has thrown, so that it is not taken for an outage of the store. */
class FillThrew extends Error {
  constructor(cause: unknown) {
    super('the fill has thrown', { cause })
  }
}

export class FleetCache implements Cache {
  readonly #locks: Locks
  readonly #keeper: Keeper
  readonly #cache: ReadCache
  /** Of a caller that gives no options. */
  readonly #usual: ReadGet
  readonly #lockOptions: { readonly ttl?: NonNullable<CacheOptions['leaseTtl']> }
  readonly #serializer: Serializer
  readonly #backend: CacheBackend
  readonly #local: LocalValues | undefined
  readonly #flights = new SingleFlights<FillOutcome>()
  readonly #outageFlights = new SingleFlights<{ readonly bytes: Uint8Array; readonly asOf: number }>()
  /** Keys that another process refreshes. */
  readonly #resting = new Set<string>()
  #moments = 0

  static {
    showAs('Cache', FleetCache)
  }

  constructor(locks: Locks, options: CacheOptions) {
    this.#cache = readCacheOptions(options)
    this.#usual = readGetOptions(this.#cache, {})
    const { leaseTtl, store, values, serialize = jsonSerializer } = options
    const records = new RecordStore<CacheRecord>('cache', locks, { store, serialize: recordSerializer })
    this.#locks = locks
    this.#keeper = locks.keeper
    this.#lockOptions = leaseTtl === undefined ? {} : { ttl: leaseTtl }
    this.#serializer = serialize
    const { early, local, outage, name } = this.#cache
    const { clock, chance } = this.#keeper
    // What an outage is filled for is served at once: a read that fails is not asked again.
    const repeatMs = outage === 'fill' ? 0 : undefined
    const engine = (store ?? locks).engine.name
    const fraction = (): number => chance.fraction()
    this.#backend = new CacheBackend({ records, engine, name, values, clock, early, fraction, repeatMs })
    this.#local = local === undefined ? undefined : new LocalValues(clock, local.max, local.ttlMs)
    // What is wrong with the ttl of the lease is told now.
    this.#writeLock(recordKeyOf(name, 'any'))
  }

  get name(): string {
    return this.#cache.name
  }

  async get<Value>(key: string, first: CacheGetOptions | CacheFill<Value>, second?: CacheFill<Value>): Promise<Value> {
    const fill = second ?? first
    if (typeof fill !== 'function')
      throw new TypeError(`get takes a key, options, and the fill as a function; got ${typeof fill}`)
    const recordKey = recordKeyOf(this.name, key)
    const asked = second === undefined ? this.#usual : readGetOptions(this.#cache, first as CacheGetOptions)
    const { ttlMs, staleMs, softWaitMs, signal } = asked
    signal?.throwIfAborted()
    const call: CacheCall = { key, recordKey, fill, ttlMs, staleMs, softWaitMs, signal }
    const bytes = this.#local?.get(recordKey) ?? (await this.#bytesOf(call))
    // A serializer of the user may answer the very bytes: no two callers have the same ones.
    return this.#serializer.decode(this.#serializer === jsonSerializer ? bytes : Uint8Array.from(bytes)) as Value
  }

  async invalidate(key: string): Promise<void> {
    const recordKey = recordKeyOf(this.name, key)
    this.#local?.forget(recordKey)
    try {
      // To remove it twice is to remove it once, and perhaps a value that was filled in between.
      await repeatCall(
        this.#keeper,
        () => this.#backend.remove(recordKey),
        () => true,
      )
    } finally {
      this.#local?.forget(recordKey)
    }
  }

  /** Look until there is something to give, or to throw. */
  async #bytesOf(call: CacheCall): Promise<Uint8Array> {
    const began = this.#nextMoment()
    try {
      for (;;) {
        const ticket = this.#local?.ticket(call.recordKey) ?? 0
        const served = this.#serve(call, began, ticket, await this.#look(call))
        // The usual hit needs no promise of its own.
        const bytes = served instanceof Promise ? await served : served
        if (bytes !== undefined) return bytes
        call.signal?.throwIfAborted()
      }
    } catch (error) {
      if (error instanceof FillThrew) throw error.cause
      // Filled without the store, a key that another recipe has would never be stored, and users would not notice.
      if (!(error instanceof EngineError) || isAboutForeign(error)) throw error
      if (this.#cache.outage === 'fail' || this.#keeper.closing.aborted) throw error
      return await this.#fillInOutage(call, began)
    }
  }

  #look({ recordKey, signal }: CacheCall): Promise<CacheLook> {
    const reading = this.#backend.look(recordKey)
    return signal === undefined ? reading : (waitFor(reading, this.#keeper, Infinity, signal) as Promise<CacheLook>)
  }

  /** Undefined: what came of it is nothing for this caller, which has to look again. */
  #serve(
    call: CacheCall,
    began: number,
    ticket: Ticket,
    look: CacheLook,
  ): Uint8Array | undefined | Promise<Uint8Array | undefined> {
    const { verdict, found, askedAt } = look
    if (verdict.is === 'failure') throw new CachedFailureError(call.key, verdict.failure)
    if (verdict.is === 'nothing')
      return this.#wait(call, look, Infinity).then((outcome) => this.#servedBy(call, began, outcome))
    const { record, freshMs, refresh } = verdict
    this.#local?.keep(call.recordKey, ticket, { bytes: record.bytes, version: found.version, freshMs, askedAt })
    if (!refresh) return record.bytes
    if (freshMs === 0 && call.softWaitMs > 0)
      return this.#servedSoon(call, began, look).then((bytes) => bytes ?? record.bytes)
    this.#refreshBehind(call, look)
    return record.bytes
  }

  /** A value by the flight of this key, if there is one for this caller. */
  #servedBy({ key }: CacheCall, began: number, outcome: FillOutcome | undefined): Uint8Array | undefined {
    if (outcome?.state === 'threw') throw new FillThrew(outcome.error)
    if (outcome?.state === 'failure') throw new CachedFailureError(key, outcome.failure)
    return outcome?.state === 'value' && outcome.asOf > began ? outcome.bytes : undefined
  }

  /** There is a stale value: a new one is waited for, but not for long, and what is wrong with it is not told. */
  async #servedSoon(call: CacheCall, began: number, look: CacheLook): Promise<Uint8Array | undefined> {
    try {
      return this.#servedBy(call, began, await this.#wait(call, look, call.softWaitMs))
    } catch {
      call.signal?.throwIfAborted()
      return undefined
    }
  }

  #wait(call: CacheCall, look: CacheLook, limitMs: number): Promise<FillOutcome | undefined> {
    return waitFor(this.#flight(call, look, true), this.#keeper, limitMs, call.signal)
  }

  /** One try, in the background. */
  #refreshBehind(call: CacheCall, look: CacheLook): void {
    const { recordKey } = call
    if (this.#resting.has(recordKey) || this.#flights.has(recordKey)) return
    const rest = ({ state }: FillOutcome): void => {
      if (state !== 'busy') return
      this.#resting.add(recordKey)
      this.#keeper.clock.timer(REST_MS, () => this.#resting.delete(recordKey))
    }
    // A store that is down is told to the callers who ask it.
    this.#flight(call, look, false).then(rest, () => {})
  }

  #flight(call: CacheCall, look: CacheLook, wait: boolean): Promise<FillOutcome> {
    const { key, recordKey, fill, ttlMs, staleMs } = call
    return this.#flights.join(recordKey, async () => {
      const filler = new Filler({
        key,
        recordKey,
        fill,
        lifetime: { ttlMs, staleMs },
        cache: this.#cache,
        backend: this.#backend,
        keeper: this.#keeper,
        write: this.#writeLock(recordKey),
        read: this.#readLock(recordKey),
        moment: (): Moment => this.#moment(recordKey),
        encode: (value) => encodeValue(this.#serializer, key, value, Infinity),
      })
      const outcome = await filler.run(look, wait)
      if (outcome.state === 'value' && outcome.version !== undefined)
        this.#local?.keep(recordKey, outcome.ticket, { ...outcome, version: outcome.version })
      return outcome
    })
  }

  /** Without the store: once for the callers of this process. */
  async #fillInOutage(call: CacheCall, began: number): Promise<Uint8Array> {
    for (;;) {
      const filling = waitFor(this.#outageFlight(call), this.#keeper, Infinity, call.signal)
      const { bytes, asOf } = (await filling) as { readonly bytes: Uint8Array; readonly asOf: number }
      // What was begun before this caller came may be older than an invalidation that has returned since.
      if (asOf > began) return bytes
    }
  }

  #outageFlight({ key, recordKey, fill, ttlMs }: CacheCall): Promise<{ bytes: Uint8Array; asOf: number }> {
    return this.#outageFlights.join(recordKey, async () => {
      const asOf = this.#nextMoment()
      const ticket = this.#local?.ticket(recordKey) ?? 0
      let freshMs = ttlMs
      const value = await fill({
        key,
        signal: this.#keeper.closing,
        ttl: (ttl) => {
          freshMs = readTtl(ttl)
        },
      })
      const bytes = encodeValue(this.#serializer, key, value, Infinity)
      // No store says how old it is: its time begins now, however long the fill has taken.
      this.#local?.keep(recordKey, ticket, { bytes, version: 0n, freshMs, askedAt: this.#keeper.clock.now() })
      return { bytes, asOf }
    })
  }

  #moment(recordKey: string): Moment {
    const ticket = this.#local?.ticket(recordKey) ?? 0
    return { asOf: this.#nextMoment(), ticket, askedAt: this.#keeper.clock.now() }
  }

  #nextMoment(): number {
    this.#moments += 1
    return this.#moments
  }

  #writeLock(recordKey: string): LineLock {
    return this.#locks.mutex(recordKey, this.#lockOptions) as LineLock
  }

  #readLock(recordKey: string): LineLock | undefined {
    if (this.#locks.engine.traits.sharing === 'none') return undefined
    return this.#locks.rw(recordKey, this.#lockOptions).read as LineLock
  }

  toJSON(): object {
    const { name, ttlMs, staleMs } = this.#cache
    return { name, engine: this.#locks.engine.name, ttlMs, staleMs }
  }
}
