/**
 * One transaction at a time, and everything that is asked meanwhile in the next one.
 *
 * SQLite has one writer per file. Its own way of waiting for the turn blocks the event loop and starves; so ours is to
 * try, and to try again a little later, at random. What this process asks in one turn of its event loop, or while it
 * waits for the file, becomes one transaction. Opening the file is part of trying: many processes that open a fresh
 * file at once get in each other's way like writers do.
 */

import { BUSY, fault, isBusy, isHarmless } from '../../clients/sqlite/errors.ts'
import type { Chance, Clock } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import type { Lines } from './lines.ts'
import type { Store } from './store.ts'

/** The longest pause between two tries; the shortest is half a millisecond. */
const LONGEST_PAUSE_MS = 8
/** What nobody cancels is given up after this long. */
const PATIENCE_MS = 30_000

interface Job {
  readonly work: (lines: Lines) => unknown
  readonly resolve: (result: unknown) => void
  readonly reject: (error: unknown) => void
  readonly signal: AbortSignal | undefined
  readonly since: number
}

export interface WriterOptions {
  readonly file: string
  readonly clock: Clock
  readonly chance: Chance
  open(): Promise<Store>
  /** The beginning of a transaction. */
  begun(store: Store, now: number): Lines
  committed(lines: Lines): void
  /** What this transaction did is about to be undone. */
  failed(): void
}

export class Writer {
  readonly #options: WriterOptions
  readonly #clock: Clock
  #jobs: Job[] = []
  #draining = false
  #closed = false
  #store: Store | undefined

  constructor(options: WriterOptions) {
    this.#options = options
    this.#clock = options.clock
  }

  /** The open file, for reading beside the transactions; undefined while it is closed. */
  get store(): Store | undefined {
    return this.#store
  }

  /** Run `work` in a transaction. `signal`: give up if its turn has not come by then. */
  run<Result>(work: (lines: Lines) => Result, signal?: AbortSignal): Promise<Result> {
    if (this.#closed) return Promise.reject(this.#refuse('the engine was closed', false))
    if (signal?.aborted) return Promise.reject(this.#refuse('given up before it was asked', true, signal.reason))
    return new Promise<Result>((resolve, reject) => {
      this.#jobs.push({ work, resolve: resolve as (result: unknown) => void, reject, signal, since: this.#clock.now() })
      if (this.#draining) return
      this.#draining = true
      // Whatever else this turn asks for joins.
      queueMicrotask(() => this.#drain())
    })
  }

  /** Finish what was asked, then close the file. */
  async close(last: (lines: Lines) => void): Promise<void> {
    // Whoever never used the file has nothing to say to it.
    const used = this.#store !== undefined || this.#draining
    const said = used ? this.run(last).catch(() => {}) : undefined
    this.#closed = true
    await said
    this.#closeStore()
  }

  /** Usually the file is open and nobody else writes: then all is done before this returns. */
  #drain(): void {
    while (this.#jobs.length > 0 && this.#store !== undefined && this.#attempt(this.#store)) {}
    if (this.#jobs.length === 0) this.#draining = false
    else void this.#drainPatiently()
  }

  async #drainPatiently(): Promise<void> {
    const alive = this.#clock.stayAlive()
    for (let tries = 0; this.#jobs.length > 0; ) {
      const done = await this.#openAndAttempt()
      if (!done) await this.#pause(tries)
      tries = done ? 0 : tries + 1
      this.#dropOverdue()
    }
    this.#draining = false
    alive.cancel()
  }

  async #openAndAttempt(): Promise<boolean> {
    try {
      this.#store ??= await this.#options.open()
    } catch (error) {
      return this.#failedToBegin(error)
    }
    return this.#attempt(this.#store)
  }

  /** False: the file is busy, or has to be opened anew. Anything else is told to those who asked. */
  #attempt(store: Store): boolean {
    try {
      if (store.isReplaced(this.#clock.now())) {
        this.#closeStore()
        return false
      }
      if (!store.begin()) return false
    } catch (error) {
      return this.#failedToBegin(error)
    }
    this.#transact(store, this.#jobs.splice(0))
    return true
  }

  #failedToBegin(error: unknown): boolean {
    if (isBusy(error)) return false
    this.#fail(this.#jobs.splice(0), fault(error, this.#options.file, 'open'))
    return true
  }

  #transact(store: Store, jobs: readonly Job[]): void {
    let during: 'work' | 'commit' = 'work'
    let lines: Lines
    let results: unknown[]
    try {
      // Inside the lock, so that time never goes back from one transaction to the next, whichever processes they are
      // in.
      lines = this.#options.begun(store, this.#clock.now())
      results = jobs.map((job) => job.work(lines))
      lines.finish()
      during = 'commit'
      store.commit()
    } catch (error) {
      this.#options.failed()
      store.rollback()
      if (!isHarmless(error)) this.#closeStore()
      this.#fail(jobs, fault(error, store.file, during))
      return
    }
    this.#options.committed(lines)
    jobs.forEach((job, index) => {
      job.resolve(results[index])
    })
  }

  #fail(jobs: readonly Job[], error: EngineError): void {
    for (const job of jobs) job.reject(error)
  }

  #dropOverdue(): void {
    const now = this.#clock.now()
    const left: Job[] = []
    for (const job of this.#jobs) {
      if (job.signal?.aborted)
        job.reject(this.#refuse(`'${this.#options.file}' was busy for too long`, true, job.signal.reason))
      else if (job.signal === undefined && now - job.since > PATIENCE_MS) job.reject(this.#stuck())
      else left.push(job)
    }
    this.#jobs = left
  }

  #pause(tries: number): Promise<void> {
    const { chance } = this.#options
    const ms = Math.min(2 ** tries, LONGEST_PAUSE_MS) * (0.5 + chance.fraction() / 2)
    return new Promise((resolve) => this.#clock.timer(ms, resolve))
  }

  #stuck(): EngineError {
    return fault(Object.assign(new Error('database is locked'), { errcode: BUSY }), this.#options.file, 'open')
  }

  #refuse(message: string, transient: boolean, cause?: unknown): EngineError {
    return new EngineError('sqlite', message, {
      outcome: 'not-applied',
      transient,
      ...(cause === undefined ? {} : { cause }),
    })
  }

  #closeStore(): void {
    const store = this.#store
    this.#store = undefined
    try {
      store?.close()
    } catch {
      // It is of no use to us either way.
    }
  }
}
