/**
 * One Redis server as a node: what the majority asks becomes a script call (lua/), one for a batch.
 *
 * It never waits for a connection: a server that is away counts as silent at once, and the others decide. Nor does it
 * heap up calls for a server that does not answer.
 */

import { RedisNames } from '../../clients/redis/names.ts'
import { type Script, ScriptCaller } from '../../clients/redis/script-caller.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { Answer, Departure, Hear, Mend, Node, Question, Raise } from './node.ts'
import { answersIn, numbersIn, wereIn } from './replies.ts'
import { ask, evict, leave, look, mend, raise, retreat } from './scripts.ts'
import { groupOf, Wording } from './wording.ts'

/** More calls than this are unanswered only where nobody answers. */
const MOST_CALLS = 200
const SCRIPTS = [ask, raise, mend, leave, retreat, look, evict]

export class ServerNode implements Node {
  readonly wire: RedisWire
  readonly names: RedisNames
  /** Called when the server can be asked again. */
  returned: () => void = () => undefined
  readonly #caller: ScriptCaller
  readonly #client: string
  readonly #wording: Wording
  #calls = 0
  #wasReady = false
  /** Something was sent a second time, and may be unanswered. */
  #disordered = false

  /** `wording` may be that of another server whose keys have the same names. */
  constructor(wire: RedisWire, clock: Clock, prefix: string, client: string, wording?: Wording) {
    this.wire = wire
    this.names = new RedisNames(wire, prefix)
    this.#wording = wording ?? new Wording(this.names, client)
    this.#client = client
    this.#caller = new ScriptCaller(wire, clock)
    this.#caller.onResend = () => {
      this.#disordered = true
    }
    const { onChange } = wire
    wire.onChange = () => {
      onChange()
      this.#look()
    }
    this.#look()
  }

  get ready(): boolean {
    return this.wire.ready && this.#calls < MOST_CALLS
  }

  get ordered(): boolean {
    return this.wire.inOrder && !this.#disordered
  }

  /** Resolves when it can be asked; rejects after a moment. */
  connected(): Promise<void> {
    return this.#caller.connected()
  }

  ask(questions: readonly Question[], hear: Hear<readonly Answer[]>): void {
    const words = this.#wording.ask(questions)
    if (words === undefined) this.#inHalves(questions, (some, heard) => this.ask(some, heard), hear)
    else this.#call(ask, words, (reply) => answersIn(reply, questions.length), hear)
  }

  raise(raises: readonly Raise[], hear: Hear<readonly number[]>): void {
    const args = raises.flatMap(({ key, id, to }) => [this.names.serverKey(key), id, String(to), this.#group(key)])
    this.#call(raise, ['', '0', ...args], (reply) => numbersIn(reply, raises.length), hear)
  }

  mend(mends: readonly Mend[], hear: Hear<unknown>): void {
    const args = mends.flatMap(({ key, id, attempt, token, seen, notAfterMs, ttlMs, outlives, holder }) => [
      ...[
        this.names.serverKey(key),
        id,
        String(attempt),
        this.#group(key),
        String(token),
        seen === undefined ? '' : String(seen),
      ],
      ...[String(Math.floor(notAfterMs)), String(ttlMs), outlives === true ? 'o' : 'a', holder],
    ])
    this.#call(mend, ['', '0', this.#client, ...args], (reply) => reply ?? 'OK', hear)
  }

  leave(departures: readonly Departure[], hear: Hear<readonly boolean[]>): void {
    const final = departures.filter(({ upTo }) => upTo === undefined)
    if (final.length === departures.length) this.#leave(departures, hear)
    else if (final.length === 0) this.#retreat(departures, hear)
    else {
      // Some for good, some not: rare, and the order among them means nothing.
      const attempts = departures.filter(({ upTo }) => upTo !== undefined)
      this.#leave(final, (left) => {
        this.#retreat(attempts, (taken) => {
          const [one, other] = [left?.values(), taken?.values()]
          if (one === undefined || other === undefined) hear(undefined)
          else hear(departures.map(({ upTo }) => (upTo === undefined ? one : other).next().value === true))
        })
      })
    }
  }

  /** What lua/look.lua answers. */
  look(key: string): Promise<unknown> {
    return this.#caller.call(look, ['', '0', this.names.serverKey(key)], '', (reply) => reply)
  }

  evict(key: string, id: string, how: 'expire' | 'now'): Promise<boolean> {
    return this.#caller.call(evict, ['', '0', this.names.serverKey(key), id, how], '', (reply) => Number(reply) === 1)
  }

  /** Whether it has come, or come back. */
  #look(): void {
    const { ready } = this.wire
    const came = ready && !this.#wasReady
    this.#wasReady = ready
    if (!came) return
    // Before anything else, so that no script has to be sent a second time: what was sent after it would overtake it.
    // Who may not do this is served all the same.
    for (const { text } of SCRIPTS) this.wire.send('SCRIPT', ['LOAD', text]).catch(() => undefined)
    this.returned()
  }

  #leave(departures: readonly Departure[], hear: Hear<readonly boolean[]>): void {
    this.#call(leave, this.#wording.leave(departures), (reply) => wereIn(reply, departures.length), hear)
  }

  #retreat(departures: readonly Departure[], hear: Hear<readonly boolean[]>): void {
    const args = departures.flatMap(({ key, id, upTo, stays }) => [
      ...[
        this.names.serverKey(key),
        id,
        String(upTo),
        stays === undefined ? '' : String(stays.ttlMs),
        stays?.holder ?? '',
      ],
    ])
    this.#call(retreat, ['', '0', this.#client, ...args], (reply) => wereIn(reply, departures.length), hear)
  }

  #group(key: string): string {
    return groupOf(this.names.serverKey(key))
  }

  #inHalves<Item, Reply>(
    items: readonly Item[],
    call: (items: readonly Item[], hear: Hear<readonly Reply[]>) => void,
    hear: Hear<readonly Reply[]>,
  ): void {
    const middle = items.length >> 1
    const replies: (readonly Reply[] | undefined)[] = []
    const heard = (half: number, reply: readonly Reply[] | undefined, error: Error | undefined): void => {
      replies[half] = reply
      if (replies.length < 2 || !(1 - half in replies)) return
      const [first, second] = replies
      if (first === undefined || second === undefined) hear(undefined, error)
      else hear([...first, ...second])
    }
    call(items.slice(0, middle), (reply, error) => heard(0, reply, error))
    call(items.slice(middle), (reply, error) => heard(1, reply, error))
  }

  #call<Reply>(script: Script, words: string[], read: (reply: unknown) => Reply, hear: Hear<Reply>): void {
    this.#calls += 1
    this.#caller.tell(script, words, (reply, failure) => {
      this.#calls -= 1
      let answer: Reply | undefined
      let error: Error | undefined = failure
      try {
        if (failure === undefined) answer = read(reply)
      } catch (strange) {
        error = strange as Error
      }
      hear(answer, error)
      if (this.#calls === 0) this.#disordered = false
    })
  }
}
