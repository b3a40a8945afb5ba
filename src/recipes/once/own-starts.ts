/**
 * The `started` records of one caller: how they are made, how they are known again, and how they are taken back.
 *
 * The answer to a `started` can be lost. Then it may be stored, though nothing runs, and another caller would take it
 * for an execution that has died. Its own caller knows it by the id of the entry, which no other has. If that caller
 * gives up, what was there before is put back.
 */
import { EngineError } from '../../core/errors.ts'
import type { RecordStore } from '../../store/record-store.ts'
import type { OnceCall } from './call.ts'
import type { OnceRecord, StartedRecord } from './record.ts'

/** How long to pause before a `started` is tried to be taken back again. */
const FIRST_PAUSE_MS = 1_000
const LONGEST_PAUSE_MS = 60_000
/** For how long one that was not found is looked for: as long as systems go on sending what was not acknowledged. */
const LOOK_FOR_MS = 16 * 60_000

export class OwnStarts {
  readonly #call: OnceCall
  readonly #records: RecordStore<OnceRecord>
  readonly #keepMs: number
  /** The entries of this caller: no other has their ids. */
  readonly #entryIds: string[] = []
  /** What was stored before a `started` of this caller; undefined: nothing was. */
  #before: OnceRecord | undefined

  constructor(call: OnceCall, records: RecordStore<OnceRecord>, keepMs: number) {
    this.#call = call
    this.#records = records
    this.#keepMs = keepMs
  }

  /** Whether an entry of this caller has stored it. */
  has({ by }: OnceRecord): boolean {
    return this.#entryIds.includes(by)
  }

  /**
   * What the entry `by` puts in the place of `before`. If that is an earlier `started` of this caller, it has not run,
   * and its number is taken again.
   */
  next(before: OnceRecord | undefined, by: string): StartedRecord {
    const { lock, fingerprint } = this.#call
    const ran = before !== undefined && !this.has(before)
    if (ran || before === undefined) this.#before = before
    this.#entryIds.push(by)
    return {
      state: 'started',
      id: before?.id ?? lock.scope.keeper.chance.id(),
      number: ran ? before.number + 1 : (before?.number ?? 1),
      by,
      fingerprint: before?.fingerprint ?? fingerprint,
      steps: before?.steps,
    }
  }

  /**
   * Take one back that may be stored. If none is found, it may still be on its way: that is looked at once more when
   * its entry would have expired, and now and then for as long as it can arrive. While the engine cannot be reached,
   * all is tried again and again, until the record would have expired. Never rejects.
   */
  async takeBack(): Promise<void> {
    if (this.#entryIds.length === 0) return
    const { clock, closing } = this.#call.lock.scope.keeper
    const { ttlMs } = this.#call.lock.spec
    const giveUpAt = clock.now() + this.#keepMs
    let lookUntil: number | undefined
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
      try {
        if ((await this.#restore()) || clock.now() >= (lookUntil ?? Number.POSITIVE_INFINITY)) return
        if (lookUntil === undefined) pauseMs = Math.max(pauseMs, ttlMs)
        lookUntil ??= clock.now() + Math.min(LOOK_FOR_MS, this.#keepMs)
      } catch (error) {
        // The next caller finds a `started`, and does what it does about a crash. This call tells why by itself.
        if (!(error instanceof EngineError && error.transient) || closing.aborted) return
        if (clock.now() + pauseMs > giveUpAt) return
      }
      await new Promise<void>((resolve) => clock.timer(pauseMs, resolve))
    }
  }

  /**
   * What was stored before is stored again: the id of an earlier execution must not be forgotten. Answers whether there
   * was something to take back.
   */
  async #restore(): Promise<boolean> {
    const { key } = this.#call.lock
    const { value, version } = await this.#records.get(key)
    if (value?.state !== 'started' || !this.has(value)) return false
    if (this.#before === undefined) await this.#records.remove(key, { version })
    else await this.#records.put(key, this.#before, { version, ttlMs: this.#keepMs })
    return true
  }
}
