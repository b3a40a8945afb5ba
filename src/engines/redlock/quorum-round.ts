/**
 * One batch of keys, asked for on all servers at once: the steps from the request to the decision.
 *
 *     take on all ──► granted ───────────────────────► held     (servers with another number, or none, are repaired)
 *          │  └─────► raise the numbers ──► granted
 *          └────────► failed ──► undo the attempt ───► waiting, busy, gone, or failed
 *
 * An item is decided as soon as its outcome is certain. A server that does not answer is not waited for if the others
 * decide, and for `timeoutMs` at most if they do not. A reply that comes after the decision still counts: what it says
 * was taken is given back there, or repaired if the entry holds meanwhile.
 */
import type { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Chance, Clock, Timer } from '../../core/clock.ts'
import type { Standing } from '../../core/engine.ts'
import type { EngineError, LineFullError } from '../../core/errors.ts'
import { unusableKey } from './codec.ts'
import { callOf, noMajority, tooLate } from './errors.ts'
import type { OutgoingMessages } from './outgoing-messages.ts'
import { type RedlockOwnEntries, type RedlockOwnEntry, validUntil } from './own-entries.ts'
import {
  decideGrant,
  decideRenewal,
  isSilent,
  majorityOf,
  type RefusalSummary,
  summarizeRefusals,
} from './quorum-decision.ts'
import type { QuorumServer, TakeReply, TakeRequest } from './quorum-server.ts'

/** What the rounds of one engine share. */
export interface QuorumContext {
  readonly servers: readonly QuorumServer[]
  readonly clock: Clock
  readonly chance: Chance
  readonly timeoutMs: number
  readonly limits: CallLimits
  readonly outgoing: OutgoingMessages
  readonly entries: RedlockOwnEntries
}

/** What came of one request. `summary` tells when a waiter should ask again. */
export interface RoundResult {
  readonly standing: Standing
  readonly summary?: RefusalSummary
}

interface RoundItem {
  readonly request: TakeRequest
  readonly entry: RedlockOwnEntry
  /** By server; undefined: the server has not replied yet. */
  readonly replies: (TakeReply | undefined)[]
  /** The highest count that a server has named when it refused to raise a number. */
  floor: number
  state: 'asked' | 'undoing' | 'decided'
  result: RoundResult | undefined
}

const SILENT: TakeReply = { why: 'silent' }
const GONE: Standing = { state: 'gone', why: 'unknown' }
/**
 * How long after its reply a server may be repaired, in time-outs: one until the decision, one for the message, and as
 * much again.
 */
const REPAIR_TIMEOUTS = 4

export class QuorumRound {
  readonly #context: QuorumContext
  readonly #items: readonly RoundItem[]
  readonly #done: (results: readonly RoundResult[]) => void
  readonly #sentAt: number
  #undecided: number
  /** How many servers have been asked and have not replied. */
  #unanswered = 0
  #forgotten = false
  /** Undefined once all items are decided. */
  #timer: Timer | undefined

  /** `entries` are those of the requests, in the same order. */
  constructor(
    context: QuorumContext,
    requests: readonly TakeRequest[],
    entries: readonly RedlockOwnEntry[],
    done: (results: readonly RoundResult[]) => void,
  ) {
    this.#context = context
    this.#done = done
    this.#undecided = requests.length
    this.#sentAt = context.clock.now()
    const atFirst = context.servers.map((server) => (server.ready ? undefined : SILENT))
    this.#items = requests.map((request, index) => {
      const entry = entries[index] as RedlockOwnEntry
      entry.unanswered += 1
      entry.ttlMs = Math.max(entry.ttlMs, request.ttlMs)
      return { request, entry, replies: atFirst.slice(), floor: 0, state: 'asked', result: undefined }
    })
    for (const [index, server] of context.servers.entries()) {
      if (atFirst[index] !== undefined) continue
      this.#unanswered += 1
      for (const { askedServers } of entries) askedServers[index] = true
      server.take(requests, (replies, error) => {
        this.#unanswered -= 1
        this.#received(index, replies, error)
      })
    }
    this.#timer = context.limits.start(context.timeoutMs, () => this.#timeUp(), this.#sentAt)
    this.#decideAll()
  }

  #received(server: number, replies: readonly TakeReply[] | undefined, error: unknown): void {
    const none: TakeReply = error === undefined ? SILENT : { why: 'silent', error }
    for (let index = 0; index < this.#items.length; index += 1) {
      const item = this.#items[index] as RoundItem
      const reply = replies?.[index] ?? none
      // For an entry that has left there is nothing to decide any more.
      if (item.state === 'asked' && !item.entry.left) item.replies[server] = reply
      else this.#receivedLate(item, server, reply)
    }
    if (replies !== undefined) this.#context.outgoing.sendPending(server)
    this.#decideAll()
    this.#forgetEntries()
  }

  /** The reply has come after the decision. */
  #receivedLate({ request, entry }: RoundItem, server: number, reply: TakeReply): void {
    const { outgoing, clock, servers } = this.#context
    const { key, id, ttlMs, attempt } = request
    if (entry.left || entry.token === undefined) {
      // The entry does not want the key any more, and the leave for it was sent after this request. So the server has
      // nothing of it, unless messages overtake each other, or got lost.
      const overtaken = typeof reply === 'number' && servers[server]?.ordered !== true
      // A later attempt of this entry, if there is one, must not be touched.
      const leave = entry.left ? { key, id } : { key, id, upToAttempt: attempt }
      if (overtaken || isSilent(reply)) outgoing.leave(server, leave, ttlMs)
    } else if (clock.now() < entry.deadline) this.#repair(request, entry, server, reply)
    outgoing.flush()
  }

  /** Decide what can be decided, and send what follows from it. */
  #decideAll(): void {
    for (const item of this.#items) if (item.state === 'asked') this.#decide(item)
    this.#context.outgoing.flush()
    this.#finish()
  }

  #decide(item: RoundItem): void {
    const { entry, replies } = item
    if (entry.left) {
      this.#conclude(item, { standing: GONE })
      return
    }
    const decision = entry.token === undefined ? decideGrant(replies, item.floor) : decideRenewal(replies, entry.token)
    if (decision.step === 'granted') this.#grant(item, decision.token)
    else if (decision.step === 'raise') this.#raise(item, decision.to)
    else if (decision.step === 'failed') this.#fail(item)
  }

  #grant(item: RoundItem, token: number): void {
    const { request, entry, replies } = item
    const now = this.#context.clock.now()
    const until = validUntil(this.#sentAt, request.ttlMs)
    if (now >= until) {
      this.#undo(item, failed(tooLate(request)))
      return
    }
    entry.token = token
    entry.attempt = request.attempt
    entry.deadline = Math.max(entry.deadline, until)
    for (let server = 0; server < replies.length; server += 1) {
      const reply = replies[server]
      if (reply !== undefined && reply !== token) this.#repair(request, entry, server, reply)
    }
    const heldForMs = request.ttlMs - (now - this.#sentAt)
    this.#conclude(item, { standing: { state: 'held', token: BigInt(token), heldForMs } })
  }

  /** The entry holds: have it stored on this server as on the majority, if the server does not have another holder. */
  #repair(request: TakeRequest, entry: RedlockOwnEntry, server: number, reply: TakeReply): void {
    const { token, holder, deadline } = entry
    if (token === undefined || reply === token) return
    const { outgoing, clock, timeoutMs } = this.#context
    const { key, id, ttlMs, attempt, outlives = false } = request
    const repair = { key, id, ttlMs, holder, attempt, token, outlives }
    const onDoubtful = (): void => {
      // The server may have set the key after the release.
      if (!entry.left) return
      outgoing.leave(server, { key, id }, ttlMs)
      outgoing.flush()
    }
    if (typeof reply === 'number')
      outgoing.repair(server, { ...repair, currentNumber: reply, notAfterMs: 0 }, onDoubtful)
    else if (reply.why === 'missing') {
      // A repair that arrives later than that was held up by a broken connection: it could come after the release.
      const notAfterMs = reply.nowMs + Math.min(deadline - clock.now(), REPAIR_TIMEOUTS * timeoutMs)
      outgoing.repair(server, { ...repair, currentNumber: undefined, notAfterMs }, onDoubtful)
    }
  }

  /** Also on servers whose reply has not come: they may have taken the key all the same. */
  #raise(item: RoundItem, to: number): void {
    const { request, replies } = item
    const { key, id } = request
    for (const [server, reply] of replies.entries()) {
      const known = typeof reply === 'number'
      if (reply === to || (!known && reply !== undefined && !isSilent(reply))) continue
      if (known) replies[server] = undefined
      this.#context.outgoing.raise(server, { key, id, to }, (number) => {
        if (item.state !== 'asked') return
        if (number === to) replies[server] = to
        else if (known) replies[server] = number === undefined || number === 0 ? SILENT : reply
        if (number !== undefined && number > item.floor) item.floor = number
        this.#decideAll()
      })
    }
    this.#restartTimer()
  }

  #fail(item: RoundItem): void {
    const { request, entry, replies } = item
    const most = majorityOf(replies.length)
    const summary = summarizeRefusals(replies)
    const needed = replies.length - most + 1
    if (entry.token !== undefined) {
      const possible = replies.filter((reply) => reply === entry.token || reply === undefined || isSilent(reply)).length
      if (possible >= most)
        this.#conclude(item, failed(noMajority(callOf(request), summary.answered, replies.length, summary.error)))
      else this.#giveUp(item, summary)
    } else if (summary.evicted) this.#giveUp(item, summary)
    else if (summary.unusables >= needed) this.#undo(item, failed(unusableKey(request.key, summary.unusable)))
    else if (summary.answered < most) {
      // The key cannot be had. Whether another entry has it, or too few servers answer, depends on the missing replies.
      const open = replies.filter((reply) => reply === undefined).length
      if (summary.answered + open >= most) return
      this.#undo(item, failed(noMajority(callOf(request), summary.answered, replies.length, summary.error)))
    } else if (summary.missing >= needed) this.#giveUp(item, summary)
    else {
      const { ahead } = summary
      if (request.mode !== 'try') entry.waitsUntil = this.#sentAt + request.ttlMs
      this.#undo(item, { standing: { state: request.mode === 'try' ? 'busy' : 'waiting', ahead }, summary })
    }
  }

  /** The entry is in no line any more. */
  #giveUp(item: RoundItem, { evicted }: RefusalSummary): void {
    item.entry.left = true
    this.#undo(item, { standing: evicted ? { state: 'gone', why: 'evicted' } : GONE })
  }

  /**
   * Give back what this attempt has taken, or may have taken: also on servers whose reply has not come. The item is
   * decided when the servers that had taken the key have answered.
   */
  #undo(item: RoundItem, result: RoundResult): void {
    const { request, entry, replies } = item
    const { key, id, ttlMs, attempt, mode } = request
    const waits = result.standing.state === 'waiting' && mode !== 'try'
    const keepWaiting = waits ? { keepWaiting: { ttlMs, holder: entry.holder } } : {}
    const leave = entry.left ? { key, id } : { key, id, upToAttempt: attempt, ...keepWaiting }
    item.state = 'undoing'
    item.result = result
    let expected = 0
    for (const [server, reply] of replies.entries()) {
      if (reply !== undefined && typeof reply !== 'number' && !isSilent(reply)) continue
      if (typeof reply !== 'number') {
        this.#context.outgoing.leave(server, leave, ttlMs)
        continue
      }
      expected += 1
      this.#context.outgoing.leave(server, leave, ttlMs, () => {
        expected -= 1
        if (expected === 0) this.#conclude(item, result)
        this.#finish()
      })
    }
    if (expected === 0) this.#conclude(item, result)
  }

  #conclude(item: RoundItem, result: RoundResult): void {
    if (item.state === 'decided') return
    item.state = 'decided'
    item.result = result
    this.#undecided -= 1
  }

  #finish(): void {
    if (this.#undecided > 0 || this.#timer === undefined) return
    this.#timer.cancel()
    this.#timer = undefined
    this.#done(this.#items.map(({ result }) => result as RoundResult))
    this.#forgetEntries()
  }

  #restartTimer(): void {
    this.#timer?.cancel()
    this.#timer = this.#context.limits.start(this.#context.timeoutMs, () => this.#timeUp())
  }

  #timeUp(): void {
    this.#restartTimer()
    for (const item of this.#items) {
      if (item.state === 'undoing') this.#conclude(item, item.result as RoundResult)
      if (item.state !== 'asked') continue
      for (const [server, reply] of item.replies.entries()) if (reply === undefined) item.replies[server] = SILENT
    }
    this.#decideAll()
  }

  /** When all is decided, and no further reply can come. */
  #forgetEntries(): void {
    if (this.#unanswered > 0 || this.#timer !== undefined || this.#forgotten) return
    this.#forgotten = true
    for (const { entry } of this.#items) {
      entry.unanswered -= 1
      this.#context.entries.release(entry)
    }
  }
}

function failed(error: EngineError | LineFullError): RoundResult {
  return { standing: { state: 'failed', error } }
}
