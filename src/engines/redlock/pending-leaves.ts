/**
 * What has to be given back on one server as soon as the server can be asked again: at most one leave for each id.
 *
 * A key that was taken before the connection broke expires on the server after its ttl. But a client that the user
 * brought may send its unanswered commands again whenever it is connected again, however late that is. So a leave stays
 * pending after the ttl, too.
 */
import type { Clock } from '../../core/clock.ts'
import type { LeaveRequest } from './quorum-server.ts'

/** How many leaves are remembered for a server that is away. Beyond that, what is left behind expires by itself. */
const MOST_PENDING = 10_000

/** A leave, and how long what it gives back would live. */
export interface TimedLeave extends LeaveRequest {
  readonly ttlMs: number
}

interface PendingLeave {
  readonly leave: TimedLeave
  readonly until: number
}

export class PendingLeaves {
  readonly #clock: Clock
  readonly #pending = new Map<string, PendingLeave>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get size(): number {
    return this.#pending.size
  }

  add(leave: TimedLeave): void {
    const known = this.#pending.get(leave.id)
    if (known === undefined ? !this.#hasRoom() : covers(known.leave, leave)) return
    this.#pending.set(leave.id, { leave, until: this.#clock.now() + leave.ttlMs })
  }

  /** At most so many of them. They are pending no longer, unless they are added again. */
  take(most: number): readonly TimedLeave[] {
    const now = this.#clock.now()
    const taken: TimedLeave[] = []
    for (const [id, { leave, until }] of this.#pending) {
      if (taken.length === most) break
      this.#pending.delete(id)
      const { key, upToAttempt } = leave
      // After the ttl, an entry that was to stay in line has expired there: it must not be put back into the line.
      if (until > now) taken.push({ ...leave, ttlMs: until - now })
      else taken.push({ key, id, ttlMs: 0, ...(upToAttempt === undefined ? {} : { upToAttempt }) })
    }
    return taken
  }

  /** The oldest gives way if what it gives back must have expired. */
  #hasRoom(): boolean {
    if (this.#pending.size < MOST_PENDING) return true
    const [[id, { until }] = ['', { until: Number.POSITIVE_INFINITY }]] = this.#pending
    return until <= this.#clock.now() && this.#pending.delete(id)
  }
}

/** A leave for good does more than one that undoes an attempt, and undoing a later attempt more than an earlier one. */
function covers(known: LeaveRequest, other: LeaveRequest): boolean {
  return known.upToAttempt === undefined || (other.upToAttempt !== undefined && known.upToAttempt > other.upToAttempt)
}
