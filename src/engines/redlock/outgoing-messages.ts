/**
 * What is to be sent to each server, collected: all that follows from one reply is one message to each server.
 *
 * It also sees to it that nothing stays on a server that could not be reached, or did not answer. What was to be given
 * back there is a pending leave, and is sent when the server can be asked again, or answers again.
 */
import type { Clock } from '../../core/clock.ts'
import type { LeaveRequest, QuorumServer, RaiseRequest, RepairRequest, ReplyCallback } from './quorum-server.ts'

/** How many pending leaves go in one message. */
const PENDING_IN_A_MESSAGE = 100

/** A leave, and how long what it gives back would live. */
interface TimedLeave extends LeaveRequest {
  readonly ttlMs: number
}

type OnRaised = (number: number | undefined) => void
type OnLeft = (wasThere: boolean | undefined) => void

/** What is collected for one server. Each list of callbacks belongs to the list of requests before it. */
interface CollectedRequests {
  readonly raises: RaiseRequest[]
  readonly onRaised: OnRaised[]
  readonly repairs: RepairRequest[]
  readonly onDoubtful: (() => void)[]
  readonly leaves: TimedLeave[]
  readonly onLeft: (OnLeft | undefined)[]
}

/** A leave for good, and which servers may have something of the entry; undefined: that is not known. */
export interface FinalLeave extends TimedLeave {
  readonly askedServers: readonly boolean[] | undefined
}

/** In all methods, `server` is the index of a server. */
export class OutgoingMessages {
  readonly #servers: readonly QuorumServer[]
  readonly #collected: (CollectedRequests | undefined)[]
  readonly #pending: readonly PendingLeaves[]
  /** By server: a message with pending leaves is unanswered. */
  readonly #sendingPending: boolean[]
  /** There is something to send. */
  #anyCollected = false
  #unansweredLeaves = 0
  readonly #onAllAnswered: (() => void)[] = []

  constructor(servers: readonly QuorumServer[], clock: Clock) {
    this.#servers = servers
    this.#collected = servers.map(() => undefined)
    this.#pending = servers.map(() => new PendingLeaves(clock))
    this.#sendingPending = servers.map(() => false)
  }

  raise(server: number, request: RaiseRequest, onRaised: OnRaised): void {
    const collected = this.#collectedFor(server)
    collected.raises.push(request)
    collected.onRaised.push(onRaised)
  }

  /** `onDoubtful` is called if it is unknown when the server did it: perhaps after what was sent later. */
  repair(server: number, request: RepairRequest, onDoubtful: () => void): void {
    const collected = this.#collectedFor(server)
    collected.repairs.push(request)
    collected.onDoubtful.push(onDoubtful)
  }

  leave(server: number, request: LeaveRequest, ttlMs: number, onLeft?: OnLeft): void {
    const collected = this.#collectedFor(server)
    collected.leaves.push({ ...request, ttlMs })
    collected.onLeft.push(onLeft)
  }

  /** Send leaves for good at once: they have to arrive after all that was asked for these entries. */
  leaveForGood(server: number, leaves: readonly FinalLeave[], onReply: ReplyCallback<readonly boolean[]>): void {
    if (this.#servers[server]?.ready === true) {
      this.#sendLeaves(server, leaves, onReply)
      return
    }
    // A server that was not asked for an entry has nothing of it.
    this.#addPending(
      server,
      leaves.filter(({ askedServers }) => askedServers === undefined || askedServers[server] === true),
    )
    onReply(undefined)
  }

  /** Send all that was collected. */
  flush(): void {
    if (!this.#anyCollected) return
    this.#anyCollected = false
    for (const [server, collected] of this.#collected.entries()) {
      if (collected === undefined) continue
      this.#collected[server] = undefined
      this.#send(server, collected)
    }
  }

  /** The server can be asked again, or has answered: send the pending leaves, one message after the other. */
  sendPending(server: number): void {
    const pending = this.#pending[server]
    if (pending === undefined || pending.size === 0 || this.#sendingPending[server] === true) return
    if (this.#servers[server]?.ready !== true) return
    const leaves = pending.take(PENDING_IN_A_MESSAGE)
    if (leaves.length === 0) return
    this.#sendingPending[server] = true
    this.#sendLeaves(server, leaves, () => {
      this.#sendingPending[server] = false
    })
  }

  /** Calls back when every leave that was sent has been answered, or has failed with its connection. */
  whenAnswered(call: () => void): void {
    if (this.#unansweredLeaves === 0) call()
    else this.#onAllAnswered.push(call)
  }

  #collectedFor(server: number): CollectedRequests {
    const collected: CollectedRequests = this.#collected[server] ?? {
      raises: [],
      onRaised: [],
      repairs: [],
      onDoubtful: [],
      leaves: [],
      onLeft: [],
    }
    this.#collected[server] = collected
    this.#anyCollected = true
    return collected
  }

  #send(index: number, { raises, onRaised, repairs, onDoubtful, leaves, onLeft }: CollectedRequests): void {
    const server = this.#servers[index] as QuorumServer
    const { ready } = server
    if (raises.length > 0) {
      const onReply: ReplyCallback<readonly number[]> = (numbers) => {
        for (const [at, call] of onRaised.entries()) call(numbers?.[at])
      }
      if (ready) server.raise(raises, onReply)
      else onReply(undefined)
    }
    if (repairs.length > 0 && ready) {
      server.repair(repairs, (reply) => {
        if (reply !== undefined && server.ordered) return
        for (const call of onDoubtful) call()
      })
    }
    if (leaves.length > 0) {
      const onReply: ReplyCallback<readonly boolean[]> = (were) => {
        for (const [at, call] of onLeft.entries()) call?.(were?.[at])
      }
      if (ready) this.#sendLeaves(index, leaves, onReply)
      else {
        this.#addPending(index, leaves)
        onReply(undefined)
      }
    }
  }

  /** Leaves that are not answered become pending; after an answer, more that are pending can be sent. */
  #sendLeaves(server: number, leaves: readonly TimedLeave[], onReply: ReplyCallback<readonly boolean[]>): void {
    this.#unansweredLeaves += 1
    this.#servers[server]?.leave(leaves, (were, error) => {
      this.#unansweredLeaves -= 1
      if (were === undefined) this.#addPending(server, leaves)
      onReply(were, error)
      if (were !== undefined) this.sendPending(server)
      if (this.#unansweredLeaves === 0) for (const call of this.#onAllAnswered.splice(0)) call()
    })
  }

  #addPending(server: number, leaves: readonly TimedLeave[]): void {
    for (const leave of leaves) this.#pending[server]?.add(leave)
  }
}

// ---- pending leaves ----

/** How many leaves are remembered for a server that is away. Beyond that, what is left behind expires by itself. */
const MOST_PENDING = 10_000

interface PendingLeave {
  readonly leave: TimedLeave
  readonly until: number
}

/**
 * What has to be given back on one server as soon as the server can be asked again: at most one leave for each id.
 *
 * A key that was taken before the connection broke expires on the server after its ttl. But a client that the user
 * brought may send its unanswered commands again whenever it is connected again, however late that is. So a leave stays
 * pending after the ttl, too.
 */
class PendingLeaves {
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
