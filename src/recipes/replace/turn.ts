/**
 * What the work is given: the generation of its rows, and the two steps that write. Each of them changes the record of
 * the list in the transaction that changes the rows. The change names the version of the one before. So a turn that was
 * superseded is refused inside of the transaction, and the transaction is rolled back.
 *
 * Whether a transaction was committed is not known here. So the record that this turn has put last may be undone. Then
 * the next change, which names its version, is refused, and the refusal says what is stored. So what this turn knows of
 * the record says only whether a change is worth a try.
 */
import { ConflictError, LeaseLostError, SupersededError } from '../../core/errors.ts'
import type { CoreLease } from '../../core/lease.ts'
import { onAbort } from '../../core/on-abort.ts'
import { truthfulController } from '../../core/signal.ts'
import type { KnownList, ListRecord } from './list-record.ts'
import {
  type LiveUpload,
  newerUpload,
  publishUpload,
  type ReplaceRecord,
  type StepVerdict,
  storeBatch,
} from './record.ts'

/** One attempt to replace the list. */
export interface Turn {
  /** The key that `replace` was given. */
  readonly key: string
  /** What the rows of this upload have to carry: higher than that of every upload accepted before it. */
  readonly generation: number
  /** How many batches attempts before this one have stored: more than 0 after a crash, for an upload with an id. */
  readonly stored: number
  /**
   * Aborts when this turn is over: with a `SupersededError` if a newer upload came, with a `LeaseLostError` if it was
   * stopped for too long. Pass it to whatever you await.
   */
  readonly signal: AbortSignal
  /**
   * The batches that are to be stored: all, but for those that attempts before this one have stored. They have to be
   * the same ones each time, in the same order.
   */
  resume<Rows>(batches: Iterable<Rows> | AsyncIterable<Rows>): AsyncGenerator<Rows, void, void>
  /**
   * Store one batch: `work` inserts its rows, with `turn.generation`. `transaction` is yours, on the database of the
   * record, and what your driver calls one: PostgreSQL (pg, postgres.js), MySQL, MariaDB (mysql2), SQLite. Rejects with
   * `SupersededError` there; roll back then. Once for each batch that `resume` gives: one that is stored already,
   * because the answer to the commit before was lost, is not stored again, and the answer is undefined. That is known
   * inside of the loop of `resume`: outside of it, a batch has no number, and is always the next one.
   *
   * `null`, where the rows are not in such a database: the work runs first, and a crash after it runs it again.
   */
  batch<Value>(transaction: unknown, work: () => Promise<Value> | Value): Promise<Value | undefined>
  /**
   * The last step: from the commit on, this is what readers see. `flip` tells them: it writes the generation where your
   * readers look for it, in the same transaction. Rejects with `SupersededError`; roll back then. Without a transaction
   * (`null`), what `flip` throws undoes nothing: call `publish` again to have it called again.
   */
  publish(transaction: unknown, flip?: (generation: number) => unknown): Promise<void>
}

export interface TurnSpec {
  /** The key that `replace` was given. */
  readonly key: string
  readonly list: ListRecord
  readonly lease: CoreLease
  readonly live: LiveUpload
  readonly known: KnownList
}

type Decide = (record: ReplaceRecord) => StepVerdict

/** A change is overtaken by a clean-up at most, and by another attempt of this turn: seldom more than once. */
const MOST_TRIES = 20

export class ReplaceTurn implements Turn {
  readonly #spec: TurnSpec
  readonly #controller: AbortController
  readonly #forget: () => void
  #known: KnownList
  /** How many batches `resume` has gone through. */
  #given = 0
  #resuming: 'not asked for' | 'going on' | 'done' = 'not asked for'
  /** `publish` was called. What is stored tells what has become of it. */
  publishing = false
  /** `flip` has thrown, or has not returned. Without a transaction, the upload is published all the same. */
  flipFailed = false

  constructor(spec: TurnSpec) {
    this.#spec = spec
    this.#known = spec.known
    const { signal } = spec.lease
    const look = (): void => {
      if (signal.aborted) this.#end(this.#reason(signal.reason))
    }
    this.#controller = truthfulController(look)
    this.#forget = onAbort(signal, look)
  }

  get key(): string {
    return this.#spec.key
  }

  get generation(): number {
    return this.#spec.live.generation
  }

  get stored(): number {
    return this.#spec.live.stored
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  toJSON(): object {
    const { key, generation, stored } = this
    return { key, generation, stored }
  }

  async *resume<Rows>(batches: Iterable<Rows> | AsyncIterable<Rows>): AsyncGenerator<Rows, void, void> {
    if (this.#resuming !== 'not asked for')
      throw new TypeError('turn.resume() was called before: it goes through the batches once')
    this.#resuming = 'going on'
    for await (const rows of batches) {
      this.#given += 1
      if (this.#given <= this.stored) continue
      this.signal.throwIfAborted()
      yield rows
    }
    if (this.#given < this.stored)
      throw new TypeError(
        `${this.stored} batches of this upload of '${this.key}' are stored, and now it has ${this.#given}: another list is another upload`,
      )
    this.#resuming = 'done'
  }

  async batch<Value>(transaction: unknown, work: () => Promise<Value> | Value): Promise<Value | undefined> {
    if (typeof work !== 'function') throw new TypeError(`batch takes a transaction and the work; got ${typeof work}`)
    this.#check('batch')
    if (this.stored > 0 && this.#resuming === 'not asked for')
      throw new TypeError(
        `${this.stored} batches of this upload of '${this.key}' are stored: go through turn.resume(batches), which leaves them out`,
      )
    const number = this.#resuming === 'going on' ? this.#given : undefined
    const decide: Decide = (record) => storeBatch(record, this.#spec.live, number)
    if (!(await this.#isWorthTrying(transaction, decide))) return undefined
    // The record last: it is locked until the transaction ends, and a newer upload needs it to be accepted.
    const value = await work()
    if ((await this.#change(transaction, decide)) || transaction === null) return value
    throw new ConflictError(`batch ${number} of '${this.key}'`, 1, 'it was stored meanwhile: roll back and begin again')
  }

  async publish(transaction: unknown, flip: (generation: number) => unknown = () => {}): Promise<void> {
    if (typeof flip !== 'function')
      throw new TypeError(`publish takes a transaction and a function; got ${typeof flip}`)
    this.#check('publish')
    if (this.#resuming === 'going on')
      throw new TypeError(`an upload of '${this.key}' is published when turn.resume() has gone through all batches`)
    // Only `resume` knows how many batches there are. Without it, the work does.
    const batches = this.#resuming === 'done' ? this.#given : undefined
    const decide: Decide = (record) => publishUpload(record, this.#spec.live, batches)
    this.publishing = true
    // If it is published already, and readers were told, `flip` is not called again: they may be on a newer one.
    const isFirst = await this.#isWorthTrying(transaction, decide)
    const isFlippedAgain = this.flipFailed && this.#known.record.published?.generation === this.generation
    // The record first: a turn that is refused tells readers nothing.
    if (!(isFirst ? await this.#change(transaction, decide) : isFlippedAgain)) return
    this.flipFailed = true
    await flip(this.generation)
    this.flipFailed = false
  }

  /** The work has ended. */
  close(): void {
    this.#forget()
  }

  /** Why this turn is over, if it is. */
  get lossError(): Error | undefined {
    const { signal } = this
    return signal.aborted ? (signal.reason as Error) : undefined
  }

  #check(step: string): void {
    this.signal.throwIfAborted()
    this.#spec.lease.assertHeld()
    if (this.#known.record.published?.generation === this.generation && step === 'batch')
      throw new TypeError('turn.publish() was called before: it is the last step')
  }

  /** False: it was done before. Only what is stored tells; what is known may not have been committed. */
  async #isWorthTrying(transaction: unknown, decide: Decide): Promise<boolean> {
    if (decide(this.#known.record).state === 'store') return true
    const { list } = this.#spec
    this.#known = transaction === null ? await list.look() : await list.lookIn(transaction)
    return this.#decided(decide) !== undefined
  }

  /** False: it was done before. */
  async #change(transaction: unknown, decide: Decide): Promise<boolean> {
    const { list } = this.#spec
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const record = this.#decided(decide)
      if (record === undefined) return false
      const changed = await list.change(this.#known, record, transaction)
      this.#known = changed
      if (changed.state === 'changed') return true
    }
    throw new ConflictError(`'${this.key}'`, MOST_TRIES, 'others changed its record each time')
  }

  /** The record to store; undefined if there is nothing to do. Throws if it may not be done. */
  #decided(decide: Decide): ReplaceRecord | undefined {
    const verdict = decide(this.#known.record)
    if (verdict.state === 'store') return verdict.record
    if (verdict.state === 'stored') return undefined
    if (verdict.state === 'superseded') throw this.#superseded()
    if (verdict.state === 'surplus')
      throw new TypeError(
        `${verdict.stored} batches of '${this.key}' are stored, and turn.resume() has given ${this.#given}: ` +
          'call turn.batch() inside of its loop, where it knows a batch that is there. Upload the list again, as a new upload',
      )
    throw new TypeError(
      `batch ${verdict.stored + 1} of '${this.key}' is not stored, and a later one is to be: ` +
        'commit the transaction of each batch before the next one',
    )
  }

  #superseded(): Error {
    const error = new SupersededError(this.key, this.generation, newerUpload(this.#known.record))
    this.#end(error)
    return error
  }

  /** An evicted one is told to go because a newer one came. */
  #reason(reason: unknown): unknown {
    const evicted = reason instanceof LeaseLostError && reason.why === 'evicted'
    return evicted ? new SupersededError(this.key, this.generation, undefined, { cause: reason }) : reason
  }

  #end(reason: unknown): void {
    this.#controller.abort(reason)
  }
}
