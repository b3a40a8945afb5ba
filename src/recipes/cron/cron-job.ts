/**
 * One job on one host: look, stand in line, claim, work, tell how it ended.
 *
 *   look ──> nothing to do                                 one command, which is all that most hosts do for a tick
 *     └────> stand in the line of the job
 *              ├──> there is nothing left to stand for     another host has claimed the tick
 *              └──> hold ──> claim ──> work ──> ending     the claim and the ending are refused to a host that has
 *                                                          lost the line, in the step that writes them
 *
 * A host that finds the line busy does not go away at once: the one before it may die before it has claimed the tick.
 */
import { EngineError, LeaseLostError } from '../../core/errors.ts'
import type { Keeper } from '../../core/keeper.ts'
import type { CoreLease, Lease } from '../../core/lease.ts'
import type { LineAcquireOptions, Lock } from '../../core/lock.ts'
import { joinSignals, onAbort } from '../../core/on-abort.ts'
import type { Locks } from '../../locks.ts'
import type { Found, PutOptions, PutOutcome, RecordStore } from '../../store/record-store.ts'
import { ServerTime } from '../../store/server-time.ts'
import { type CronDecision, decide, isLeftBehind, type JobPolicy, runToReplace, type Situation } from './decision.ts'
import { isHeld } from './history.ts'
import { type JobRecord, keyOf, type RunOutcome, type StoredRun, withBeginning, withEnding } from './job-record.ts'
import type { Schedule } from './schedule.ts'

/** One run of a job, as its work sees it. */
export interface Run {
  readonly name: string
  /** The instant that it was scheduled for: the same one in every attempt, and on every host. */
  readonly tick: Date
  /** 1, or more if the host before this one died in the middle. */
  readonly attempt: number
  /** How many ticks were passed over right before this one; 100 is 100 or more. */
  readonly missed: number
  /** The fencing token of `lease`: give it to whatever the work writes to. Null where the engine has none. */
  readonly token: bigint | null
  /** For guards, which take a lease. */
  readonly lease: Lease
  /** Aborts when the lock is lost, when the next tick replaces this run, or when the process is closing. */
  readonly signal: AbortSignal
}

/** What a job does. */
export type RunWork<Result = unknown> = (run: Run) => Promise<Result> | Result

export interface JobSpec<Result> {
  readonly name: string
  readonly schedule: Schedule
  readonly policy: JobPolicy
  readonly lock: Lock<LineAcquireOptions>
  readonly work: RunWork<Result>
}

/** What became of a turn. An attempt above 1: it took over a tick of an earlier turn, perhaps on another host. */
export type CronTurn<Result> =
  | { readonly ran: true; readonly value: Result; readonly tick: number; readonly attempt: number }
  | { readonly ran: false }

/** Hears of a run while its turn goes on. */
export interface TurnListener {
  /** The work begins. */
  begun(tick: number): void
  /** The work threw. */
  threw?(outcome: RunOutcome): void
}

/** A record of a job that runs once a year is not forgotten in between. */
const KEPT_MS = 400 * 24 * 3_600_000
/** While a host stands in line, it looks again after this long, then after twice as long, and so on. */
const FIRST_LOOK_MS = 200
const LONGEST_LOOK_MS = 10_000
const RETRY_MS = 500
const NOT_RUN: CronTurn<never> = { ran: false }

/** A turn that holds the line. */
interface Held {
  readonly lease: Lease
  /** Aborts when the locks are closed: before the lease is lost, so that it can be stored how the run ended. */
  readonly closing: AbortSignal
  readonly listener: TurnListener
}

function tickOf(decision: CronDecision): number | undefined {
  return decision.step === 'run' ? decision.tick : undefined
}

/** Why a host has left the line: there is nothing to stand for. */
const NOTHING_LEFT = Symbol('nothing left to stand for')

export class CronJob<Result> {
  readonly spec: JobSpec<Result>
  readonly time: ServerTime
  readonly #locks: Locks
  readonly #keeper: Keeper
  readonly #records: RecordStore<JobRecord>
  /** Aborts when the work is to stop. */
  readonly #stopWork: AbortSignal
  /** The id of the run that this host evicted most recently, so that the next one can replace it. */
  #replaced: string | undefined
  /** The id of a run without an ending that did not hold the line when this host came. */
  #died: string | undefined
  /** The id of a run that this host has stood behind. An outage may have ended its wait, and that run. */
  #stoodBehind: string | undefined
  #lookNow: (() => void) | undefined

  constructor(locks: Locks, records: RecordStore<JobRecord>, spec: JobSpec<Result>, stopWork: AbortSignal) {
    this.#locks = locks
    this.#keeper = locks.keeper
    this.#records = records
    this.spec = spec
    this.#stopWork = stopWork
    this.time = new ServerTime(this.#keeper.clock)
  }

  get key(): string {
    return keyOf(this.spec.name)
  }

  /** What is stored, and from then on the server's time. */
  async look(): Promise<Found<JobRecord>> {
    const sentAt = this.#keeper.clock.now()
    const found = await this.#records.get(this.key)
    this.time.heard(found.serverTimeMs, sentAt)
    return found
  }

  /** Begin the record of a job that has none: ticks that no host sees from now on are known to be missed. */
  async introduce(): Promise<void> {
    const { schedule } = this.spec
    const mark = BigInt(Math.floor(this.time.now()))
    await this.#records.put(this.key, { schedule: schedule.text, runs: [] }, { absent: true, mark, ttlMs: KEPT_MS })
  }

  /**
   * Do what is to be done now. `waiting` ends the wait in line. Rejects with what the work threw, with
   * `LeaseLostError`, or with what the engine says.
   */
  async turn(before: Found<JobRecord>, waiting: AbortSignal, listener: TurnListener): Promise<CronTurn<Result>> {
    const found = await this.#lookForDeath(before)
    if ((await this.#decideAhead(found)).step === 'nothing' || waiting.aborted) return NOT_RUN
    const ahead = found.value?.runs[0]?.id
    if (ahead !== this.#died) this.#stoodBehind = ahead
    const nothingLeft = new AbortController()
    const wait = joinSignals([waiting, nothingLeft.signal])
    const stopLooking = this.#lookAgain(nothingLeft)
    const closing = new AbortController()
    let held = false
    let forget = (): void => {}
    const turned: Promise<CronTurn<Result>> = this.spec.lock.using({ signal: wait.signal }, (lease) => {
      held = true
      stopLooking()
      // When the locks are closed, the line is held until the run has ended and has given it back, if that is soon.
      forget = this.#keeper.endFirst((lease as CoreLease).entryId, (reason) => {
        closing.abort(reason)
        return turned
      })
      return this.#claimAndRun({ lease, closing: closing.signal, listener }, found)
    })
    try {
      return await turned
    } catch (error) {
      if (!held && wait.signal.aborted && error === wait.signal.reason) return NOT_RUN
      throw error
    } finally {
      forget()
      stopLooking()
      wait.stop()
    }
  }

  /** A host that stands in line looks at once: the next tick is there. False: it does not stand there, or looks now. */
  lookNow(): boolean {
    const look = this.#lookNow
    look?.()
    return look !== undefined
  }

  #decide(found: Found<JobRecord>): CronDecision {
    return decide(this.spec.schedule, this.spec.policy, this.#situation(found))
  }

  #situation({ value: record, mark }: Found<JobRecord>): Situation {
    const died = this.#died !== undefined && this.#died === record?.runs[0]?.id
    return { record, mark: Number(mark), now: this.time.now(), died }
  }

  /**
   * Whether the last run has died is asked before this host stands in line: later, it may stand there behind others
   * that have come with it. And only if it matters. What is stored is looked at again: the run may just have ended.
   */
  async #lookForDeath(found: Found<JobRecord>): Promise<Found<JobRecord>> {
    const [last] = found.value?.runs ?? []
    if (last === undefined || last.outcome !== undefined || last.id === this.#stoodBehind) return found
    const { schedule, policy, name } = this.spec
    const situation = this.#situation(found)
    const tickIf = (died: boolean): number | undefined => tickOf(decide(schedule, policy, { ...situation, died }))
    if (tickIf(true) === tickIf(false)) return found
    const goesOn = await isHeld(this.#locks, name, last).catch((error: unknown) => {
      // It may, if that cannot be asked.
      if (error instanceof EngineError) return true
      throw error
    })
    if (goesOn) return found
    const again = await this.look()
    const [still] = again.value?.runs ?? []
    if (still?.id === last.id && still.outcome === undefined) this.#died = last.id
    return again
  }

  /** Decide before the line is held. A run that is to be replaced is told to go. */
  async #decideAhead(found: Found<JobRecord>): Promise<CronDecision> {
    const { schedule, policy } = this.spec
    const decision = this.#decide(found)
    const replaced = runToReplace(schedule, policy, this.#situation(found), decision)
    if (replaced !== undefined && replaced.token !== null) {
      this.#replaced = replaced.id
      await this.#locks.evict(this.key, BigInt(replaced.token))
    }
    return decision
  }

  /** While this host stands in line: look now and then whether there is something left to stand for. */
  #lookAgain(nothingLeft: AbortController): () => void {
    const { clock } = this.#keeper
    let afterMs = FIRST_LOOK_MS
    let stopped = false
    const stop = (): void => {
      stopped = true
      this.#lookNow = undefined
      cancel()
    }
    const look = async (): Promise<void> => {
      try {
        const decision = await this.#decideAhead(await this.look())
        if (decision.step === 'nothing') {
          stop()
          nothingLeft.abort(NOTHING_LEFT)
        }
      } catch {
        // If it lasts, the claim meets it as well, and tells.
      }
      if (!stopped) arm()
    }
    const arm = (): void => {
      const timer = clock.timer(afterMs, () => void look())
      afterMs = Math.min(2 * afterMs, LONGEST_LOOK_MS)
      cancel = () => timer.cancel()
      this.#lookNow = () => {
        timer.cancel()
        this.#lookNow = undefined
        void look()
      }
    }
    let cancel = (): void => {}
    arm()
    return stop
  }

  /** This host holds the line. What it found before may be old: then the claim is refused, and says what is stored. */
  async #claimAndRun(held: Held, before: Found<JobRecord>): Promise<CronTurn<Result>> {
    const { lease } = held
    const id = this.#keeper.chance.id()
    for (let found = before; ; ) {
      const [last] = found.value?.runs ?? []
      // Our claim was made, and its answer was lost.
      if (last?.id === id) return await this.#work(held, last, found)
      const decision = this.#decide(found)
      if (decision.step === 'nothing') return NOT_RUN
      const { again, tick, attempt, missed } = decision
      const startedAt = Math.round(this.time.now())
      const beginning = { id, tick, attempt, missed, holder: this.#locks.holder, startedAt, lease }
      const { record, run } = withBeginning(found.value, this.spec.schedule.text, beginning, this.#unsaid(found))
      const mark = BigInt(tick)
      const { version } = found
      const put = await this.#put(record, lease, { version, mark, ...(again ? {} : { markBelow: mark }) })
      if (put.state === 'stored') return await this.#work(held, run, { ...found, value: record, version: put.version })
      // The lease is over, though this process may not have noticed yet. The tick is not claimed: it is tried again.
      if (put.by === 'holding') throw new LeaseLostError(this.key, lease.token, 'expired')
      found = put.found
    }
  }

  /** How the last run ended, if its process could not say so. */
  #unsaid(found: Found<JobRecord>): Pick<StoredRun, 'outcome' | 'error'> {
    if (this.#replaced !== undefined && this.#replaced === found.value?.runs[0]?.id) return { outcome: 'replaced' }
    const late = isLeftBehind(this.spec.policy, this.#situation(found))
    return { outcome: 'lost', ...(late ? { error: 'not taken over: its grace was over' } : {}) }
  }

  /**
   * Store the record while the line is held, and as often as it takes: it can be made once at most, because of the
   * version. Whether an earlier try was made is seen by the id of the run.
   */
  async #put(record: JobRecord, lease: Lease, options: PutOptions): Promise<PutOutcome<JobRecord>> {
    for (;;) {
      const sentAt = this.#keeper.clock.now()
      try {
        const conditions = { ...options, holding: lease, ttlMs: KEPT_MS }
        const put = await this.#records.put(this.key, record, conditions)
        this.time.heard(put.serverTimeMs, sentAt)
        return put
      } catch (error) {
        if (!(error instanceof EngineError && error.transient && lease.held)) throw error
        await this.#pause(RETRY_MS, lease.signal)
      }
    }
  }

  async #work(held: Held, stored: StoredRun, found: Found<JobRecord>): Promise<CronTurn<Result>> {
    const { lease, closing, listener } = held
    // This host may have stood still before it heard of its claim. Another one may have taken the run over meanwhile.
    lease.assertHeld()
    const { tick, attempt, missed } = stored
    listener.begun(tick)
    const stop = joinSignals([lease.signal, this.#stopWork, closing])
    const { token } = lease
    const run = { name: this.spec.name, tick: new Date(tick), attempt, missed, token, lease, signal: stop.signal }
    try {
      const value = await this.spec.work(run)
      await this.#end(lease, stored, found, 'done', undefined)
      return { ran: true, value, tick, attempt }
    } catch (error) {
      const outcome = this.#outcomeOf(held)
      listener.threw?.(outcome)
      await this.#end(lease, stored, found, outcome, error)
      throw error
    } finally {
      stop.stop()
    }
  }

  /** How work that threw has ended. */
  #outcomeOf({ lease, closing }: Held): RunOutcome {
    const reason: unknown = lease.signal.aborted ? lease.signal.reason : undefined
    if (this.#isReplacement(reason)) return 'replaced'
    return this.#stopWork.aborted || closing.aborted ? 'stopped' : 'failed'
  }

  /** Whether this error says that the next tick has taken the place of the run. */
  #isReplacement(error: unknown): boolean {
    return this.spec.policy.overlap === 'replace' && error instanceof LeaseLostError && error.why === 'evicted'
  }

  /**
   * Whether a turn that rejected with this error has gone as it was meant to: its run was replaced, or stopped when it
   * was told. `outcome`: that of work that threw.
   */
  isExpected(error: unknown, outcome: RunOutcome | undefined): boolean {
    return error instanceof LeaseLostError ? this.#isReplacement(error) : outcome === 'stopped'
  }

  /**
   * Store how it ended, for as long as the line is held. If that is refused, the next host finds a run without an
   * ending: it takes it for lost. Never rejects.
   */
  async #end(
    lease: Lease,
    { id }: StoredRun,
    begun: Found<JobRecord>,
    outcome: RunOutcome,
    error: unknown,
  ): Promise<void> {
    const endedAt = Math.round(this.time.now())
    for (let found = begun; ; ) {
      const record = withEnding(found.value, id, { endedAt, outcome, error })
      if (record === undefined) return
      const { version } = found
      const put = await this.#put(record, lease, { version, lastWords: true }).catch(() => undefined)
      if (put?.state !== 'refused' || put.by === 'holding') return
      found = put.found
    }
  }

  #pause(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        timer.cancel()
        forget()
        resolve()
      }
      const timer = this.#keeper.clock.timer(ms, done)
      const forget = onAbort(signal, done)
    })
  }
}
