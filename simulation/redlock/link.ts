/**
 * The way from one client to one server: the server, as the client sees it.
 *
 * On one connection messages arrive in order. A connection that breaks fails what is unanswered; what was under way on
 * it is lost, or, in some worlds, arrives much later, after what was sent on the next connection. A link can be silent
 * for a while: then everything arrives when it is over.
 */
import type {
  LeaveRequest,
  QuorumServer,
  RaiseRequest,
  RepairRequest,
  ReplyCallback,
  TakeReply,
  TakeRequest,
} from '../../src/engines/redlock/quorum-server.ts'
import type { Random } from '../random.ts'
import type { RedlockConditions } from './conditions.ts'
import type { SimulatedServer } from './server.ts'
import type { VirtualTime } from './time.ts'

const RECONNECT_MS = 30
const LATE_MS = 900
const SLOW_MS = 100
/** Between two messages on one connection: happenings of one moment come in any order, messages do not. */
const GAP_MS = 0.001

export class Link implements QuorumServer {
  /** Called when it is connected again. */
  onReturn: () => void = () => undefined
  up = true
  /** This link says that it keeps the order. All do; the quorum has to do as well with those that do not say so. */
  readonly #ordered: boolean
  /** The reply that is being delivered is to a message that was sent a second time. */
  #resent = false
  readonly #time: VirtualTime
  readonly #chance: Random
  readonly #conditions: RedlockConditions
  readonly #server: SimulatedServer
  readonly #unanswered = new Map<number, () => void>()
  #connection = 0
  #sent = 0
  #requestsFrom = 0
  #repliesFrom = 0

  constructor(time: VirtualTime, chance: Random, conditions: RedlockConditions, server: SimulatedServer) {
    this.#time = time
    this.#chance = chance
    this.#conditions = conditions
    this.#server = server
    this.#ordered = chance.happens(0.5)
  }

  get ordered(): boolean {
    return this.#ordered && !this.#resent
  }

  get ready(): boolean {
    return this.up
  }

  take(requests: readonly TakeRequest[], onReply: ReplyCallback<readonly TakeReply[]>): void {
    this.#send(() => requests.map((request) => this.#server.take(request)), onReply)
  }

  raise(requests: readonly RaiseRequest[], onReply: ReplyCallback<readonly number[]>): void {
    this.#send(() => requests.map((request) => this.#server.raise(request)), onReply)
  }

  repair(requests: readonly RepairRequest[], onReply: ReplyCallback<unknown>): void {
    this.#send(() => requests.map((request) => this.#server.repair(request)), onReply)
  }

  leave(requests: readonly LeaveRequest[], onReply: ReplyCallback<readonly boolean[]>): void {
    this.#send(() => requests.map((request) => this.#server.leave(request)), onReply)
  }

  /** Nothing passes until then. */
  silence(untilMs: number): void {
    this.#requestsFrom = Math.max(this.#requestsFrom, untilMs)
    this.#repliesFrom = Math.max(this.#repliesFrom, untilMs)
  }

  /** The connection breaks. It is made anew after a while, unless the server is down. */
  break(downMs: number = RECONNECT_MS * (0.5 + this.#chance.fraction())): void {
    this.#connection += 1
    this.up = false
    this.#requestsFrom = this.#time.now
    this.#repliesFrom = this.#time.now
    const waiting = [...this.#unanswered.values()]
    this.#unanswered.clear()
    for (const fail of waiting) fail()
    const connection = this.#connection
    this.#time.after(downMs, () => {
      if (connection !== this.#connection) return
      this.up = true
      this.onReturn()
    })
  }

  #send<Reply>(apply: () => Reply, onReply: ReplyCallback<Reply>): void {
    const [number, connection] = [this.#sent, this.#connection]
    this.#sent += 1
    const resent = this.#chance.happens(this.#conditions.resent)
    this.#unanswered.set(number, () => onReply(undefined))
    this.#requestsFrom = Math.max(this.#requestsFrom + GAP_MS, this.#time.now + this.#delayMs())
    const deliver = (): void => {
      if (connection !== this.#connection) {
        if (this.#conditions.late && this.#chance.happens(0.5))
          this.#time.after(LATE_MS * this.#chance.fraction(), apply)
        return
      }
      const reply = apply()
      this.#repliesFrom = Math.max(this.#repliesFrom + GAP_MS, this.#time.now + this.#delayMs())
      const slowMs = this.#chance.happens(this.#conditions.slow) ? SLOW_MS * (0.5 + this.#chance.fraction()) : 0
      this.#time.after(this.#repliesFrom + slowMs - this.#time.now, () => {
        if (connection !== this.#connection || !this.#unanswered.delete(number)) return
        this.#resent = resent
        onReply(reply)
        this.#resent = false
      })
    }
    const againMs = resent ? this.#delayMs() + this.#delayMs() : 0
    this.#time.after(this.#requestsFrom + againMs - this.#time.now, deliver)
  }

  #delayMs(): number {
    const { delayMs } = this.#conditions
    return delayMs * (this.#chance.happens(0.05) ? 10 * this.#chance.fraction() : this.#chance.fraction())
  }
}
