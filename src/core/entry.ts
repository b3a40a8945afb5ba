/**
 * One entry in one line, as its owner sees it.
 *
 *                 answered 'waiting'            news, or a renewal answered 'held'
 *     entering ─────────────────────► waiting ─────────────────────────────────────► held
 *        │  └──────────────────── answered 'held' ───────────────────────────────────► │
 *        │                               │                                             │
 *        └── busy, failed, cancelled ────┴── expired, evicted, cancelled ──────────────┴──► gone   (released or lost)
 *
 * It never moves back. How long it may be believed is counted from the *send* of the last request that was answered: the engine set the expiry
 * after that moment, so our deadline always comes before the engine's. Nothing is ever counted from the arrival of anything.
 */
import type { Sent } from './batch.ts'
import type { Timer } from './clock.ts'
import type { Operation } from './diagnostics.ts'
import type { Claim, Standing } from './engine.ts'
import type { EngineError, LossReason } from './errors.ts'
import type { Scheduled } from './heartbeat.ts'

/** How an asking ended. `again`: it expired in line, and may be asked anew, at the back. */
export type Outcome =
  | { readonly state: 'held' }
  | { readonly state: 'busy'; readonly ahead: number | null }
  | { readonly state: 'again' }
  | { readonly state: 'refused'; readonly error: Error }

/** `Entry.asking` of what is asked for and not sent yet. */
export const QUEUED: number = Number.POSITIVE_INFINITY

/** Clocks of two machines may differ in rate, and a timer fires late: the holder stops this much before the engine does. */
export function marginMs(ttlMs: number): number {
  return ttlMs / 100 + 2
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

  phase: 'entering' | 'waiting' | 'held' | 'gone' = 'entering'
  token: bigint | null = null
  /** How many were ahead when last heard of. */
  ahead: number | null = null
  /** It had to stand in line. */
  queued = false
  /** Why a held entry is gone, unless it was released. */
  lost: LossReason | undefined
  onLost: ((why: LossReason) => void) | undefined

  /** The order of the request that is unanswered; 0: none is; QUEUED: it is not sent yet. */
  asking = 0
  /** The first unanswered attempt in a row, and the error of the last one. */
  failingSince: number | undefined
  lastError: EngineError | undefined
  /** The last time anything was sent for it, answered or not. */
  lastSentAt: number = Number.NEGATIVE_INFINITY
  /** Until when an enter whose outcome nobody knows may still arrive. */
  doubtfulUntil: number = Number.NEGATIVE_INFINITY
  /** Since which order we know that it is held. */
  heldSince: number = Number.POSITIVE_INFINITY
  /** A grant that was announced before the enter was answered. */
  announced: Extract<Standing, { state: 'held' }> | undefined
  /** A grant with little time left is being renewed before it is believed. */
  confirming = false
  inJeopardy = false

  /** When its hold became known. */
  grantedAt = 0
  /** Keeps the process alive while it stands in line: somebody awaits it. */
  alive: Timer | undefined

  /** Owned by the heartbeat. */
  at = 0
  slot = -1
  slackMs = 0

  readonly outcome: Promise<Outcome>
  settle!: (outcome: Outcome) => void

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

  /** The request sent at `sent` was answered, and the entry lives for `validMs` from some moment after it. */
  confirm(sent: Sent, validMs: number): void {
    this.failingSince = undefined
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

  /** An outage shorter than the ttl is our business. A longer one is the caller's: then whoever waits is told. */
  get unreachableAt(): number {
    return this.failingSince === undefined ? Number.POSITIVE_INFINITY : this.failingSince + this.ttlMs
  }

  /** When it next needs attention, if nothing is heard until then. Infinity: an answer, or its absence, will tell. */
  plan(retryAt: () => number): number {
    this.slackMs = 0
    if (this.asking !== 0) {
      if (this.phase !== 'held') return this.unreachableAt
      return this.inJeopardy ? this.deadline : this.jeopardyAt
    }
    if (this.failingSince !== undefined) {
      return this.phase === 'held' ? Math.min(retryAt(), this.deadline) : retryAt()
    }
    this.slackMs = this.ttlMs / 6
    return this.#confirmedAt + this.#validMs / 3
  }
}
