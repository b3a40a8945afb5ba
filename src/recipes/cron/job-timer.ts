/**
 * A job of this host in time: a timer for the next tick, by the server's time, and then a turn (cron-job.ts).
 *
 * There is at most one turn that looks or stands in line, and beside it there may be one that works: the next tick can
 * come meanwhile. A turn that fails because the server cannot be reached is tried again. What was missed until then is
 * up to the policy of the job (decision.ts).
 */
import type { Timer } from '../../core/clock.ts'
import { EngineError } from '../../core/errors.ts'
import type { Keeper } from '../../core/keeper.ts'
import { withoutContext } from '../../core/no-context.ts'
import type { CronJob } from './cron-job.ts'
import type { RunOutcome } from './job-record.ts'

/** Hosts look at a tick one after the other, so that most of them find it claimed already. */
const SPREAD_MS = 50
/** No timer is longer: after a sleep of the machine, timers are late by as much. */
const LONGEST_TIMER_MS = 60_000
const FIRST_RETRY_MS = 250
const LONGEST_RETRY_MS = 10_000

export class JobTimer {
  readonly job: CronJob<unknown>
  readonly #keeper: Keeper
  readonly #ending: AbortSignal
  readonly #tell: (error: unknown) => void
  /** All turns that have not ended. */
  readonly #turns = new Set<Promise<void>>()
  /** The turn that looks, or stands in line. */
  #waiting: object | undefined
  /** A tick has come while that turn had looked already: another turn is to look at it. */
  #missedByTurn = false
  #timer: Timer | undefined
  /** The tick that the timer is for. */
  #next = Number.POSITIVE_INFINITY
  #retry: Timer | undefined
  #retryMs = FIRST_RETRY_MS
  /** Whether the job is known to have a record, and the server's time is known. */
  #introduced = false

  /** `ending` aborts when nothing new is to begin. `tell` hears what went wrong. */
  constructor(job: CronJob<unknown>, keeper: Keeper, ending: AbortSignal, tell: (error: unknown) => void) {
    this.job = job
    this.#keeper = keeper
    this.#ending = ending
    this.#tell = tell
  }

  start(): void {
    withoutContext(() => this.#turn())
  }

  /** No timer is left. The turns go on until `ending` aborts. */
  stop(): void {
    this.#timer?.cancel()
    this.#retry?.cancel()
  }

  /** Resolves when no turn is left. */
  async ended(): Promise<void> {
    while (this.#turns.size > 0) await Promise.all(this.#turns)
  }

  /** Set the timer for the next tick. */
  #arm(): void {
    if (this.#ending.aborted) return
    const { clock, chance } = this.#keeper
    const { time, spec } = this.job
    const now = time.now()
    const tick = spec.schedule.next(now)
    this.#next = tick ?? Number.POSITIVE_INFINITY
    if (tick === null) return
    const afterMs = tick - now + chance.fraction() * SPREAD_MS
    this.#timer?.cancel()
    this.#timer = clock.timer(Math.min(afterMs, LONGEST_TIMER_MS), () =>
      // A timer can fire a fraction early; then the tick is not there yet.
      withoutContext(() => (time.now() < tick ? this.#arm() : this.#fire())),
    )
  }

  #fire(): void {
    this.#arm()
    if (this.#waiting === undefined) this.#turn()
    else if (!this.job.lookNow()) this.#missedByTurn = true
  }

  #turn(): void {
    if (this.#ending.aborted) return
    this.#retry?.cancel()
    const turn = {}
    this.#waiting = turn
    this.#missedByTurn = false
    const taken = this.#take(turn)
    this.#turns.add(taken)
    void taken.then(() => this.#turns.delete(taken))
  }

  /** Never rejects. */
  async #take(turn: object): Promise<void> {
    const { job } = this
    const isWaiting = (): boolean => this.#waiting === turn
    let again = false
    let outcome: RunOutcome | undefined
    try {
      const found = await job.look()
      if (!this.#introduced) await this.#introduce(found.exists)
      const taken = await job.turn(found, this.#ending, {
        begun: () => this.#waitNoMore(turn),
        threw: (how) => {
          outcome = how
        },
      })
      this.#retryMs = FIRST_RETRY_MS
      // Of many that were missed, the next one is due at once. So may be the one after a tick that was taken over.
      again = taken.ran && (job.spec.policy.missed === 'all' || taken.attempt > 1)
    } catch (error) {
      const refused = isWaiting()
      // What is refused to jobs that are ending is no news. What a run throws meanwhile is.
      if (refused ? !this.#ending.aborted : !job.isExpected(error, outcome)) this.#hear(error, refused)
      if (refused) this.#tryAgain()
      again = !refused
    }
    this.#waitNoMore(turn)
    if (again && this.#waiting === undefined) this.#turn()
  }

  async #introduce(exists: boolean): Promise<void> {
    if (!exists) await this.job.introduce()
    this.#introduced = true
    this.#arm()
  }

  /**
   * That turn has ended, or works. The timer is set anew, by what the turn was told of the server's time: it may have
   * fired too early, since clocks do not run alike, and then the tick is still to come. If the tick that it is set for
   * has come meanwhile, it is looked at now: the timer that is set anew is for the one after it.
   */
  #waitNoMore(turn: object): void {
    if (this.#waiting !== turn) return
    this.#waiting = undefined
    if (this.#introduced && this.job.time.now() >= this.#next) this.#missedByTurn = true
    if (this.#introduced) this.#arm()
    if (this.#missedByTurn) withoutContext(() => this.#turn())
  }

  /** An outage is told once, when it begins. */
  #hear(error: unknown, refused: boolean): void {
    if (!(refused && error instanceof EngineError && this.#retryMs > FIRST_RETRY_MS)) this.#tell(error)
  }

  #tryAgain(): void {
    if (this.#ending.aborted) return
    this.#retry = this.#keeper.clock.timer(this.#retryMs, () =>
      withoutContext(() => {
        if (this.#waiting === undefined) this.#turn()
      }),
    )
    this.#retryMs = Math.min(2 * this.#retryMs, LONGEST_RETRY_MS)
  }
}
