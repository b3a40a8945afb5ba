/**
 * One execution of a request: what the work is given, and how it is written down what became of it.
 *
 * Every change of the record names the version of the change before it. An execution that was replaced is refused at
 * its first change after that, for good: the one that replaced it has changed the record when it began. So a result
 * that is late, and was not replaced, is still stored: it is true, and no other execution has begun. So is a failure
 * that is final.
 *
 * A step that is done is in every change after it, whatever became of its own: the answer to that may be lost, and the
 * change made, or made later. So nothing that this execution stores has fewer steps than what was stored before.
 */

import type { Clock } from '../../core/clock.ts'
import type { EntryLease } from '../../core/entry-lease.ts'
import { type AttemptName, EngineError, LeaseLostError, type LossReason } from '../../core/errors.ts'
import { rejectAfter } from '../../core/time-limit.ts'
import type { PutOptions, PutOutcome, RecordStore } from '../../store/record-store.ts'
import {
  type FailedRecord,
  isSettled,
  type OnceRecord,
  type SettledRecord,
  type StartedRecord,
  storedFailure,
} from './record.ts'

/** How a lease is lost whose entry stands in the line until the work has ended, or its ttl is over. */
const STANDS_AFTER: ReadonlySet<LossReason> = new Set(['closed', 'maxHold', 'evicted'])

/** One execution of the work: what it is called, and what it can have written down. */
export interface Attempt extends AttemptName {
  /** The key that `run` was given. */
  readonly key: string
  /**
   * The same for every execution of this request, also after a crash: give it to a payment provider as its idempotency
   * key. Another request has another one, also one with the same key after `keep`.
   */
  readonly id: string
  /** 1 for the first execution of this request, and higher for each one after it. */
  readonly number: number
  /** The fencing token of this execution: higher than that of every one before it. Null where there is none. */
  readonly token: bigint | null
  /** Aborts when this execution has lost its lease: another one may begin. Pass it to whatever you await. */
  readonly signal: AbortSignal
  /**
   * Do a part of the work, and store what it answers. An execution that comes after a crash or a throw is given that
   * answer, and skips the part. A crash between the end of the part and the storing repeats it. The answer is as it was
   * stored, for all of them: with JSON, a `Date` is a string, whatever its type says.
   *
   * Rejects if the answer could not be stored: the same step again only tries to store it. Work that throws ends when
   * its steps have, a ttl later at most.
   */
  step<Value>(name: string, work: () => Promise<Value> | Value): Promise<Value>
  /**
   * Store the result inside a transaction of yours: it is there if and only if what else you do in that transaction is.
   * Call it last in the transaction, and let the work return what the transaction returns. Where you try a transaction
   * again that was rolled back, call it again. `transaction` is what your driver calls one, on the server of the
   * records: PostgreSQL (pg, postgres.js), MySQL, MariaDB (mysql2), SQLite.
   */
  commit<Value>(transaction: unknown, value: Value): Promise<Value>
  /** `throw attempt.final(error)`: the request has failed for good, and is not run again. Duplicates are told so. */
  final<Thrown>(error: Thrown): Thrown
}

/** What an execution is made of. */
export interface AttemptSpec {
  /** The key that `run` was given. */
  readonly key: string
  readonly lease: EntryLease
  readonly records: RecordStore<OnceRecord>
  readonly clock: Clock
  readonly keepMs: number
  readonly ttlMs: number
  /** What is stored of it now, and by which version. */
  readonly record: StartedRecord
  readonly version: bigint
}

export class OnceAttempt implements Attempt {
  readonly #spec: AttemptSpec
  /** What is stored of it, and every step that is done: also those that failed to be stored, or are in doubt. */
  #record: StartedRecord
  /** The version of the last change that is known to be made. */
  #version: bigint
  /** Changes are made one after the other: each names the version of the one before. Undefined: none is under way. */
  #changes: Promise<unknown> | undefined
  /** Steps that run, and those that are stored. */
  readonly #steps = new Map<string, Promise<unknown>>()
  /** Steps that are done, and may not be stored. */
  readonly #unstored = new Set<string>()
  /** Steps that are done, and cannot be stored; and why. */
  readonly #unstorable = new Map<string, unknown>()
  readonly #finals = new Set<unknown>()
  /** The change that `commit` has made inside of a transaction, which may not have been committed. */
  #committed: bigint | undefined
  /** The work has returned or thrown: what it began goes on, and it begins nothing any more. */
  #ended = false

  constructor(spec: AttemptSpec) {
    this.#spec = spec
    this.#record = spec.record
    this.#version = spec.version
  }

  get key(): string {
    return this.#spec.key
  }

  get lease(): EntryLease {
    return this.#spec.lease
  }

  get id(): string {
    return this.#record.id
  }

  get number(): number {
    return this.#record.number
  }

  get token(): bigint | null {
    return this.#spec.lease.token
  }

  get signal(): AbortSignal {
    return this.#spec.lease.signal
  }

  toJSON(): object {
    const { key, id, number } = this
    return { key, id, number }
  }

  step<Value>(name: string, work: () => Promise<Value> | Value): Promise<Value> {
    if (typeof name !== 'string') throw new TypeError(`a step takes its name as a string; got ${typeof name}`)
    if (typeof work !== 'function') throw new TypeError(`step('${name}') takes its work as a function`)
    const asked = this.#steps.get(name) ?? this.#step(name, work)
    this.#steps.set(name, asked)
    // A step that has thrown may be tried again by the same execution.
    asked.catch(() => {
      // Another caller of it, who has heard of this first, may have begun it again.
      if (this.#steps.get(name) === asked) this.#steps.delete(name)
    })
    return asked as Promise<Value>
  }

  async #step(name: string, work: () => unknown): Promise<unknown> {
    const { lease } = this.#spec
    if (!Object.hasOwn(this.#record.steps ?? {}, name)) {
      if (this.#unstorable.has(name)) throw this.#unstorable.get(name)
      this.#assertMayBegin(`step('${name}')`)
      if (this.#committed !== undefined)
        throw new TypeError(
          `step('${name}') was called after commit() by this attempt: commit() stores the result, and comes last`,
        )
      this.#remember(name, await work())
    }
    if (this.#unstored.has(name)) {
      await this.#inTurn(() => this.#storeSteps(name))
      lease.assertHeld()
    }
    return this.#record.steps?.[name]?.value
  }

  /** Throws if the lease is lost, so that the next execution may have begun, or if the work has ended. */
  #assertMayBegin(call: string): void {
    this.#spec.lease.assertHeld()
    if (this.#ended) throw new TypeError(`${call} was called after the work for '${this.key}' had returned or thrown`)
  }

  /** The step is done, whatever becomes of its storing: every change after this one has it. */
  #remember(name: string, value: unknown): void {
    const { records, lease } = this.#spec
    const next: StartedRecord = { ...this.#record, steps: { ...this.#record.steps, [name]: { value } } }
    try {
      this.#record = records.copy(lease.key, next) as StartedRecord
    } catch (error) {
      // Another execution would do it again: the request has failed, whatever the work makes of this error.
      this.#unstorable.set(name, error)
      throw this.final(error)
    }
    this.#unstored.add(name)
  }

  async #storeSteps(name: string): Promise<void> {
    // It was stored together with another step.
    if (!this.#unstored.has(name)) return
    const storing = [...this.#unstored]
    const put = await this.#put(this.#soFar, 'step')
    if (put.state === 'refused') throw this.#lossError()
    this.#version = put.version
    for (const stored of storing) this.#unstored.delete(stored)
  }

  async commit<Value>(transaction: unknown, value: Value): Promise<Value> {
    return this.#inTurn(async () => {
      this.#assertMayBegin('commit()')
      const { lease, records, keepMs } = this.#spec
      const next = this.#done(value)
      const putNow = (): Promise<PutOutcome<OnceRecord>> =>
        records.putIn(transaction, lease.key, next, { holding: lease, version: this.#version, ttlMs: keepMs })
      let put = await putNow()
      if (this.#foundOwn(put)) put = await putNow()
      if (put.state === 'refused') {
        const { value: found } = put.found
        // What `commit` stored in a transaction that was rolled back is not found here, and it can be called again.
        if (found?.state === 'done' && found.by === lease.entryId)
          throw new TypeError('commit() was called before by this attempt: it stores the result once')
        throw this.#lossError()
      }
      this.#committed = put.version
      return (records.copy(lease.key, next) as { value: Value }).value
    })
  }

  /**
   * The result is `value`, in the place of what `commit` has stored: that of HTTP is the response, and no transaction
   * knows it. Where there was no `commit`, or its transaction was rolled back, `succeeded` stores the result.
   */
  async replaceCommitted(value: unknown): Promise<void> {
    if (this.#changes !== undefined) await this.#changes
    if (this.#committed === undefined) return
    const { lease, records, keepMs } = this.#spec
    const put = await records.put(lease.key, this.#done(value), { version: this.#committed, ttlMs: keepMs })
    const found = put.state === 'refused' ? put.found.value : undefined
    if (found?.state === 'started' && found.by === lease.entryId) this.#committed = undefined
  }

  final<Thrown>(error: Thrown): Thrown {
    this.#finals.add(error)
    return error
  }

  /** The work has returned `value`. Answers what is stored: its own result, or that of an execution after it. */
  succeeded(value: unknown): Promise<SettledRecord> {
    this.#ended = true
    return this.#inTurn(async () => {
      if (this.#committed !== undefined) return this.#checkCommitted()
      const { lease, records } = this.#spec
      let bytes: Uint8Array
      try {
        bytes = records.encode(lease.key, this.#done(value))
      } catch (error) {
        // The work is done, and would be done again if this were forgotten.
        const failed = await this.#putForSure(() => records.encode(lease.key, this.#failed(error)))
        if (failed.state === 'refused') this.#settled(failed)
        throw error
      }
      const put = await this.#putForSure(() => bytes)
      return put.state === 'stored' ? (records.decode(bytes) as SettledRecord) : this.#settled(put)
    })
  }

  /**
   * The work has thrown `error`. Answers what is stored for good: the result of an execution after it, or its own: that
   * failure, or the result, where the transaction that it is in was committed and the answer to that was lost.
   */
  async failed(error: unknown, keep: boolean): Promise<SettledRecord | undefined> {
    this.#ended = true
    await this.#stepsEnded()
    return this.#inTurn(async () => {
      const { lease, records } = this.#spec
      const isAnswer = this.#finals.has(error) || this.#unstorable.size > 0
      // Why else the work threw does not matter then, and what it had done is not known: the next one decides by
      // `crashed`.
      if (this.#committed === undefined && lease.lossError !== undefined && !isAnswer) {
        if (this.#unstored.size > 0) await this.#put(this.#soFar, 'step')
        return undefined
      }
      // A lease that is lost may be what the work threw for, also where it has called `commit`: that is not kept.
      const isFinal = isAnswer || (keep && lease.lossError === undefined)
      const failure = isFinal ? this.#failed(error) : undefined
      const ending = (): Uint8Array => records.encode(lease.key, failure ?? this.#thrown())
      // A transaction that is still open would be waited for.
      const forSure = (failure !== undefined || this.#unstored.size > 0) && this.#committed === undefined
      const put = await (forSure ? this.#putForSure(ending) : this.#put(ending, 'last'))
      if (put.state === 'stored') return failure
      const { value } = put.found
      return value !== undefined && isSettled(value) ? value : undefined
    })
  }

  /**
   * A step may still run beside what has thrown, as in `Promise.all`. The next execution is not to run it at the same
   * time. One that hangs is waited for as long as a crash would be. Where the work was told to stop and this process
   * still stands in the line (a drain), that goes on for as long as no other can hold.
   */
  async #stepsEnded(): Promise<void> {
    if (this.#steps.size === 0) return
    const { lease, clock, ttlMs } = this.#spec
    const giveUpAt = clock.now() + ttlMs
    const ended = Promise.allSettled(this.#steps.values())
    const wait = (ms: number, ending: AbortSignal): Promise<unknown> =>
      rejectAfter(clock, ms, ended, () => new Error('a step hangs'), ending).catch(() => {})
    await wait(ttlMs, lease.signal)
    const { lossError, protectedMs, keeper } = lease
    if (lossError === undefined || !STANDS_AFTER.has(lossError.why)) return
    await wait(Math.min(protectedMs, giveUpAt - clock.now()), keeper.closing)
  }

  /** All steps that are done, for a change in the middle of the work. */
  readonly #soFar = (): Uint8Array => this.#spec.records.encode(this.#spec.lease.key, this.#record)

  #done(value: unknown): OnceRecord {
    const { id, number, by, fingerprint } = this.#record
    return { state: 'done', id, number, by, fingerprint, value }
  }

  /** For good. */
  #failed(error: unknown): FailedRecord {
    return { ...this.#record, state: 'failed', steps: undefined, final: true, failure: storedFailure(error) }
  }

  /** The steps are kept for the next execution. What was thrown is not: they may leave no room for it. */
  #thrown(): OnceRecord {
    return { ...this.#record, state: 'failed' }
  }

  async #checkCommitted(): Promise<SettledRecord> {
    const { lease, records } = this.#spec
    const { value } = await records.get(lease.key)
    if (value !== undefined && isSettled(value)) return value
    throw new TypeError(
      `the transaction of attempt.commit() was not committed when the work for '${this.key}' ended: ` +
        'let the work return what the transaction returns',
    )
  }

  /** What another execution has stored. Throws if it has not ended: this one has lost its lease. */
  #settled(put: PutOutcome<OnceRecord>): SettledRecord {
    const value = put.state === 'refused' ? put.found.value : undefined
    if (value !== undefined && isSettled(value)) return value
    throw this.#lossError()
  }

  /**
   * Store it, for as long as the lease is held: what is not stored would be done again. A store elsewhere may be away
   * while the line is not: it is tried for a ttl then, as long as an outage of both may last. Then once more, which
   * finds what a try has stored whose answer was lost: it has left the line, so that the lease is lost as well.
   */
  async #putForSure(content: () => Uint8Array): Promise<PutOutcome<OnceRecord>> {
    const { lease, clock, ttlMs } = this.#spec
    const giveUpAt = clock.now() + ttlMs
    for (let isLast = false; ; ) {
      try {
        return await this.#put(content, 'last')
      } catch (error) {
        if (isLast || !(error instanceof EngineError && error.transient)) throw error
        isLast = !lease.held || clock.now() >= giveUpAt
      }
    }
  }

  /**
   * Each try stores what is done by then. After the last change of an execution, the next one in the line may begin.
   */
  async #put(content: () => Uint8Array, change: 'step' | 'last'): Promise<PutOutcome<OnceRecord>> {
    const { lease, records, keepMs } = this.#spec
    const bytes = content()
    const options: PutOptions = { version: this.#version, ttlMs: keepMs }
    const put = await (change === 'last'
      ? records.putLeaving(lease, bytes, options)
      : records.putBytes(lease.key, bytes, options))
    if (put.state === 'stored') return put
    if (this.#foundOwn(put)) return this.#put(content, change)
    if (put.found.exists) return put
    // The work has taken longer than `keep`. The entry still stands in the line, if no other execution has begun.
    return records.putBytes(lease.key, bytes, { holding: lease, absent: true, ttlMs: keepMs })
  }

  /**
   * Whether it was refused because a step before it, whose answer was lost, was stored after all: no other execution
   * has begun, and by the version of that step it can be tried again.
   */
  #foundOwn(put: PutOutcome<OnceRecord>): boolean {
    if (put.state === 'stored') return false
    const { value, version } = put.found
    const own = value?.state === 'started' && value.by === this.#spec.lease.entryId && version > this.#version
    if (own) this.#version = version
    return own
  }

  /** At once if no other change is under way: SQLite has transactions in which nothing can be waited for. */
  #inTurn<Value>(change: () => Promise<Value>): Promise<Value> {
    const changed = this.#changes === undefined ? change() : this.#changes.then(change)
    const ended = changed.then(
      () => {},
      () => {},
    )
    this.#changes = ended
    void ended.then(() => {
      if (this.#changes === ended) this.#changes = undefined
    })
    return changed
  }

  /** It was replaced: that is a loss, though this process may not have noticed yet. */
  #lossError(): LeaseLostError {
    const { lease } = this.#spec
    return lease.lossError ?? new LeaseLostError(lease.key, lease.token, 'expired')
  }
}
