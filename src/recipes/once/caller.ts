/**
 * One caller of `once`, from its call to an answer or to an execution: what it finds, how it stands in line, and how it
 * begins.
 *
 * 1. One try. Where the store can (`putEntering`), one step enters the line if it is free, and puts `started` if
 *    nothing is stored. Elsewhere the enter and the put go out in the same turn. Either way the answer tells what is
 *    stored. So a first execution begins after one round trip, and a replay takes one.
 * 2. There is a result: answer it. The line is busy: wait in it, and be woken as its holder. What is stored then was
 *    stored by an execution that has ended.
 * 3. There is nothing to replay: put `started` with the next number, by the version that was seen. This is refused if
 *    that is not what is stored any more; the refusal tells what is, and this step is done again.
 *
 * A `started` in a line that is free was left by an execution that has died; unless an entry of this very caller has
 * stored it, whose answer was lost. That one is no crash: nothing has run.
 */

import { timeoutError } from '../../core/acquire.ts'
import type { EntryLease } from '../../core/entry-lease.ts'
import {
  AcquireTimeoutError,
  EngineError,
  InProgressError,
  KeyReusedError,
  LeaseLostError,
  UnknownOutcomeError,
} from '../../core/errors.ts'
import type { Found, PutOptions, PutOutcome, RecordStore } from '../../store/record-store.ts'
import { OnceAttempt } from './attempt.ts'
import type { OnceCall } from './call.ts'
import { OwnStarts } from './own-starts.ts'
import { isSettled, type OnceRecord, type SettledRecord, type StartedRecord, sameRequest } from './record.ts'

const SHORTEST_RETRY_MS = 1_000

/** A caller has the result that is stored, or is to run the work. */
export type Begun = SettledRecord | OnceAttempt

/** An execution of this caller has begun. */
interface Begin {
  readonly state: 'begun'
  readonly record: StartedRecord
  readonly version: bigint
}

/** What is known of a record. `current`: it was looked at while no other execution held the line. */
type Look = Begin | { readonly state: 'found'; readonly found: Found<OnceRecord>; readonly current: boolean }

/** One try: a lease if the line was free, and what is known of the record, unless that could not be learned. */
interface FirstTry {
  readonly lease: EntryLease | undefined
  readonly look: Look | undefined
}

export class OnceCaller {
  readonly #call: OnceCall
  readonly #records: RecordStore<OnceRecord>
  readonly #keepMs: number
  readonly #starts: OwnStarts
  /** A `started` of this caller may be stored, though it does not run. */
  #doubtful = false
  #over = false

  constructor(call: OnceCall, records: RecordStore<OnceRecord>, keepMs: number) {
    this.#call = call
    this.#records = records
    this.#keepMs = keepMs
    this.#starts = new OwnStarts(call, records, keepMs)
  }

  /** The result, or an execution that has begun. Rejects with what is in the way. */
  async begin(): Promise<Begun> {
    try {
      let first: FirstTry
      try {
        first = await (this.#records.putsEntering ? this.#tryInOneStep() : this.#tryInOneTurn())
      } catch (error) {
        first = this.#withoutAnswer(error)
      }
      const { lease, look } = first
      // The usual case is told apart here: each further promise costs as much as what is done about it.
      if (lease !== undefined && look?.state === 'begun' && look.record.by === lease.entryId)
        return this.#attempt(lease, look)
      return await (lease === undefined ? this.#begin(look) : this.#underLease(lease, look ?? (await this.#lookNow())))
    } catch (error) {
      this.#over = true
      // It would be taken for a crash.
      if (this.#doubtful) void this.#starts.takeBack()
      throw error
    }
  }

  /** The line was not free. */
  async #begin(look: Look | undefined): Promise<Begun> {
    const { lock, waitMs, signal } = this.#call
    const found = look?.state === 'found' ? look.found : undefined
    if (found !== undefined && this.#isAnswer(found)) return this.#answer(found)
    if (waitMs === 0) return this.lastLook(found)
    let granted: EntryLease
    try {
      granted = (await lock.acquireEntering({ waitMs, signal }, () => {})) as EntryLease
    } catch (error) {
      if (error instanceof AcquireTimeoutError) return this.lastLook(undefined, error)
      throw error
    }
    // What was found before the wait is tried first: most often it tells which version to expect.
    return this.#underLease(granted, found === undefined ? undefined : { state: 'found', found, current: false })
  }

  /** The wait is over, or there was none: what is stored decides what is said. */
  async lastLook(known?: Found<OnceRecord>, cause?: AcquireTimeoutError): Promise<SettledRecord> {
    const { key, lock } = this.#call
    const found = known ?? (await this.#records.get(lock.key))
    if (this.#isAnswer(found)) return this.#answer(found)
    const { value, livesForMs } = found
    const tookMs = livesForMs === null ? 0 : this.#keepMs - livesForMs
    const leftMs = await this.#leaseLeftMs(cause)
    const retryAfterMs = Math.max(SHORTEST_RETRY_MS, Math.min(tookMs, leftMs))
    const attempt = value === undefined ? undefined : { id: value.id, number: value.number }
    throw new InProgressError(key, retryAfterMs, attempt, cause === undefined ? undefined : { cause })
  }

  /**
   * After how long the line is free at the latest, unless its holder lives and renews: a client need not wait for
   * longer after a crash. The ttl, where that is not known.
   */
  async #leaseLeftMs(known: AcquireTimeoutError | undefined): Promise<number> {
    const { lock } = this.#call
    const { keeper } = lock.scope
    const { holders } = known ?? (await timeoutError(keeper, lock.key, 0))
    return Math.min(lock.spec.ttlMs, ...holders.map(({ remainingMs }) => remainingMs))
  }

  // ---- one try ----

  /** It has failed: that is thrown, unless there is time to wait. */
  #withoutAnswer(error: unknown): FirstTry {
    this.#doubtful = leavesDoubt(error)
    // An outage may be over before the wait is.
    if (!(error instanceof EngineError && error.transient) || this.#call.waitMs === 0) throw error
    return { lease: undefined, look: undefined }
  }

  /** The line is entered and `started` is stored, or neither. As often as it is free, and there is something to run. */
  async #tryInOneStep(): Promise<FirstTry> {
    const { lock, signal } = this.#call
    for (let before: Found<OnceRecord> | undefined; ; ) {
      const from = before
      let record!: StartedRecord
      const { lease, put } = await this.#records.putEntering(
        lock,
        signal,
        (entryId) => {
          record = this.#starts.next(from?.value, entryId)
          return record
        },
        this.#unchanged(from),
        this.#onStored,
      )
      const look = lookOf(put, record)
      if (look.state === 'begun') return { lease, look }
      if (!look.current || this.#isAnswer(look.found)) return { lease: undefined, look }
      this.#askAboutCrash(look.found)
      before = look.found
    }
  }

  readonly #onStored = (): void => {
    // It was cancelled meanwhile.
    if (this.#over) void this.#starts.takeBack()
  }

  /**
   * The put goes out in the turn in which the engine is asked to let the entry in. Where the store does not know the
   * line, a `started` without holding would be taken for a crash: there, it is only a look.
   */
  async #tryInOneTurn(): Promise<FirstTry> {
    const { lock, signal } = this.#call
    let first: Promise<Look> | undefined
    const lease = await lock.acquireEntering({ waitMs: 0, signal }, (entryId) => {
      first ??= this.#records.checksHolding ? this.#putBeside(entryId) : this.#lookNow(false)
      // It is told below.
      first.catch(() => {})
    })
    if (lease !== undefined) return { lease, look: await first?.catch((error) => this.#releasing(lease, error)) }
    const look = await first?.catch(unlessUnexpected)
    // It may be stored, though the entry is not in the line any more.
    this.#doubtful = look?.state !== 'found'
    return { lease, look }
  }

  async #putBeside(entryId: string): Promise<Look> {
    const { key } = this.#call.lock
    const record = this.#starts.next(undefined, entryId)
    const options = { holding: { key, entryId }, absent: true as const, ttlMs: this.#keepMs }
    return lookOf(await this.#records.put(key, record, options), record)
  }

  // ---- under a lease ----

  /** This caller holds the line. */
  async #underLease(lease: EntryLease, first: Look | undefined): Promise<Begun> {
    try {
      const begun = await this.#beginHolding(lease, first ?? (await this.#lookNow()))
      if (!(begun instanceof OnceAttempt)) void lease.release()
      return begun
    } catch (error) {
      return this.#releasing(lease, error)
    }
  }

  async #beginHolding(lease: EntryLease, first: Look): Promise<Begun> {
    const records = this.#records
    const { lock } = this.#call
    for (let look = first; ; ) {
      if (look.state === 'begun') {
        if (look.record.by === lease.entryId) return this.#attempt(lease, look)
        // An entry before this one had begun, and has expired in the line: another caller may have begun since.
        look = await this.#lookNow()
      }
      if (look.state === 'begun') continue
      const { found, current } = look
      if (this.#isAnswer(found)) return this.#answer(found)
      if (!current && this.#isCrash(found) && this.#call.crashed === 'ask') {
        look = await this.#lookNow()
        continue
      }
      this.#askAboutCrash(found)
      const record = this.#starts.next(found.value, lease.entryId)
      const options = { ...this.#unchanged(found), holding: lease }
      const put = await records.put(lock.key, record, options)
      if (put.state === 'refused' && put.by === 'holding')
        throw lease.lossError ?? new LeaseLostError(lock.key, lease.token, 'expired')
      look = lookOf(put, record)
    }
  }

  /** Its `started` is stored, by the entry of its lease. */
  #attempt(lease: EntryLease, { record, version }: Begin): OnceAttempt {
    // This process may have stood still before it heard so. Another execution may have begun meanwhile.
    try {
      lease.assertHeld()
    } catch (error) {
      this.#releasing(lease, error)
    }
    const { key, lock } = this.#call
    return new OnceAttempt({
      key,
      lease,
      records: this.#records,
      clock: lock.scope.keeper.clock,
      keepMs: this.#keepMs,
      ttlMs: lock.spec.ttlMs,
      record,
      version,
    })
  }

  #releasing(lease: EntryLease, error: unknown): never {
    this.#doubtful ||= leavesDoubt(error)
    // Not awaited: a release never rejects.
    void lease.release()
    throw error
  }

  // ---- what was found ----

  async #lookNow(current = true): Promise<Look> {
    return { state: 'found', found: await this.#records.get(this.#call.lock.key), current }
  }

  /** How a `started` is put: if the record is still what was found. */
  #unchanged(found: Found<OnceRecord> | undefined): Omit<PutOptions, 'holding'> {
    const ttlMs = this.#keepMs
    return found?.exists ? { version: found.version, ttlMs } : { absent: true, ttlMs }
  }

  /** Whether what was found ends this call. */
  #isAnswer({ value }: Found<OnceRecord>): boolean {
    return value !== undefined && (isSettled(value) || !sameRequest(value.fingerprint, this.#call.fingerprint))
  }

  #answer({ value }: Found<OnceRecord>): SettledRecord {
    if (!sameRequest(value?.fingerprint, this.#call.fingerprint)) throw new KeyReusedError(this.#call.key)
    return value as SettledRecord
  }

  /** An execution has begun, and has not ended. */
  #isCrash({ value }: Found<OnceRecord>): boolean {
    return value?.state === 'started' && !this.#starts.has(value)
  }

  #askAboutCrash(found: Found<OnceRecord>): void {
    if (this.#call.crashed !== 'ask' || !this.#isCrash(found)) return
    const { id, number } = found.value as OnceRecord
    throw new UnknownOutcomeError(this.#call.key, { id, number })
  }
}

function lookOf(put: PutOutcome<OnceRecord>, record: StartedRecord): Look {
  if (put.state === 'stored') return { state: 'begun', record, version: put.version }
  return { state: 'found', found: put.found, current: put.by !== 'holding' }
}

/** Whether a `started` of the caller that was told this may be stored. What was found may be a reason to give up. */
function leavesDoubt(error: unknown): boolean {
  if (error instanceof UnknownOutcomeError || error instanceof KeyReusedError) return false
  return !(error instanceof EngineError && error.outcome === 'not-applied')
}

/** An engine that cannot be reached is no reason to stop: it is asked again. */
function unlessUnexpected(error: unknown): undefined {
  if (error instanceof EngineError) return undefined
  throw error
}
