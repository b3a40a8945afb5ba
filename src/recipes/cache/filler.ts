/**
 * One process on its way to a value, for all of its callers: what is stored by then, or what it makes itself.
 *
 * 1. One try to hold the line, alone. Its holder fills; so there is one filler in all processes.
 * 2. The line is busy: another process fills. Wait behind it as a *reader*. When it leaves, all readers hold in one
 *    step of the server, and each looks at what is stored.
 * 3. Still nothing: the filler has died, or its value was invalidated. Now wait to hold alone. Each that does looks
 *    first, in the step of its claim, so one of them fills and the others find what it has stored.
 *
 * Before a fill begins, its claim is stored (record.ts), by the version that was seen. The value replaces the claim by
 * its version. A refresh needs no claim: it replaces the value that was there.
 */
import type { EntryLease } from '../../core/entry-lease.ts'
import { AcquireTimeoutError } from '../../core/errors.ts'
import type { LineLock } from '../../core/lock.ts'
import type { CacheLook } from './backend.ts'
import { AGAIN, type FillOutcome, type FillSpec, HeldFill, type Moment } from './fill.ts'
import type { FillingRecord } from './record.ts'

/** A claim is forgotten after so long. What takes longer to fill is given to its callers, and is not stored. */
const CLAIM_MS = 3_600_000
/** How long to wait in line before the record is looked at again: the engine may have become unreachable. */
const LOOK_AGAIN_MS = 10_000

const BUSY: FillOutcome = { state: 'busy' }

export interface FillerSpec extends FillSpec {
  /** Its holder fills. */
  readonly write: LineLock
  /** Those who wait for the filler; undefined where the engine has no read locks: they wait to hold alone. */
  readonly read: LineLock | undefined
}

export class Filler {
  readonly #spec: FillerSpec
  readonly #fill: HeldFill

  constructor(spec: FillerSpec) {
    this.#spec = spec
    this.#fill = new HeldFill(spec)
  }

  /** `look` is what the caller has found: nothing, or a value that is to be refreshed. Rejects if the store is down. */
  async run(look: CacheLook, wait: boolean): Promise<FillOutcome> {
    const { read, write } = this.#spec
    const refreshed = look.verdict.is === 'value' ? look.found.version : undefined
    const first = await this.#tryToHold(look, refreshed)
    if (first.state !== 'busy' || !wait) return first
    let seen = look
    if (read !== undefined) {
      const lease = await acquire(read)
      if (lease === undefined) return AGAIN
      const moment = this.#spec.moment()
      seen = await this.#look().finally(() => void lease.release())
      if (isSettled(seen, refreshed)) return outcomeOf(seen, moment)
    }
    const lease = await acquire(write)
    return lease === undefined ? AGAIN : this.#holding(lease, seen, refreshed)
  }

  /** Hold the line if it is free: together with the claim, where the store can do that. */
  async #tryToHold(look: CacheLook, refreshed: bigint | undefined): Promise<FillOutcome> {
    const { backend, write, recordKey, keeper } = this.#spec
    const { records } = backend
    if (refreshed !== undefined || !records.putsEntering) {
      const lease = await write.acquireEntering({ waitMs: 0 }, () => {})
      return lease === undefined ? BUSY : this.#holding(lease, look, refreshed)
    }
    for (let seen = look; ; ) {
      const [moment, askedAt] = [this.#spec.moment(), keeper.clock.now()]
      const options = { version: seen.found.version, ttlMs: CLAIM_MS }
      const { lease, put } = await records.putEntering(write, undefined, claimOf, options, () => {})
      if (put.state === 'stored') return lease === undefined ? AGAIN : this.#filling(lease, put.version)
      seen = await backend.lookAt(recordKey, put.found, askedAt)
      if (isSettled(seen, undefined)) return outcomeOf(seen, moment)
      if (put.by === 'holding') return BUSY
    }
  }

  /** This process holds the line. Another one may have filled before. */
  async #holding(lease: EntryLease, look: CacheLook, refreshed: bigint | undefined): Promise<FillOutcome> {
    try {
      return refreshed === undefined ? await this.#claim(lease, look) : await this.#refresh(lease, refreshed)
    } finally {
      // Not awaited: a release never rejects.
      void lease.release()
    }
  }

  async #refresh(lease: EntryLease, refreshed: bigint): Promise<FillOutcome> {
    const moment = this.#spec.moment()
    const seen = await this.#look()
    return isSettled(seen, refreshed) ? outcomeOf(seen, moment) : this.#fill.run(lease, refreshed, seen)
  }

  async #claim(lease: EntryLease, look: CacheLook): Promise<FillOutcome> {
    const { backend, recordKey, keeper } = this.#spec
    for (let seen = look; ; ) {
      const [moment, askedAt] = [this.#spec.moment(), keeper.clock.now()]
      const options = { holding: lease, version: seen.found.version, ttlMs: CLAIM_MS }
      const put = await backend.records.put(recordKey, claimOf(lease.entryId), options)
      if (put.state === 'stored') return this.#fill.run(lease, put.version, undefined)
      if (put.by === 'holding') return AGAIN
      seen = await backend.lookAt(recordKey, put.found, askedAt)
      if (isSettled(seen, undefined)) return outcomeOf(seen, moment)
    }
  }

  async #filling(lease: EntryLease, version: bigint): Promise<FillOutcome> {
    try {
      return await this.#fill.run(lease, version, undefined)
    } finally {
      void lease.release()
    }
  }

  #look(): Promise<CacheLook> {
    return this.#spec.backend.look(this.#spec.recordKey)
  }
}

/** Whether there is nothing to fill any more. `refreshed`: the version of the value that was to be refreshed. */
function isSettled({ found, verdict }: CacheLook, refreshed: bigint | undefined): boolean {
  return refreshed === undefined ? verdict.is !== 'nothing' : found.version !== refreshed
}

function outcomeOf({ found, verdict }: CacheLook, moment: Moment): FillOutcome {
  if (verdict.is === 'nothing') return AGAIN
  if (verdict.is === 'failure') return { state: 'failure', failure: verdict.failure }
  return { state: 'value', bytes: verdict.record.bytes, version: found.version, freshMs: verdict.freshMs, ...moment }
}

function claimOf(entryId: string): FillingRecord {
  return { is: 'filling', by: entryId }
}

/** Undefined: it has waited for long enough to look again. */
async function acquire(lock: LineLock): Promise<EntryLease | undefined> {
  try {
    return await lock.acquireEntering({ waitMs: LOOK_AGAIN_MS }, () => {})
  } catch (error) {
    if (error instanceof AcquireTimeoutError) return undefined
    throw error
  }
}
