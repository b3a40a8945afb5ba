/**
 * One Redis server of a Redlock: each request of the quorum is a call of a script (lua/), one for a batch.
 *
 * It never waits for a connection: a server that is away counts as silent at once, and the others decide. Nor does it
 * heap up calls for a server that does not answer.
 */

import type { RedisNames } from '../../clients/redis/names.ts'
import { type Script, ScriptCaller } from '../../clients/redis/script-caller.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import type { EngineCall } from '../../core/failed-call.ts'
import {
  inspectionOf,
  leaveAnswersOf,
  numbersOf,
  type RedlockScriptArguments,
  type ServerInspection,
  takeRepliesOf,
} from './codec.ts'
import { noMajority } from './errors.ts'
import { majorityOf } from './quorum-decision.ts'
import type {
  LeaveRequest,
  QuorumServer,
  RaiseRequest,
  RepairRequest,
  ReplyCallback,
  TakeReply,
  TakeRequest,
} from './quorum-server.ts'
import { evict, inspect, leave, raise, repair, take, undo } from './scripts.ts'

/** More calls than this are unanswered only where the server does not answer at all. */
const MOST_CALLS = 200
const SCRIPTS = [take, raise, repair, leave, undo, inspect, evict]

export class RedlockServer implements QuorumServer {
  readonly wire: RedisWire
  readonly names: RedisNames
  /** Called when the server can be asked for the first time, or again. */
  onReturn: () => void = () => undefined
  readonly #caller: ScriptCaller
  readonly #arguments: RedlockScriptArguments
  #unanswered = 0
  #wasReady = false
  /** A script was sent a second time, and some call is unanswered since. */
  #resent = false

  /** `args` may be shared with another server whose keys have the same names. */
  constructor(wire: RedisWire, clock: Clock, names: RedisNames, args: RedlockScriptArguments) {
    this.wire = wire
    this.names = names
    this.#arguments = args
    this.#caller = new ScriptCaller(wire, clock)
    this.#caller.onResend = () => {
      this.#resent = true
    }
    const { onChange } = wire
    wire.onChange = () => {
      onChange()
      this.#changed()
    }
    this.#changed()
  }

  get ready(): boolean {
    return this.wire.ready && this.#unanswered < MOST_CALLS
  }

  get ordered(): boolean {
    return this.wire.inOrder && !this.#resent
  }

  /** Resolves when it can be asked; rejects with `NotSent` after a moment. */
  connected(): Promise<void> {
    return this.#caller.connected()
  }

  take(requests: readonly TakeRequest[], onReply: ReplyCallback<readonly TakeReply[]>): void {
    const words = this.#arguments.take(requests)
    if (words === undefined) this.#takeInHalves(requests, onReply)
    else this.#call(take, words, (reply) => takeRepliesOf(reply, requests), onReply)
  }

  raise(requests: readonly RaiseRequest[], onReply: ReplyCallback<readonly number[]>): void {
    this.#call(raise, this.#arguments.raise(requests), (reply) => numbersOf(reply, requests.length), onReply)
  }

  repair(requests: readonly RepairRequest[], onReply: ReplyCallback<unknown>): void {
    this.#call(repair, this.#arguments.repair(requests), (reply) => reply ?? 'OK', onReply)
  }

  leave(requests: readonly LeaveRequest[], onReply: ReplyCallback<readonly boolean[]>): void {
    const final = requests.filter(({ upToAttempt }) => upToAttempt === undefined)
    if (final.length === requests.length) this.#leave(requests, onReply)
    else if (final.length === 0) this.#undo(requests, onReply)
    else {
      // A mixed batch is rare, and the order of leaves for good and of undone attempts does not matter: two calls.
      const attempts = requests.filter(({ upToAttempt }) => upToAttempt !== undefined)
      this.#leave(final, (left) => {
        this.#undo(attempts, (undone) => {
          const [one, other] = [left?.values(), undone?.values()]
          if (one === undefined || other === undefined) onReply(undefined)
          else
            onReply(requests.map(({ upToAttempt }) => (upToAttempt === undefined ? one : other).next().value === true))
        })
      })
    }
  }

  inspect(key: string, verb: EngineCall): Promise<ServerInspection> {
    return this.#caller.call(verb, inspect, this.#arguments.inspect(key), '', inspectionOf)
  }

  evict(key: string, id: string, how: 'expire' | 'now'): Promise<boolean> {
    return this.#caller.call('evict', evict, this.#arguments.evict(key, id, how), '', (reply) => Number(reply) === 1)
  }

  /** The connection has come, or gone. */
  #changed(): void {
    const { ready } = this.wire
    const came = ready && !this.#wasReady
    this.#wasReady = ready
    if (!came) return
    // Before anything else, so that no script has to be sent a second time: messages sent after it would overtake it.
    // A user who may not load scripts is served all the same.
    for (const { text } of SCRIPTS) this.wire.send('SCRIPT', ['LOAD', text]).catch(() => undefined)
    this.onReturn()
  }

  #leave(requests: readonly LeaveRequest[], onReply: ReplyCallback<readonly boolean[]>): void {
    const read = (reply: unknown): readonly boolean[] => leaveAnswersOf(reply, requests.length)
    this.#call(leave, this.#arguments.leave(requests), read, onReply)
  }

  #undo(requests: readonly LeaveRequest[], onReply: ReplyCallback<readonly boolean[]>): void {
    const read = (reply: unknown): readonly boolean[] => leaveAnswersOf(reply, requests.length)
    this.#call(undo, this.#arguments.undo(requests), read, onReply)
  }

  #takeInHalves(requests: readonly TakeRequest[], onReply: ReplyCallback<readonly TakeReply[]>): void {
    const middle = requests.length >> 1
    const halves: (readonly TakeReply[] | undefined)[] = []
    const received = (half: 0 | 1, replies: readonly TakeReply[] | undefined, error: unknown): void => {
      halves[half] = replies
      if (!(1 - half in halves)) return
      const [first, second] = halves
      if (first === undefined || second === undefined) onReply(undefined, error)
      else onReply([...first, ...second])
    }
    this.take(requests.slice(0, middle), (replies, error) => received(0, replies, error))
    this.take(requests.slice(middle), (replies, error) => received(1, replies, error))
  }

  #call<Reply>(script: Script, words: string[], read: (reply: unknown) => Reply, onReply: ReplyCallback<Reply>): void {
    this.#unanswered += 1
    this.#caller.tell(script, words, (raw, failure) => {
      this.#unanswered -= 1
      let reply: Reply | undefined
      let error = failure
      try {
        if (failure === undefined) reply = read(raw)
      } catch (unexpected) {
        error = unexpected
      }
      onReply(reply, error)
      if (this.#unanswered === 0) this.#resent = false
    })
  }
}

// ---- all servers, where no round of the quorum is needed: to connect, to listen, to inspect, to evict ----

/**
 * What each server replies within `timeoutMs`; undefined for a server that is away or silent. Rejects if those that
 * replied are no majority, with an error that names `call`.
 */
export async function askAllServers<Reply>(
  servers: readonly RedlockServer[],
  limits: CallLimits,
  timeoutMs: number,
  call: EngineCall,
  ask: (server: RedlockServer) => Promise<Reply>,
): Promise<readonly (Reply | undefined)[]> {
  let timer: Timer | undefined
  let lastError: unknown
  const late = new Promise<undefined>((resolve) => {
    timer = limits.start(timeoutMs, () => resolve(undefined))
  })
  const one = async (server: RedlockServer): Promise<Reply | undefined> => {
    if (!server.ready) return undefined
    const asked = ask(server).catch((error: unknown) => {
      lastError = error
      return undefined
    })
    return await Promise.race([asked, late])
  }
  const replies = await Promise.all(servers.map(one))
  timer?.cancel()
  const answered = replies.filter((reply) => reply !== undefined).length
  if (answered < majorityOf(servers.length)) throw noMajority(call, answered, servers.length, lastError)
  return replies
}

/**
 * Resolves when `wanted` of these are fulfilled and the others have had `graceMs` more, or when all are settled; with
 * how many are fulfilled. Never rejects.
 */
export function fulfilledCount(
  promises: readonly Promise<unknown>[],
  wanted: number,
  clock: Clock,
  graceMs: number,
): Promise<number> {
  return new Promise((resolve) => {
    let [fulfilled, settled] = [0, 0]
    let grace: Timer | undefined
    const count = (): void => {
      settled += 1
      if (fulfilled >= wanted) grace ??= clock.timer(graceMs, () => resolve(fulfilled))
      if (settled < promises.length) return
      grace?.cancel()
      resolve(fulfilled)
    }
    for (const promise of promises) {
      promise.then(() => {
        fulfilled += 1
        count()
      }, count)
    }
  })
}
