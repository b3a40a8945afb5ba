/**
 * `replace`: the way of an upload.
 *
 * 1. Be accepted: the record of the list gives this call a generation, and from then on no other call may write. With
 *    `newest: 'wins'` this is the first step, while another call may hold the line. Otherwise it follows the second.
 * 2. Hold the line. With `wins` those that stand in it are evicted: they learn at once that they are to stop.
 * 3. Work, by the turn (turn.ts). The record decides in each transaction whether it may still write.
 * 4. Look what is stored: the answer to a commit may have been lost.
 *
 * The line is for order and for waiting, and tells an older upload to stop. That it cannot write is up to the record
 * alone, which is in the database of the rows. So the locks may be on any engine, and may even be lost.
 */
import { EngineError, InProgressError, LeaseLostError, SupersededError, UnsupportedError } from '../../core/errors.ts'
import type { CoreLease } from '../../core/lease.ts'
import type { LineLock } from '../../core/lock.ts'
import type { Locks } from '../../locks.ts'
import { type KnownList, ListRecord } from './list-record.ts'
import { type ReplaceCall, type ReplaceOptions, type ReplaceResult, type ReplaceWork, readOptions } from './options.ts'
import {
  type Acceptance,
  abandonUpload,
  acceptUpload,
  type LiveUpload,
  newerUpload,
  type ReplaceRecord,
  type UploadClaim,
  wasPublished,
} from './record.ts'
import { ReplaceTurn } from './turn.ts'

/** This call may upload. */
interface Accepted {
  readonly live: LiveUpload
  readonly known: KnownList
}

/** It was accepted, or it is published already. */
type BegunUpload = Accepted | { readonly already: number }

/** One call of `replace()`. */
export class Upload<Value> {
  readonly #key: string
  readonly #locks: Locks
  readonly #list: ListRecord
  readonly #lock: LineLock
  readonly #call: ReplaceCall
  readonly #claim: UploadClaim
  readonly #work: ReplaceWork<Value>

  constructor(locks: Locks, key: string, options: ReplaceOptions, work: ReplaceWork<Value>) {
    if (typeof work !== 'function')
      throw new TypeError(`replace takes locks, a key, options, and the work as a function; got ${typeof work}`)
    this.#call = readOptions(options)
    this.#key = key
    this.#locks = locks
    this.#list = new ListRecord(locks, key, options)
    this.#lock = locks.mutex(this.#list.key, this.#call.lockOptions) as LineLock
    const { upload, order, newest } = this.#call
    this.#claim = { by: locks.keeper.chance.id(), upload, order, wins: newest === 'wins' }
    this.#work = work
  }

  async run(): Promise<ReplaceResult<Value>> {
    const { signal, newest } = this.#call
    signal?.throwIfAborted()
    return newest === 'wins' ? this.#win() : this.#wait()
  }

  async #win(): Promise<ReplaceResult<Value>> {
    const begun = await this.#accept(this.#claim)
    if ('already' in begun) return { state: 'already', generation: begun.already }
    const lease = await this.#hold(begun.live)
    return this.#under(lease, async () => {
      // While it waited, a newer one may have been accepted. A clean-up may have changed the version.
      const known = await this.#list.look()
      if (known.record.live?.by !== begun.live.by) throw this.#superseded(known.record, begun.live)
      return { live: begun.live, known }
    })
  }

  async #wait(): Promise<ReplaceResult<Value>> {
    const known = await this.#list.look()
    // What is refused now is refused without waiting for it.
    const first = this.#read(acceptUpload(known.record, this.#claim), known)
    if ('already' in first) return { state: 'already', generation: first.already }
    const { won } = known.record
    const lease = await this.#holdInOrder(won)
    return this.#under(lease, () => this.#accept({ ...this.#claim, wonBefore: won }, lease))
  }

  /**
   * Step 2 of a call that waits. One that wins evicts all that stand in the line, also one that has come after it was
   * accepted. That one is newer, and stands in line again: none has won since it came. Once: evicted again, it goes.
   * An operator who evicts it means it.
   */
  async #holdInOrder(won: number): Promise<CoreLease> {
    const { clock } = this.#locks.keeper
    const giveUpAt = clock.now() + this.#call.waitMs
    try {
      return await this.#hold(undefined)
    } catch (error) {
      if (!(error instanceof SupersededError)) throw error
      const { record } = await this.#list.look()
      if (record.won > won) throw error
    }
    return await this.#hold(undefined, Math.max(0, giveUpAt - clock.now()))
  }

  /**
   * Step 1. With a lease: what is stored is looked at while it is held, and changed by its version. So what another
   * call changes, which holds after this one, is not overwritten, also if this process stands still in between.
   */
  async #accept(claim: UploadClaim, lease?: CoreLease): Promise<BegunUpload> {
    const { clock } = this.#locks.keeper
    const giveUpAt = clock.now() + Math.min(this.#call.waitMs, this.#lock.spec.ttlMs)
    for (;;) {
      this.#call.signal?.throwIfAborted()
      try {
        const known = await this.#list.look()
        const acceptance = acceptUpload(known.record, claim)
        if (acceptance.state !== 'accepted') return this.#read(acceptance, known)
        lease?.assertHeld()
        const changed = await this.#list.change(known, acceptance.record)
        if (changed.state === 'changed') return { live: acceptance.live, known: changed }
      } catch (error) {
        // A transaction of an older upload has the record locked, until its batch is stored.
        const isBusy = error instanceof EngineError && error.transient && clock.now() < giveUpAt
        if (!isBusy) throw error
      }
    }
  }

  #read(acceptance: Acceptance, known: KnownList): BegunUpload {
    if (acceptance.state === 'superseded') throw this.#superseded(known.record, undefined)
    if (acceptance.state === 'published') return { already: acceptance.generation }
    return { live: acceptance.live, known }
  }

  /** Step 2. `live`: this call was accepted, and those before it are to go. */
  async #hold(live: LiveUpload | undefined, waitMs: number = this.#call.waitMs): Promise<CoreLease> {
    const { signal, newest } = this.#call
    const signals = signal === undefined ? {} : { signal }
    const free = await this.#lock.tryAcquire(signals).catch((error: unknown) => {
      // An outage may be over before the wait is.
      if (!(error instanceof EngineError && error.transient) || newest === 'fails') throw error
      return undefined
    })
    if (free !== undefined) return free
    if (newest === 'fails') throw new InProgressError(this.#key, this.#lock.spec.ttlMs, undefined)
    if (live !== undefined) await this.#evictOlder(live)
    const wait = waitMs === Number.POSITIVE_INFINITY ? {} : { wait: waitMs }
    return await this.#lock.acquire({ ...signals, ...wait }).catch((error: unknown) => {
      throw this.#unlessEvicted(error, live)
    })
  }

  /** An entry is evicted because a newer upload came. */
  #unlessEvicted(error: unknown, live: LiveUpload | undefined): unknown {
    if (!(error instanceof LeaseLostError && error.why === 'evicted')) return error
    return new SupersededError(this.#key, live?.generation, undefined, { cause: error })
  }

  /**
   * Tell those that stand in the line to go. A newer upload that wins was accepted before it came into the line: if one
   * is in it, the look that follows tells, and none is evicted. A newer one that waits comes back (`#holdInOrder`). It
   * only saves time: who does not hear of it is refused later.
   */
  async #evictOlder(live: LiveUpload): Promise<void> {
    const { key } = this.#list
    try {
      const { entries } = await this.#locks.inspect(key)
      const known = await this.#list.look()
      if (known.record.live?.by !== live.by) throw this.#superseded(known.record, live)
      const tokens = entries.map(({ token }) => token).filter((token) => token !== null)
      await Promise.all(tokens.map((token) => this.#locks.evict(key, token)))
    } catch (error) {
      if (!(error instanceof EngineError || error instanceof UnsupportedError)) throw error
    }
  }

  async #under(lease: CoreLease, begin: () => Promise<BegunUpload>): Promise<ReplaceResult<Value>> {
    const { keepAlive } = this.#locks.keeper
    // As with `using`: the work may await nothing but its signal.
    keepAlive.begin()
    try {
      const begun = await begin().catch((error: unknown) => {
        throw this.#unlessEvicted(error, undefined)
      })
      if ('already' in begun) return { state: 'already', generation: begun.already }
      return await this.#workOn(lease, begun)
    } finally {
      await lease.release()
      keepAlive.end()
    }
  }

  /** Steps 3 and 4. */
  async #workOn(lease: CoreLease, { live, known }: Accepted): Promise<ReplaceResult<Value>> {
    const { generation } = live
    const turn = new ReplaceTurn({ key: this.#key, list: this.#list, lease, live, known })
    let value: Value
    try {
      value = await this.#work(turn)
    } catch (error) {
      const published = await this.#isPublished(turn, live)
      if (published && !turn.flipFailed) return { state: 'already', generation }
      // Readers were not told of what is published: that is what the caller has to know.
      throw published ? error : told(turn.lossError, error)
    } finally {
      turn.close()
    }
    if (!turn.publishing) throw new TypeError(`the work for '${this.#key}' has returned without turn.publish()`)
    const { record } = await this.#list.look()
    if (wasPublished(record, generation)) return { state: 'published', generation, value }
    if (record.live?.by !== live.by) throw this.#superseded(record, live)
    throw new TypeError(
      `the transaction of turn.publish() was not committed when the work for '${this.#key}' ended: let the work await it`,
    )
  }

  /** After a throw. What has no name cannot be gone on with: its rows are waste. */
  async #isPublished(turn: ReplaceTurn, live: LiveUpload): Promise<boolean> {
    if (!turn.publishing && live.upload !== undefined) return false
    try {
      const known = await this.#list.look()
      if (wasPublished(known.record, live.generation)) return true
      const abandoned = live.upload === undefined ? abandonUpload(known.record, live) : undefined
      if (abandoned !== undefined) await this.#list.change(known, abandoned)
    } catch (error) {
      if (!(error instanceof EngineError)) throw error
    }
    return false
  }

  #superseded(record: ReplaceRecord, live: LiveUpload | undefined): SupersededError {
    return new SupersededError(this.#key, live?.generation, newerUpload(record))
  }
}

/** The caller has to learn that the turn was over, and what the work threw because of it is not forgotten. */
function told(loss: Error | undefined, error: unknown): unknown {
  if (loss === undefined || error === loss || error instanceof SupersededError) return error
  if (loss instanceof SupersededError) return new SupersededError(loss.key, loss.generation, loss.by, { cause: error })
  return loss instanceof LeaseLostError ? new LeaseLostError(loss.key, loss.token, loss.why, { cause: error }) : loss
}
