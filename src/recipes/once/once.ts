/**
 * `once`: run work once for each key, and answer duplicates with the result.
 *
 * The line of the key decides who runs. The record of the same key says what came out (record.ts). One caller's way:
 *
 * 1. In one turn: enter the line if it is free, and put `started` if nothing is stored and this entry holds. The answer
 *    to the put tells what is stored. So a first execution begins after one round trip, and a replay takes one.
 * 2. There is a result: answer it. The line is busy: wait in it, and be woken as its holder. What is stored then was
 *    stored by an execution that has ended.
 * 3. Held, and nothing to replay: put `started` with the next number, by the version that was seen. This is refused if
 *    that is not what is stored any more; the refusal tells what is, and this step is done again.
 * 4. Run the work. Put what came out, by the version of `started` (attempt.ts). Leave, without waiting for the answer.
 *
 * Only step 1 needs the condition `holding`: without it, an execution that has begun could not be told from one that
 * has died. From step 3 on, the version is the claim: an execution that was replaced finds another one.
 */
import { parseDuration } from '../../core/duration.ts'
import {
  AcquireTimeoutError,
  EngineError,
  InProgressError,
  KeyReusedError,
  LeaseLostError,
  ReplayedFailureError,
  UnknownOutcomeError,
} from '../../core/errors.ts'
import type { CoreLease } from '../../core/lease.ts'
import type { LineLock } from '../../core/lock.ts'
import { checkOptions } from '../../core/options.ts'
import { showAs } from '../../core/show.ts'
import type { Locks } from '../../locks.ts'
import { type Found, type PutOutcome, RecordStore } from '../../store/record-store.ts'
import { OnceAttempt } from './attempt.ts'
import { Flights } from './flights.ts'
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
import {
  fingerprintOf,
  isSettled,
  type OnceRecord,
  recordKey,
  type SettledRecord,
  type StartedRecord,
  sameRequest,
} from './record.ts'

const DEFAULT_KEEP = '24h'
const DEFAULT_WAIT = '10s'
const SHORTEST_RETRY_MS = 1_000

/** One `run()`, its options read. */
interface OnceCall {
  /** As the user has given it. */
  readonly key: string
  readonly lock: LineLock
  readonly fingerprint: string | undefined
  readonly waitMs: number
  readonly crashed: Crashed
  readonly signal: AbortSignal | undefined
  readonly work: OnceWork<unknown>
}

/** What is known of a record. `current`: it was looked at while this caller held the line. */
type Look =
  | { readonly state: 'begun'; readonly record: StartedRecord; readonly version: bigint }
  | { readonly state: 'found'; readonly found: Found<OnceRecord>; readonly current: boolean }

export class OnceRunner implements Once {
  readonly #locks: Locks
  readonly #records: RecordStore<OnceRecord>
  readonly #flights = new Flights()
  readonly #name: string
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
    const { name = 'once', failures = 'retry', ttl } = options
    if (typeof name !== 'string' || name === '') throw new TypeError(`name must be a string that is not empty`)
    if (failures !== 'retry' && failures !== 'keep')
      throw new TypeError(`failures must be 'retry' or 'keep'; got '${String(failures)}'`)
    this.#locks = locks
    this.#records = new RecordStore('once', locks, { store: options.store, serialize: options.serialize })
    this.#name = name
    this.#lockOptions = ttl === undefined ? {} : { ttl }
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
    const [options, work] = second === undefined ? [{}, first] : [first, second]
    if (typeof work !== 'function')
      throw new TypeError(`run takes a key, options, and the work as a function; got ${typeof work}`)
    const call = this.#callOf(key, options as OnceRunOptions, work as OnceWork<Value>)
    let ran = false
    const record = await this.#settledOf(call, () => {
      ran = true
    })
    const { id, number } = record
    if (record.state === 'failed') throw new ReplayedFailureError(key, { id, number }, record.failure)
    return { value: record.value as Value, replayed: !ran, attempt: { id, number } }
  }

  #callOf(key: string, options: OnceRunOptions, work: OnceWork<unknown>): OnceCall {
    checkOptions('run()', options, ONCE_RUN_OPTIONS)
    const { scope = '', wait, crashed, signal } = options
    if (signal !== undefined && !(signal instanceof AbortSignal))
      throw new TypeError(`signal must be an AbortSignal; got ${typeof signal}`)
    return {
      key,
      lock: this.#lockOf(recordKey(this.#name, scope, key)),
      fingerprint: fingerprintOf(options.fingerprint),
      waitMs: wait === undefined ? this.#waitMs : parseDuration(wait, 'wait'),
      crashed: crashed === undefined ? this.#crashed : checkCrashed(crashed),
      signal,
      work,
    }
  }

  /** What is stored for the request in the end. `onRun`: it is by an execution of this call. */
  async #settledOf(call: OnceCall, onRun: () => void): Promise<SettledRecord> {
    const { lock, fingerprint, signal } = call
    const { keeper } = lock.scope
    signal?.throwIfAborted()
    const name = JSON.stringify([lock.key, fingerprint, call.crashed])
    const giveUpAt = keeper.clock.now() + call.waitMs
    for (let waitMs = call.waitMs; ; waitMs = Math.max(0, giveUpAt - keeper.clock.now())) {
      const other = waitMs > 0 ? this.#flights.of(name) : undefined
      const lead = (): Promise<SettledRecord> => this.#lead({ ...call, waitMs }, onRun)
      // A caller that does not wait has to look for itself: the other one may not know more yet.
      if (other === undefined) return call.waitMs > 0 ? this.#flights.lead(name, lead) : lead()
      const outcome = await other.wait(keeper.clock, waitMs, signal)
      if (outcome.state === 'settled') return this.#records.copy(lock.key, outcome.record) as SettledRecord
      if (outcome.state === 'timeout') return this.#lastLook(call)
    }
  }

  /** Steps 1 and 2: one try, and then the line. */
  async #lead(call: OnceCall, onRun: () => void): Promise<SettledRecord> {
    const { lock, waitMs, signal } = call
    let first: Promise<Look> | undefined
    let lease: CoreLease | undefined
    try {
      lease = await lock.acquireEntering({ waitMs: 0, signal }, (entryId) => {
        first ??= this.#firstLook(call, entryId)
        // It is told below.
        first.catch(() => {})
      })
    } catch (error) {
      void this.#undo(call, first)
      // An outage may be over before the wait is.
      if (!(error instanceof EngineError && error.transient) || waitMs === 0) throw error
    }
    if (lease !== undefined) return this.#underLease(call, lease, first as Promise<Look>, onRun)
    const look = await first?.catch(unlessUnexpected)
    if (look?.state === 'begun') await this.#undo(call, first)
    const found = look?.state === 'found' ? look.found : undefined
    if (found !== undefined && this.#isAnswer(call, found)) return this.#answer(call, found)
    if (waitMs === 0) return this.#lastLook(call, found)
    try {
      lease = (await lock.acquireEntering({ waitMs, signal }, () => {})) as CoreLease
    } catch (error) {
      if (error instanceof AcquireTimeoutError) return this.#lastLook(call, undefined, error)
      throw error
    }
    return this.#underLease(call, lease, this.#lookAgain(call, found), onRun)
  }

  /** What was found before the wait is tried first: most often it tells which version to expect. */
  async #lookAgain({ lock }: OnceCall, found: Found<OnceRecord> | undefined): Promise<Look> {
    if (found !== undefined) return { state: 'found', found, current: false }
    return { state: 'found', found: await this.#records.get(lock.key), current: true }
  }

  /** Step 3, and then the work. */
  async #underLease(call: OnceCall, lease: CoreLease, first: Promise<Look>, onRun: () => void): Promise<SettledRecord> {
    try {
      const begun = await this.#begin(call, lease, await first)
      if (!(begun instanceof OnceAttempt)) return begun
      return await this.#execute(call, lease, begun, onRun)
    } finally {
      // Not awaited: a caller has its result, and a release never rejects.
      void lease.release()
    }
  }

  /**
   * Step 1, in the turn in which the engine is asked to let the entry in. Where the store does not know the line, a
   * `started` without holding would be taken for a crash: there, it is only a look.
   */
  async #firstLook(call: OnceCall, entryId: string): Promise<Look> {
    const { key } = call.lock
    if (!this.#records.checksHolding) return { state: 'found', found: await this.#records.get(key), current: false }
    const record = this.#nextRecord(call, undefined, entryId)
    const put = await this.#records.put(key, record, {
      holding: { key, entryId },
      absent: true,
      ttlMs: this.#keepMs,
    })
    return lookOf(put, record)
  }

  /** This caller holds the line. Answers what is to be replayed, or an execution that has begun. */
  async #begin(call: OnceCall, lease: CoreLease, first: Look): Promise<SettledRecord | OnceAttempt> {
    const records = this.#records
    const { key } = call.lock
    for (let look = first; ; ) {
      if (look.state === 'begun') {
        const { record, version } = look
        // An entry before this one had begun, and has expired in the line: another caller may have begun since.
        if (record.by !== lease.entryId) {
          look = { state: 'found', found: await records.get(key), current: true }
          continue
        }
        return new OnceAttempt({ key: call.key, lease, records, keepMs: this.#keepMs, record, version })
      }
      const { found, current } = look
      if (this.#isAnswer(call, found)) return this.#answer(call, found)
      const { value } = found
      if (value?.state === 'started' && call.crashed === 'ask') {
        if (current) throw new UnknownOutcomeError(call.key, { id: value.id, number: value.number })
        look = { state: 'found', found: await records.get(key), current: true }
        continue
      }
      const record = this.#nextRecord(call, value, lease.entryId)
      const condition = found.exists ? { version: found.version } : { absent: true as const }
      const put = await records.put(key, record, { holding: lease, ...condition, ttlMs: this.#keepMs })
      if (put.state === 'refused' && put.by === 'holding')
        throw lease.lossError ?? new LeaseLostError(key, lease.token, 'expired')
      look = lookOf(put, record)
    }
  }

  /** Step 4. */
  async #execute(call: OnceCall, lease: CoreLease, attempt: OnceAttempt, onRun: () => void): Promise<SettledRecord> {
    const settledBy = (record: SettledRecord): SettledRecord => {
      if (record.by === lease.entryId) onRun()
      return record
    }
    let value: unknown
    try {
      value = await call.work(attempt)
    } catch (error) {
      const settled = await attempt.failed(error, this.#keepFailures).catch(unlessUnexpected)
      if (settled !== undefined) return settledBy(settled)
      const { lossError } = lease
      if (lossError === undefined || error === lossError) throw error
      // As with `using`: the caller has to learn of the loss, and what the work threw is not forgotten.
      throw new LeaseLostError(lossError.key, lossError.token, lossError.why, { cause: error })
    }
    return settledBy(await attempt.succeeded(value))
  }

  /** The wait is over, or there was none: what is stored decides what is said. */
  async #lastLook(call: OnceCall, known?: Found<OnceRecord>, cause?: AcquireTimeoutError): Promise<SettledRecord> {
    const found = known ?? (await this.#records.get(call.lock.key))
    if (this.#isAnswer(call, found)) return this.#answer(call, found)
    const { value, livesForMs } = found
    const tookMs = livesForMs === null ? 0 : this.#keepMs - livesForMs
    const retryAfterMs = Math.max(SHORTEST_RETRY_MS, Math.min(tookMs, call.lock.spec.ttlMs))
    const attempt = value === undefined ? undefined : { id: value.id, number: value.number }
    throw new InProgressError(call.key, retryAfterMs, attempt, cause === undefined ? undefined : { cause })
  }

  /** This call ends, and does not run. A `started` that it may have stored would be taken for a crash. */
  async #undo(call: OnceCall, first: Promise<Look> | undefined): Promise<void> {
    try {
      const look = await first
      if (look?.state === 'begun') await this.#records.remove(call.lock.key, { version: look.version })
    } catch {
      // Then the next caller finds a `started`, and does what it does about a crash. This call tells why by itself.
    }
  }

  /** Whether what was found ends this call. */
  #isAnswer({ fingerprint }: OnceCall, { value }: Found<OnceRecord>): boolean {
    return value !== undefined && (isSettled(value) || !sameRequest(value.fingerprint, fingerprint))
  }

  #answer({ key, fingerprint }: OnceCall, { value }: Found<OnceRecord>): SettledRecord {
    if (!sameRequest(value?.fingerprint, fingerprint)) throw new KeyReusedError(key)
    return value as SettledRecord
  }

  #nextRecord({ lock, fingerprint }: OnceCall, before: OnceRecord | undefined, by: string): StartedRecord {
    return {
      state: 'started',
      id: before?.id ?? lock.scope.keeper.chance.id(),
      number: (before?.number ?? 0) + 1,
      by,
      fingerprint: before?.fingerprint ?? fingerprint,
      steps: before?.steps,
    }
  }

  #lockOf(key: string): LineLock {
    return this.#locks.mutex(key, this.#lockOptions) as LineLock
  }

  toJSON(): object {
    return { name: this.#name, engine: this.#locks.engine.name, keepMs: this.#keepMs, waitMs: this.#waitMs }
  }
}

function lookOf(put: PutOutcome<OnceRecord>, record: StartedRecord): Look {
  if (put.state === 'stored') return { state: 'begun', record, version: put.version }
  return { state: 'found', found: put.found, current: put.by !== 'holding' }
}

/** An engine that cannot be reached is no reason to hide what the work has thrown. */
function unlessUnexpected(error: unknown): undefined {
  if (error instanceof EngineError) return undefined
  throw error
}

function checkCrashed(crashed: Crashed): Crashed {
  if (crashed === 'retry' || crashed === 'ask') return crashed
  throw new TypeError(`crashed must be 'retry' or 'ask'; got '${String(crashed)}'`)
}
