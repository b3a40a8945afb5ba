/**
 * One entry in one line, as its owner sees it.
 *
 *                 answered 'waiting'            news, or a renewal answered 'held'
 *     entering ─────────────────────► waiting ─────────────────────────────────────► held
 *        │  └──────────────────── answered 'held' ───────────────────────────────────► │
 *        │                               │                                             │
 *        └── busy, failed, cancelled ────┴── expired, evicted, cancelled ──────────────┴──► gone   (released or lost)
 *
 * A holder that is evicted, past its `maxHold`, or told to stop by a drain or a close, is `overdue` before it is gone:
 * it is lost, and stands in the line until its work has stopped or its ttl is over.
 *
 * It never moves back. It knows what an answer means (`hear`, `hearGranted`, `hearFailure`) and says what follows from
 * it, as a verdict; the tracker carries it out. How long it may be believed is counted from the *send* of the last
 * request that was answered: the engine set the expiry after that moment, so our deadline always comes before the
 * engine's. Nothing is ever counted from the arrival of anything.
 */
import type { Sent } from './batch.ts'
import type { Operation } from './diagnostics.ts'
import type { Claim, Standing } from './engine.ts'
import { type CallOutcome, EngineError, LeaseLostError, type LossReason } from './errors.ts'
import { withOutcome } from './failed-call.ts'
import type { Change, Put } from './store.ts'
import type { Scheduled } from './timer-queue.ts'
import { ASK, type Outcome, SCHEDULE, type Verdict } from './verdict.ts'

/** An answer about one entry that is not a failure. */
export type Answer = Exclude<Standing, { state: 'failed' }>
type Granted = Extract<Standing, { state: 'held' }>
type Waiting = Extract<Standing, { state: 'waiting' }>
type Gone = Extract<Standing, { state: 'gone' }>

/** `Entry.pendingRequest` of what is asked for and not sent yet. */
export const QUEUED: number = Number.POSITIVE_INFINITY

/**
 * Clocks of two machines may differ in rate, and a timer fires late: the holder stops this much before the engine does.
 */
export function marginMs(ttlMs: number): number {
  return ttlMs / 100 + 2
}

/** How much of the time that a holder has left it lets pass, at most, before it tries again; and at least. */
const RETRY_SHARE = 1 / 4
const SHORTEST_RETRY_MS = 5

/** A change of the store that is asked for together with an entrance. */
export interface ChangeBeside {
  readonly change: Change
  /** Called with the answer, right before the entry hears whether it holds. */
  readonly answered: (put: Put) => void
}

export class Entry implements Claim, Scheduled {
  readonly key: string
  readonly id: string
  readonly holder: string
  readonly weight: number
  readonly limit: number
  readonly ttlMs: number
  readonly wait: boolean
  /** What its events belong to. */
  readonly operation: Operation

  phase: 'entering' | 'waiting' | 'held' | 'overdue' | 'gone' = 'entering'
  token: bigint | null = null
  /** How many were ahead when last heard of. */
  ahead: number | null = null
  /** It had to stand in line. */
  queued = false
  /** Why a held entry is gone, unless it was released. */
  lost: LossReason | undefined
  onLost: ((why: LossReason) => void) | undefined
  /** Called with its id when the engine is asked to let it in, each time. */
  onEntering: ((id: string) => void) | undefined
  /** A change of its record, made in the step in which it enters, both or neither; and who is told the result. */
  beside: ChangeBeside | undefined

  /** The sequence of the enter or renewal that is unanswered; 0: none is; QUEUED: it is not sent yet. */
  pendingRequest = 0
  /** Something happened while a request was on its way, which may have been too early to see it: ask once more. */
  askAgain = false
  /** The sequence of the enter that is unanswered; 0: none is. A leave may not overtake it. */
  pendingEnter = 0
  /** Whether the engine has said that it is in the line. */
  inLine = false
  /** Since when all that was sent for it has failed, and the error of the last request. */
  failingSince: number | undefined
  lastError: EngineError | undefined
  /** The last time anything was sent for it, answered or not. */
  lastSentAt: number = Number.NEGATIVE_INFINITY
  /** Until when an enter of unknown outcome may still arrive. */
  doubtfulUntil: number = Number.NEGATIVE_INFINITY
  /** Since which sequence we know that it is held. */
  heldSince: number = Number.POSITIVE_INFINITY
  /** A grant that was announced before the enter was answered. */
  #announced: Granted | undefined
  /** The sequence of the newest request that was answered. */
  #answeredSequence = 0
  /** A grant with little time left is being renewed before it is believed. */
  confirming = false
  /**
   * It may have expired in line and entered again under the same id, by a late duplicate of its enter. From then on
   * news of a grant is only a reason to ask: it may be about the first life.
   */
  #interrupted = false
  inJeopardy = false
  /** Its caller waits in an outage that was told (outage.ts). */
  outageTold = false

  /** When its hold became known. */
  grantedAt = 0
  /** Until when it may be held at most (`maxHold`). */
  endsAt: number = Number.POSITIVE_INFINITY
  /** It keeps the process alive: a caller waits for it. */
  keepsAlive = false

  /**
   * It is to stand in the line without this process until then, and the sweeper does not take it out before. Infinity:
   * the time is not known yet.
   */
  outlivesUntil: number = Number.NEGATIVE_INFINITY
  /** What `EntryTracker.leave` has answered, once it was called for this entry: a second call answers the same. */
  left: Promise<boolean> | undefined
  /** Owned by the sweeper: the newest leave of it. */
  newestLeave: object | undefined
  /** Owned by the sweeper: the engine has answered a leave of it. There may be more of them. */
  leaveAnswered = false

  /** For the heartbeat: `at` and `slot` are set by its heap, `slackMs` by `schedule`. */
  at = 0
  slot = -1
  slackMs = 0

  readonly outcome: Promise<Outcome>
  settle!: (outcome: Outcome) => void
  #onEnterEnded: (() => void) | undefined
  #onRequestEnded: (() => void) | undefined

  /** The send of the last answered request, and how long the engine gave from then. */
  #confirmedAt = Number.NEGATIVE_INFINITY
  #validMs = 0

  constructor(ask: Omit<Claim, 'id' | 'wait'>, id: string, wait: boolean, operation: Operation) {
    this.operation = operation
    this.key = ask.key
    this.id = id
    this.holder = ask.holder
    this.weight = ask.weight
    this.limit = ask.limit
    this.ttlMs = ask.ttlMs
    this.wait = wait
    this.outcome = new Promise((settle) => {
      this.settle = settle
    })
  }

  /** Nothing is asked for it any more. */
  get over(): boolean {
    return this.phase === 'gone' || this.phase === 'overdue'
  }

  /** Resolves when the enter that is on its way was answered, or has failed. Several may wait for it. */
  enterEnded(): Promise<void> {
    const before = this.#onEnterEnded
    return new Promise((resolve) => {
      this.#onEnterEnded = () => {
        before?.()
        resolve()
      }
    })
  }

  /** Resolves when nothing that was sent for it is unanswered. What is only queued will not be sent any more. */
  async requestEnded(): Promise<void> {
    if (this.pendingRequest === 0 || this.pendingRequest === QUEUED) return
    await new Promise<void>((resolve) => {
      this.#onRequestEnded = resolve
    })
  }

  /** The request sent at `sent` was answered, or has failed. True: it was an enter, and a leave waits for its end. */
  endRequest(sent: Sent): boolean {
    if (this.pendingRequest === sent.sequence) {
      this.pendingRequest = 0
      this.#onRequestEnded?.()
    }
    if (this.pendingEnter !== sent.sequence) return false
    this.pendingEnter = 0
    this.#onEnterEnded?.()
    return this.#onEnterEnded !== undefined
  }

  /** What an answer to the request sent at `sent` means. */
  hear(standing: Answer, sent: Sent, now: number): Verdict {
    // A later answer came before this one, which may be about an earlier life of this id: it may have expired and
    // entered again since. So this one is only a reason to ask.
    if (sent.sequence < this.#answeredSequence && this.phase !== 'held') return ASK
    this.#answeredSequence = Math.max(this.#answeredSequence, sent.sequence)
    this.inLine = standing.state === 'held' || standing.state === 'waiting'
    switch (standing.state) {
      case 'held':
        return this.#hearHeld(standing, sent, now)
      case 'waiting':
        return this.#hearWaiting(standing, sent, now)
      case 'busy':
        return { step: 'finish', outcome: { state: 'busy', ahead: standing.ahead } }
      case 'gone':
        return this.#hearGone(standing)
    }
  }

  /** What news of a grant means: the same as an answer, but without a send to count from. */
  hearGranted(granted: Granted, now: number): Verdict {
    if (this.phase === 'held') return SCHEDULE
    // Told twice: the renewal that is to confirm it decides.
    if (this.confirming) return ASK
    // After an enter of unknown outcome this id may be in line for the second time, and the news may speak of the
    // first.
    if (this.isDoubtful) return ASK
    if (this.#interrupted) return ASK
    if (this.phase === 'waiting') return this.#believe(granted.token, now)
    // Faster than the answer to our enter, which will tell from when to count.
    this.#announced = granted
    return ASK
  }

  /** Whether the engine has ever said where it stands. */
  get answered(): boolean {
    return this.#answeredSequence > 0
  }

  /** Whether it is held, or was. */
  get wasHeld(): boolean {
    return this.heldSince < Number.POSITIVE_INFINITY
  }

  /** Whether a leave has anything to do: it is in the line, or may be. */
  get mayBeInLine(): boolean {
    return this.inLine || this.isDoubtful
  }

  /** An enter of it had an unknown outcome, and may arrive at any time. */
  get isDoubtful(): boolean {
    return this.doubtfulUntil > Number.NEGATIVE_INFINITY
  }

  /**
   * What a refusal of it says: what failed last may surely not have been applied, and an enter before it may have been,
   * or one that is on its way.
   */
  outcomeAfter({ outcome }: EngineError): CallOutcome {
    return this.mayBeInLine || this.pendingEnter !== 0 ? 'unknown' : outcome
  }

  /** What it means that the request sent at `sent` has failed. */
  hearFailure(error: EngineError, sent: Sent, now: number): Verdict {
    // News of a gap came meanwhile: the way is open again, and what failed was sent before.
    const again = this.askAgain
    this.askAgain = false
    this.lastError = error
    // From the send. But after a stall of this process, in which nothing was tried, there may be no outage at all.
    this.failingSince ??= Math.max(sent.at, now - this.ttlMs / 2)
    if (this.phase === 'entering' && (!this.wait || !error.transient))
      return { step: 'refuse', error: withOutcome(error, this.outcomeAfter(error)) }
    return again && this.phase === 'held' ? ASK : SCHEDULE
  }

  /** News of some other kind: whatever was announced before it does not count any more. */
  hearHint(): Verdict {
    this.#announced = undefined
    return ASK
  }

  #hearHeld({ token, heldForMs }: Granted, sent: Sent, now: number): Verdict {
    if (this.phase !== 'held') {
      this.#confirm(sent, heldForMs)
      return this.#believe(token, now)
    }
    // Another token: what was granted has expired, and a late duplicate of our enter has entered with the same id.
    if (token !== this.token) return this.#knownSince(sent) ? { step: 'lose', why: 'expired' } : SCHEDULE
    if (now >= this.deadline) return { step: 'lose', why: 'deadline' }
    this.#confirm(sent, heldForMs)
    return SCHEDULE
  }

  #hearWaiting({ ahead, livesForMs }: Waiting, sent: Sent, now: number): Verdict {
    // Asked before we knew of the hold: an old answer, ignored. Asked after: the hold is lost, and we wait again.
    if (this.phase === 'held') return this.#knownSince(sent) ? { step: 'lose', why: 'expired' } : SCHEDULE
    if (this.confirming || (this.phase === 'waiting' && now >= this.#confirmedAt + this.#validMs))
      this.#interrupted = true
    this.phase = 'waiting'
    this.queued = true
    this.confirming = false
    this.ahead = ahead ?? this.ahead
    this.#confirm(sent, livesForMs ?? this.ttlMs)
    const announced = this.#announced
    this.#announced = undefined
    // It was announced while the enter that is answered now was on its way, so it is newer than this answer; unless an
    // earlier enter had brought it in, whose outcome is unknown.
    if (announced === undefined || this.isDoubtful) return SCHEDULE
    return this.#believe(announced.token, now)
  }

  #hearGone({ why }: Gone): Verdict {
    const evicted = why === 'evicted'
    // What was evicted stands in the line until it leaves: a holder when its work has stopped; one that was granted and
    // has not heard of it now, since it is refused.
    this.inLine = evicted
    if (this.phase === 'held') return { step: 'lose', why: evicted ? 'evicted' : 'expired' }
    if (!evicted) return { step: 'finish', outcome: { state: 'again' } }
    return { step: 'refuse', error: new LeaseLostError(this.key, null, 'evicted') }
  }

  /** The engine says that it is held. Believe it once enough of the ttl is left to work with. */
  #believe(token: bigint | null, now: number): Verdict {
    const leftMs = this.deadline - now
    if (leftMs < this.ttlMs / 2 && !this.confirming) {
      this.confirming = true
      this.phase = 'waiting'
      return ASK
    }
    if (leftMs > 0) return { step: 'hold', token }
    const message = `its answers take longer than the ttl of ${this.ttlMs} ms`
    return { step: 'refuse', error: new EngineError(this.operation.engine, message, { outcome: 'unknown' }) }
  }

  /** Whether the hold was known when this was sent. */
  #knownSince(sent: Sent): boolean {
    return sent.sequence > this.heldSince
  }

  /** The request sent at `sent` was answered, and the entry lives for `validMs` from some moment after it. */
  #confirm(sent: Sent, validMs: number): void {
    this.failingSince = undefined
    this.outageTold = false
    if (sent.at < this.#confirmedAt) return
    this.#confirmedAt = sent.at
    this.#validMs = Math.min(validMs, this.ttlMs)
    this.inJeopardy = false
  }

  /** When a holder stops believing. */
  get deadline(): number {
    return this.#confirmedAt + this.#validMs - marginMs(this.ttlMs)
  }

  /** When a holder begins to worry: two thirds of its time have gone without a renewal. */
  get jeopardyAt(): number {
    return this.#confirmedAt + (this.#validMs * 2) / 3
  }

  /** An outage shorter than the ttl is our business. A longer one is the caller's: its wait is refused then. */
  get unreachableAt(): number {
    return this.failingSince === undefined ? Number.POSITIVE_INFINITY : this.failingSince + this.ttlMs
  }

  /**
   * When the heartbeat is to look at it, if nothing is heard until then. Infinity: never; the end of the request that
   * is on its way says what comes next.
   */
  schedule(now: number, retryDelayMs: (ttlMs: number) => number): number {
    const at = this.#nextAt(now, retryDelayMs)
    if (this.endsAt > at) return at
    this.slackMs = 0
    return this.endsAt
  }

  #nextAt(now: number, retryDelayMs: (ttlMs: number) => number): number {
    this.slackMs = 0
    if (this.pendingRequest !== 0) {
      if (this.phase !== 'held') return this.unreachableAt
      return this.inJeopardy ? this.deadline : this.jeopardyAt
    }
    if (this.failingSince !== undefined) {
      const delayMs = retryDelayMs(this.ttlMs)
      if (this.phase !== 'held') return now + delayMs
      // The less time is left, the shorter the pause: a try is made soon after an outage, however late it ends.
      const soonMs = Math.max((this.deadline - now) * RETRY_SHARE, SHORTEST_RETRY_MS)
      return Math.min(now + Math.min(delayMs, soonMs), this.deadline)
    }
    this.slackMs = this.ttlMs / 6
    return this.#confirmedAt + this.#validMs / 3
  }
}
