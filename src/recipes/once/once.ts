/**
 * `once`: run work once for each key, and answer duplicates with the result.
 *
 * The line of the key decides who runs. The record of the same key says what came out (record.ts). A caller finds an
 * answer, or begins an execution (caller.ts); then the work runs, and what came out is stored (execution.ts). Callers
 * of this process that want the same wait for one of them (flights.ts).
 */
import { parseDuration } from '../../core/duration.ts'
import { ReplayedFailureError } from '../../core/errors.ts'
import type { LineLock } from '../../core/lock.ts'
import { checkOptions } from '../../core/options.ts'
import { showAs } from '../../core/show.ts'
import type { Locks } from '../../locks.ts'
import { RecordStore } from '../../store/record-store.ts'
import { OnceAttempt } from './attempt.ts'
import type { OnceCall } from './call.ts'
import { OnceCaller } from './caller.ts'
import { execute } from './execution.ts'
import { ENDED, Flights } from './flights.ts'
import {
  type Crashed,
  ONCE_OPTIONS,
  ONCE_RUN_OPTIONS,
  type Once,
  type OnceOptions,
  type OnceResult,
  type OnceRunOptions,
  type OnceWork,
} from './options.ts'
import { escapedName, fingerprintOf, type OnceRecord, recordKey, type SettledRecord } from './record.ts'

const DEFAULT_KEEP = '24h'
const DEFAULT_WAIT = '10s'
/** Less than a duplicate waits: one that comes right after a crash is to take over, though the engine may tell late. */
const DEFAULT_TTL_MS = 8_000
const NO_OPTIONS: OnceRunOptions = {}

/** What is stored for a request in the end. `ran`: it is by an execution of this call. */
interface SettledRequest {
  readonly record: SettledRecord
  readonly ran: boolean
}

export class OnceRunner implements Once {
  readonly #locks: Locks
  readonly #records: RecordStore<OnceRecord>
  readonly #flights = new Flights()
  readonly #name: string
  /** As keys have it. */
  readonly #keyName: string
  readonly #keepMs: number
  readonly #waitMs: number
  readonly #crashed: Crashed
  readonly #keepFailures: boolean
  readonly #lockOptions: Pick<OnceOptions, 'ttl'>

  static {
    showAs('Once', OnceRunner)
  }

  constructor(locks: Locks, options: OnceOptions) {
    checkOptions('once()', options, ONCE_OPTIONS)
    const { name = 'once', failures = 'retry' } = options
    if (typeof name !== 'string' || name === '') throw new TypeError(`name must be a string that is not empty`)
    if (failures !== 'retry' && failures !== 'keep')
      throw new TypeError(`failures must be 'retry' or 'keep'; got '${String(failures)}'`)
    this.#locks = locks
    this.#records = new RecordStore('once', locks, { store: options.store, serialize: options.serialize })
    this.#name = name
    this.#keyName = escapedName(name)
    this.#lockOptions = {
      ttl: options.ttl ?? locks.givenTtl ?? Math.max(DEFAULT_TTL_MS, locks.engine.traits.minTtlMs),
    }
    this.#waitMs = parseDuration(options.wait ?? DEFAULT_WAIT, 'wait')
    this.#crashed = checkCrashed(options.crashed ?? 'retry')
    this.#keepFailures = failures === 'keep'
    this.#keepMs = Math.ceil(parseDuration(options.keep ?? DEFAULT_KEEP, 'keep'))
    const { ttlMs } = this.#lockOf(name).spec
    if (this.#keepMs < ttlMs)
      throw new RangeError(
        `keep must be at least the ttl of ${ttlMs} ms: a crash is not seen before; got ${this.#keepMs} ms`,
      )
  }

  async run<Value>(
    key: string,
    first: OnceRunOptions | OnceWork<Value>,
    second?: OnceWork<Value>,
  ): Promise<OnceResult<Value>> {
    const work = second ?? first
    if (typeof work !== 'function')
      throw new TypeError(`run takes a key, options, and the work as a function; got ${typeof work}`)
    const call = this.#callOf(key, second === undefined ? NO_OPTIONS : (first as OnceRunOptions))
    const { record, ran } = await this.#settledOf(call, work as OnceWork<Value>)
    const { id, number } = record
    if (record.state === 'failed') throw new ReplayedFailureError(key, { id, number }, record.failure)
    return { value: record.value as Value, replayed: !ran, attempt: { id, number } }
  }

  /** Whether an execution of this request stands in its line: it may go on after its `commit`. */
  async isRunning(key: string, options: OnceRunOptions): Promise<boolean> {
    const { entries } = await this.#locks.inspect(this.#callOf(key, options).lock.key)
    return entries.length > 0
  }

  #callOf(key: string, options: OnceRunOptions): OnceCall {
    if (options !== NO_OPTIONS) checkOptions('run()', options, ONCE_RUN_OPTIONS)
    const { wait, crashed, signal } = options
    if (signal !== undefined && !(signal instanceof AbortSignal))
      throw new TypeError(`signal must be an AbortSignal; got ${typeof signal}`)
    return {
      key,
      lock: this.#lockOf(recordKey(this.#keyName, scopeOf(options), key)),
      fingerprint: fingerprintOf(options.fingerprint),
      waitMs: wait === undefined ? this.#waitMs : parseDuration(wait, 'wait'),
      crashed: crashed === undefined ? this.#crashed : checkCrashed(crashed),
      signal,
    }
  }

  #settledOf(call: OnceCall, work: OnceWork<unknown>): Promise<SettledRequest> {
    const { lock, fingerprint, crashed, waitMs, signal } = call
    signal?.throwIfAborted()
    // A caller that does not wait has to look for itself: another one may not know more yet.
    if (waitMs === 0) return this.#lead(call, undefined, work)
    const name = `${crashed} ${fingerprint ?? ''} ${lock.key}`
    return this.#flights.of(name) === undefined ? this.#lead(call, name, work) : this.#follow(call, name, work)
  }

  /** Another caller of this process wants the same: wait for it, and be the next one if it has no result. */
  async #follow(call: OnceCall, name: string, work: OnceWork<unknown>): Promise<SettledRequest> {
    const { lock, signal } = call
    const { keeper } = lock.scope
    const { clock } = keeper
    const giveUpAt = clock.now() + call.waitMs
    for (let { waitMs } = call; ; waitMs = Math.max(0, giveUpAt - clock.now())) {
      const other = waitMs > 0 ? this.#flights.of(name) : undefined
      if (other === undefined) return this.#lead({ ...call, waitMs }, waitMs > 0 ? name : undefined, work)
      const outcome = await other.wait(keeper, waitMs, signal)
      if (outcome.state === 'settled')
        return { record: this.#records.copy(lock.key, outcome.record) as SettledRecord, ran: false }
      if (outcome.state === 'timeout') return { record: await this.#callerOf(call).lastLook(), ran: false }
    }
  }

  /** `flight`: what others are to wait for this caller by, if they are. */
  async #lead(call: OnceCall, flight: string | undefined, work: OnceWork<unknown>): Promise<SettledRequest> {
    const leading = flight === undefined ? undefined : this.#flights.lead(flight)
    let outcome = ENDED
    try {
      const begun = await this.#callerOf(call).begin()
      const ran = begun instanceof OnceAttempt
      const record = ran ? await execute(begun, work, this.#keepFailures) : begun
      outcome = { state: 'settled', record }
      return { record, ran: ran && record.by === begun.lease.entryId }
    } finally {
      leading?.end(outcome)
    }
  }

  #callerOf(call: OnceCall): OnceCaller {
    return new OnceCaller(call, this.#records, this.#keepMs)
  }

  #lockOf(key: string): LineLock {
    return this.#locks.mutex(key, this.#lockOptions) as LineLock
  }

  toJSON(): object {
    return { name: this.#name, engine: this.#locks.engine.name, keepMs: this.#keepMs, waitMs: this.#waitMs }
  }
}

/** One that is there and is undefined is that of a user who is not known: all of those would share their results. */
function scopeOf(options: OnceRunOptions): string {
  if (!('scope' in options)) return ''
  if (typeof options.scope === 'string') return options.scope
  throw new TypeError(
    `scope must be a string; got ${typeof options.scope}. Say whose key it is, or leave it out if all are of one tenant`,
  )
}

function checkCrashed(crashed: Crashed): Crashed {
  if (crashed === 'retry' || crashed === 'ask') return crashed
  throw new TypeError(`crashed must be 'retry' or 'ask'; got '${String(crashed)}'`)
}
