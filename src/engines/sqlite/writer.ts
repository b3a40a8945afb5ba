/**
 * One transaction at a time, and everything that is asked meanwhile in the next one.
 *
 * SQLite has one writer per file. Its own way of waiting for the turn blocks the event loop, and can wait for ever
 * beside a busy process. So we try, and try again a little later, at random. What this process asks in one turn of its
 * event loop, or while it waits for the file, becomes one transaction. Opening the file is part of trying: many
 * processes that open a fresh file at once get in each other's way like writers do.
 */

import { asEngineError, BUSY, isBusy, isHarmless, type SqliteFacts } from '../../clients/sqlite/errors.ts'
import type { Chance, Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import { EventLoopTurn } from '../shared/event-loop-turn.ts'
import type { LockFile } from './lock-file.ts'
import type { SqliteTransaction } from './transaction.ts'

/** The longest pause between two tries; the shortest is half a millisecond. */
const LONGEST_PAUSE_MS = 8
/** Work without a signal is given up after this long. */
const LONGEST_WAIT_MS = 30_000
/**
 * After this long, too, once the engine is closed: callers wait no more by then, and the process is to end. What is not
 * taken out of the file is, by others, when this process is dead.
 */
const CLOSING_WAIT_MS = 1_000

interface PendingWork {
  /** What the caller has called, for its error. */
  readonly call: EngineCall
  readonly work: (transaction: SqliteTransaction) => unknown
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
  readonly signal: AbortSignal | undefined
  readonly since: number
}

export interface SqliteWriterOptions {
  readonly file: string
  readonly clock: Clock
  readonly chance: Chance
  open(): Promise<LockFile>
  /** The beginning of a transaction. */
  begun(lockFile: LockFile, now: number): SqliteTransaction
  committed(transaction: SqliteTransaction): void
  /** What this transaction did is about to be undone. */
  failed(): void
}

export class SqliteWriter {
  readonly #options: SqliteWriterOptions
  readonly #clock: Clock
  readonly #turn = new EventLoopTurn()
  #pending: PendingWork[] = []
  #draining = false
  #closedAt: number | undefined
  #lockFile: LockFile | undefined

  constructor(options: SqliteWriterOptions) {
    this.#options = options
    this.#clock = options.clock
  }

  /** The open file, for reading beside the transactions; undefined while it is closed. */
  get lockFile(): LockFile | undefined {
    return this.#lockFile
  }

  /** Run `work` of `call` in a transaction. `signal`: give up if its turn has not come by then. */
  run<Result>(
    call: EngineCall,
    work: (transaction: SqliteTransaction) => Result,
    signal?: AbortSignal,
  ): Promise<Result> {
    if (this.#closedAt !== undefined) return Promise.reject(this.#refuse(call, 'the engine was closed', false))
    if (signal?.aborted) return Promise.reject(this.#refuse(call, 'given up before it was asked', true, signal.reason))
    return new Promise<Result>((resolve, reject) => {
      const now = this.#clock.now()
      this.#pending.push({ call, work, resolve: resolve as (result: unknown) => void, reject, signal, since: now })
      if (this.#draining) return
      this.#draining = true
      if (this.#turn.isOver(now)) this.#turn.next(() => this.#drain())
      // What else is asked for before the microtasks are done joins.
      else queueMicrotask(() => this.#drain())
    })
  }

  /** Finish what was asked, then close the file. */
  async close(last: (transaction: SqliteTransaction) => void): Promise<void> {
    // An engine that never used the file has nothing to write.
    const used = this.#lockFile !== undefined || this.#draining
    const said = used ? this.run('leave', last).catch(() => {}) : undefined
    this.#closedAt = this.#clock.now()
    await said
    this.#closeLockFile()
  }

  /** Usually the file is open and no other process writes: then all is done before this returns. */
  #drain(): void {
    while (this.#pending.length > 0 && this.#lockFile !== undefined && this.#attempt(this.#lockFile)) {}
    if (this.#pending.length === 0) this.#draining = false
    else void this.#drainWithRetries()
  }

  async #drainWithRetries(): Promise<void> {
    const alive = this.#clock.stayAlive()
    for (let tries = 0; this.#pending.length > 0; ) {
      const done = await this.#openAndAttempt()
      if (!done) await this.#pause(tries)
      else if (this.#turn.isOver(this.#clock.now())) await new Promise<void>((resume) => this.#turn.next(resume))
      tries = done ? 0 : tries + 1
      this.#dropOverdue()
    }
    this.#draining = false
    alive.cancel()
  }

  async #openAndAttempt(): Promise<boolean> {
    try {
      this.#lockFile ??= await this.#options.open()
    } catch (error) {
      return this.#failedToBegin(error)
    }
    return this.#attempt(this.#lockFile)
  }

  /** False: the file is busy, or has to be opened anew. Any other failure is told to the callers. */
  #attempt(lockFile: LockFile): boolean {
    try {
      if (lockFile.isReplaced(this.#clock.now())) {
        this.#closeLockFile()
        return false
      }
      if (!lockFile.begin()) return false
    } catch (error) {
      return this.#failedToBegin(error)
    }
    this.#transact(lockFile, this.#pending.splice(0))
    return true
  }

  #failedToBegin(error: unknown): boolean {
    if (isBusy(error)) return false
    this.#fail(this.#pending.splice(0), error, { file: this.#options.file, during: 'open' })
    return true
  }

  #transact(lockFile: LockFile, pending: readonly PendingWork[]): void {
    let during: 'work' | 'commit' = 'work'
    let transaction: SqliteTransaction
    let results: unknown[]
    try {
      // Inside the lock, so that time never goes back from one transaction to the next, whichever processes they are
      // in.
      transaction = this.#options.begun(lockFile, this.#clock.now())
      results = pending.map((item) => item.work(transaction))
      transaction.finish()
      during = 'commit'
      lockFile.commit()
    } catch (error) {
      this.#options.failed()
      lockFile.rollback()
      if (!isHarmless(error)) this.#closeLockFile()
      this.#fail(pending, error, { file: lockFile.file, during })
      return
    }
    this.#options.committed(transaction)
    pending.forEach((item, index) => {
      item.resolve(results[index])
    })
  }

  /** Each caller is told which call of its own has failed: those of one transaction are of several. */
  #fail(pending: readonly PendingWork[], error: unknown, facts: SqliteFacts): void {
    for (const { call, reject } of pending) reject(asEngineError(call, error, facts))
  }

  #dropOverdue(): void {
    const now = this.#clock.now()
    const left: PendingWork[] = []
    for (const item of this.#pending) {
      if (item.signal?.aborted)
        item.reject(this.#refuse(item.call, `'${this.#options.file}' was busy for too long`, true, item.signal.reason))
      else if (item.signal === undefined && now > this.#latest(item)) item.reject(this.#stuck(item.call))
      else left.push(item)
    }
    this.#pending = left
  }

  /** How long work without a signal is tried. */
  #latest({ since }: PendingWork): number {
    return Math.min(since + LONGEST_WAIT_MS, (this.#closedAt ?? Number.POSITIVE_INFINITY) + CLOSING_WAIT_MS)
  }

  #pause(tries: number): Promise<void> {
    const { chance } = this.#options
    const ms = Math.min(2 ** tries, LONGEST_PAUSE_MS) * (0.5 + chance.fraction() / 2)
    return new Promise((resolve) => this.#clock.timer(ms, resolve))
  }

  #stuck(call: EngineCall): EngineError {
    const busy = Object.assign(new Error('database is locked'), { errcode: BUSY })
    return asEngineError(call, busy, { file: this.#options.file, during: 'open' })
  }

  #refuse(call: EngineCall, message: string, transient: boolean, cause?: unknown): EngineError {
    return new EngineError('sqlite', `${call}: ${message}`, {
      outcome: 'not-applied',
      transient,
      ...(cause === undefined ? {} : { cause }),
    })
  }

  #closeLockFile(): void {
    const lockFile = this.#lockFile
    this.#lockFile = undefined
    try {
      lockFile?.close()
    } catch {
      // It is of no use to us either way.
    }
  }
}
