/**
 * The engine: each verb is one call of a script for a whole batch (lua/), and in Cluster one for each slot (slots.ts).
 * What is sent and what is answered is in codec.ts; how waiters are woken, in listen.ts.
 *
 * What a line is, and every decision about it, is in lua/.
 */

import { asEngineError, ENGINE } from '../../clients/redis/errors.ts'
import { RedisNames, reservedKey } from '../../clients/redis/names.ts'
import { type Script, ScriptCaller } from '../../clients/redis/script-caller.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type {
  Claim,
  Engine,
  EntryName,
  Finding,
  Line,
  LineSummary,
  News,
  Place,
  Standing,
  Traits,
} from '../../core/engine.ts'
import type { EngineError } from '../../core/errors.ts'
import { type EngineCall, failingAs } from '../../core/failed-call.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import type { Store } from '../../core/store.ts'
import {
  type CallItem,
  callWords,
  EnterArguments,
  LINE_BOUND,
  leaveAnswersOf,
  renewArguments,
  StandingReader,
  watchAnswersOf,
} from './codec.ts'
import { diagnose } from './diagnose.ts'
import { type InspectedLine, inspectedLine, linesIn } from './inspect.ts'
import { RedisListener } from './listen.ts'
import { counterKey } from './names.ts'
import { type Durability, ReplicaConfirmation } from './replica-confirmation.ts'
import { enter, evict, inspect, leave, renew, watch } from './scripts.ts'
import { SlotCalls } from './slots.ts'
import { RedisStore } from './store.ts'
import { ServerWarnings } from './warnings.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: 'full',
  ttl: 'entry',
  minTtlMs: 10,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 500,
  splitFrom: 32,
  takesSignal: [],
  tokensSurvive:
    'release, expiry, deletion, FLUSHALL, restart and fail-over, as long as the clock of the server that goes on is not behind the last token',
  survives:
    'the death of any client; with persistence, restarts of the server; a fail-over can lose locks, since replication is asynchronous',
}

/** In the place of an id, for scripts that are about a line and no entry. */
const NO_ENTRY = '-'

export interface RedisEngineSetup {
  readonly wire: RedisWire
  readonly prefix: string
  readonly clock: Clock
  /** What scripts call this engine object: its channel is named so. */
  readonly engineId: string
  readonly durability: Durability | undefined
}

/** An engine on Redis. */
export class RedisEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly store: Store
  readonly #wire: RedisWire
  readonly #clock: Clock
  readonly #engineId: string
  readonly #names: RedisNames
  readonly #caller: ScriptCaller
  readonly #slots: SlotCalls
  readonly #enterArguments: EnterArguments
  readonly #standings: StandingReader
  readonly #listener: RedisListener
  readonly #warnings: ServerWarnings
  /** How many replicas confirm every grant. */
  readonly #replicas: number

  /** @internal */
  constructor({ wire, prefix, clock, engineId, durability }: RedisEngineSetup) {
    this.#wire = wire
    this.#clock = clock
    this.#engineId = engineId
    this.#names = new RedisNames(wire, prefix)
    const confirmation = durability === undefined ? undefined : new ReplicaConfirmation(wire, clock, durability)
    this.#caller = new ScriptCaller(wire, clock, confirmation && ((call) => confirmation.ask(call)))
    this.#slots = new SlotCalls(this.#caller, this.#names, clock)
    this.store = new RedisStore({ wire, names: this.#names, caller: this.#caller, slots: this.#slots, engineId, clock })
    this.#replicas = confirmation?.replicas ?? 0
    this.#warnings = new ServerWarnings(() => this.#diagnose({ thorough: false }))
    this.#listener = new RedisListener({
      wire,
      clock,
      names: this.#names,
      engineId,
      confirms: confirmation !== undefined,
      connected: () => this.#caller.connected(),
      register: (keys, ttlMs) => this.#register(keys, ttlMs),
    })
    this.#enterArguments = new EnterArguments(engineId)
    this.#standings = new StandingReader(this.#names, {
      waiting: (recheck) => this.#listener.rechecks.schedule(recheck),
      notWaiting: (id) => this.#listener.rechecks.forget(id),
      // The server has told this process before it answered: the message arrives now, or the channel is dead.
      grantUnheard: () => this.#listener.expect(clock.now()),
      endless: ({ message }) => this.#warnings.warnOf({ name: 'strangers', finding: message }),
    })
  }

  // Neither takes a signal: what is sent is sent, and nothing waits long to be.
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    if (this.#names.together) return this.#enter(claims)
    return this.#slots.bySlot(claims, {
      verb: 'enter',
      call: (some, slot) => this.#enter(some, slot),
      refused: ({ key }) => failed(reservedKey(ENGINE, this.#names.serverKey(key))),
      failed,
    })
  }

  async renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const sentAt = this.#clock.now()
    const standings = await this.#listener.rechecks.during(this.#renewInParts(places))
    if (standings.some(({ state }) => state === 'waiting')) this.#listener.expect(sentAt)
    return standings
  }

  leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    for (const { id } of places) this.#listener.rechecks.forget(id)
    if (this.#names.together) return this.#leave(places)
    return this.#slots.bySlot(places, {
      verb: 'leave',
      call: (some) => this.#leave(some).catch((error) => this.#slots.leaveAlone(some, error)),
      refused: () => false,
    })
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    if (this.#names.refuses(key)) return false
    return await this.#call(
      'evict',
      evict,
      [{ key, id: NO_ENTRY }],
      [String(token), how],
      (reply) => Number(reply) === 1,
    )
  }

  async inspect(key: string): Promise<Line> {
    const { entries } = await this.#inspect('inspect', key, 'all')
    return { key, entries }
  }

  async *list(prefix: string, onProgress: () => void = () => undefined): AsyncIterable<LineSummary> {
    try {
      await this.#caller.connected()
      for await (const page of linesIn(this.#wire, this.#names.serverKey(prefix))) {
        onProgress()
        const keys = page.map((serverKey) => this.#names.userKey(serverKey))
        const lines = await Promise.all(keys.map((key) => this.#inspect('list', key, 'count')))
        for (const [index, { held, waiting }] of lines.entries()) {
          if (held + waiting > 0) yield { key: keys[index] as string, held, waiting }
        }
      }
    } catch (error) {
      throw asEngineError('list', error)
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    const subscription = await failingAs(asEngineError, 'subscribe', this.#listener.subscribe(listener))
    void this.#warnings.ask()
    return subscription
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    await failingAs(asEngineError, 'watch', this.#listener.open())
    return await this.#listener.observers.add(key, listener)
  }

  /** What about this server could break its promises. Looks through all keys for those of strangers that never end. */
  async diagnose(): Promise<readonly Finding[]> {
    await failingAs(asEngineError, 'diagnose', this.#caller.connected())
    return await failingAs(asEngineError, 'diagnose', this.#diagnose({ thorough: true }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#listener.close()
    await this.#wire.close()
  }

  #diagnose({ thorough }: { readonly thorough: boolean }): Promise<readonly NamedFinding[]> {
    return diagnose({ wire: this.#wire, names: this.#names, replicas: this.#replicas, thorough })
  }

  #enter(claims: readonly Claim[], slot?: number): Promise<readonly Standing[]> {
    const args = this.#enterArguments.of(claims)
    if (args === undefined) return halves(claims, (half) => this.#enter(half, slot))
    return this.#call('enter', enter, claims, args, (reply) => this.#standings.entered(reply, claims), counterKey(slot))
  }

  #renewInParts(places: readonly Place[]): Promise<readonly Standing[]> {
    if (this.#names.together) return this.#renew(places)
    return this.#slots.bySlot(places, {
      verb: 'renew',
      call: (some) => this.#renew(some).catch((error) => this.#slots.renewAlone(some, error)),
      refused: () => ({ state: 'gone', why: 'unknown' }),
      failed,
    })
  }

  #renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const args = renewArguments(places)
    if (args === undefined) return halves(places, (half) => this.#renew(half))
    return this.#call('renew', renew, places, args, (reply) => this.#standings.renewed(reply, places))
  }

  #leave(places: readonly CallItem[]): Promise<readonly boolean[]> {
    return this.#call('leave', leave, places, [], (reply) => leaveAnswersOf(reply, places.length))
  }

  async #inspect(verb: EngineCall, key: string, what: 'all' | 'count'): Promise<InspectedLine> {
    const serverKey = this.#names.serverKey(key)
    if (this.#names.refuses(key)) throw reservedKey(ENGINE, serverKey)
    return await this.#call(verb, inspect, [{ key, id: NO_ENTRY }], [what], (reply) => inspectedLine(reply, serverKey))
  }

  /** Observe the lines of these keys, for so long; 0: no longer. Resolves with whether each was observed before. */
  #register(keys: readonly string[], ttlMs: number): Promise<readonly boolean[]> {
    const lines = keys.map((key) => ({ key, id: NO_ENTRY }))
    return this.#slots.bySlot(lines, {
      verb: 'watch',
      call: (some) =>
        this.#call('watch', watch, some, [this.#engineId, String(ttlMs)], (reply) =>
          watchAnswersOf(reply, some.length),
        ),
      refused: ({ key }) => {
        throw reservedKey(ENGINE, this.#names.serverKey(key))
      },
    })
  }

  #call<Answer>(
    verb: EngineCall,
    script: Script,
    items: readonly (CallItem & { readonly ttlMs?: number })[],
    args: readonly string[],
    read: (reply: unknown) => Answer,
    counter?: string,
  ): Promise<Answer> {
    const words = callWords(this.#names, items, args, counter)
    // Of a short ttl, only a third is spent on waiting for a connection: a grant that comes later is of no use.
    const patienceMs = (items[0]?.ttlMs ?? Number.POSITIVE_INFINITY) / 3
    return this.#caller.call(verb, script, words, words[2] as string, read, patienceMs)
  }
}

function failed(error: EngineError): Standing {
  return { state: 'failed', error }
}

/** Two calls instead of one; they are sent in order. */
async function halves<One, Answer>(
  items: readonly One[],
  call: (items: readonly One[]) => Promise<readonly Answer[]>,
): Promise<readonly Answer[]> {
  const middle = items.length >> 1
  const answers = await Promise.all([call(items.slice(0, middle)), call(items.slice(middle))])
  return answers.flat()
}
