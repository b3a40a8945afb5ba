/**
 * The engine: the majority (majority.ts) on Redis servers (server.ts), with hints for those who wait.
 */

import { RESERVED, RedisNames, reservedKey } from '../../clients/redis/names.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import type { ListenConnection } from '../../clients/shared/listen.ts'
import { type Chance, type Clock, systemChance } from '../../core/clock.ts'
import type { Claim, Engine, Finding, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { diagnose } from './diagnose.ts'
import { enough } from './enough.ts'
import { ENGINE, LINE_BOUND, unanswered } from './errors.ts'
import { Hints } from './hints.ts'
import { keysIn } from './listing.ts'
import { entriesOf, fromAll, seenIn } from './looking.ts'
import { Majority } from './majority.ts'
import { ServerNode } from './server.ts'
import { majorityOf } from './verdict.ts'
import { Wording } from './wording.ts'

/** A lease has to be long against the time that one silent server may cost. */
const TIMEOUTS_IN_A_TTL = 4

function traitsFor(timeoutMs: number): Traits {
  return {
    order: 'none',
    fencing: true,
    sharing: 'none',
    ttl: 'entry',
    minTtlMs: TIMEOUTS_IN_A_TTL * timeoutMs,
    lossBeforeNext: true,
    lineBound: LINE_BOUND,
    batchLimit: 100,
    takesSignal: false,
    tokensSurvive:
      'release, expiry, and everything that clocks and the network do; restarts of servers that keep their counters (appendonly yes, appendfsync always), and of others as long as their clock is not behind the last token',
    survives:
      'the loss of any minority of the servers at any moment; two holders at once only if clocks jump, processes or messages are late by more than the ttl, or servers restart empty: then tokens tell them apart',
  }
}

export interface EngineSetup {
  readonly wires: readonly RedisWire[]
  readonly prefix: string
  readonly clock: Clock
  readonly timeoutMs: number
}

/** An engine on several Redis servers that know nothing of each other. */
export interface RedlockEngine extends Engine {
  /**
   * What about these servers could break the promises. Looks through all keys for those of strangers that never end.
   */
  diagnose(): Promise<readonly Finding[]>
}

export class RedlockLines implements RedlockEngine {
  readonly name: string = ENGINE
  readonly traits: Traits
  readonly #nodes: readonly ServerNode[]
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #limits: CallLimits
  readonly #prefix: string
  /** Some keys could be taken for keys of our own. */
  readonly #risky: boolean
  readonly #majority: Majority
  readonly #hints: Hints
  readonly #channel: string
  readonly #ears = new Map<number, Promise<ListenConnection>>()
  /** Where we hear. */
  readonly #hearing = new Set<number>()
  #listener: ((news: News) => void) | undefined
  #wasReachable = false
  #closed = false

  constructor({ wires, prefix, clock, timeoutMs }: EngineSetup, chance: Chance = systemChance) {
    const client = chance.id()
    this.traits = traitsFor(timeoutMs)
    this.#clock = clock
    this.#timeoutMs = timeoutMs
    this.#limits = new CallLimits(clock)
    this.#prefix = prefix
    this.#channel = RESERVED + client
    const wordings = new Map<string, Wording>()
    this.#nodes = wires.map((wire) => {
      const wording = wordings.get(wire.keyPrefix) ?? new Wording(new RedisNames(wire, prefix), client)
      wordings.set(wire.keyPrefix, wording)
      return new ServerNode(wire, clock, prefix, client, wording)
    })
    this.#risky = this.#nodes.some(({ names }) => !names.together)
    this.#hints = new Hints(wires.length, clock, chance, (key, id) => this.#listener?.({ key, id }))
    this.#majority = new Majority({
      nodes: this.#nodes,
      clock,
      chance,
      timeoutMs,
      waits: (question, summary) => this.#hints.waits(question, summary),
    })
    for (const [index, node] of this.#nodes.entries()) node.returned = () => this.#returned(index)
  }

  // Neither takes a signal: what is sent is sent, and nothing waits long to be.
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    if (!this.#wasReachable) return this.#reachable().then(() => this.enter(claims))
    if (this.#risky && claims.some(({ key }) => this.#refuses(key))) return this.#enterSome(claims)
    return new Promise((resolve) => this.#majority.enter(claims, (standings) => resolve(this.#seen(claims, standings))))
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    return new Promise((resolve) => this.#majority.renew(places, (standings) => resolve(this.#seen(places, standings))))
  }

  leave(places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    for (const { id } of places) this.#hints.forget(id)
    return new Promise((resolve, reject) => {
      this.#majority.leave(places, (were, error) => (were === undefined ? reject(error as Error) : resolve(were)))
    })
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    const { entries } = await this.inspect(key)
    const entry = entries.find((one) => one.token === token)
    if (entry === undefined) return false
    const were = await fromAll(this.#nodes, this.#limits, this.#timeoutMs, (node) => node.evict(key, entry.id, how))
    return were.filter((was) => was === true).length >= majorityOf(this.#nodes.length)
  }

  async inspect(key: string): Promise<Line> {
    await this.#reachable()
    const replies = await fromAll(this.#nodes, this.#limits, this.#timeoutMs, (node) => node.look(key))
    const seen = replies.filter((reply) => reply !== undefined).map(seenIn)
    return { key, entries: entriesOf(key, seen, this.#nodes.length) }
  }

  async *list(prefix: string): AsyncIterable<LineSummary> {
    await this.#reachable()
    for await (const keys of keysIn(this.#nodes, prefix)) {
      for (const { key, entries } of await Promise.all(keys.map((one) => this.inspect(one)))) {
        const held = entries.filter(({ state }) => state === 'held').length
        if (entries.length > 0) yield { key, held, waiting: entries.length - held }
      }
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    await this.#reachable()
    await this.#listen()
    return {
      [Symbol.asyncDispose]: async () => {
        // Another may have come since.
        if (this.#listener !== listener) return
        this.#listener = undefined
        this.#hints.stop()
      },
    }
  }

  async diagnose(): Promise<readonly Finding[]> {
    await this.#reachable()
    return await diagnose(this.#nodes, this.#clock)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.#hints.stop()
    // One that is still being opened is closed when it is open, or has failed.
    for (const ear of this.#ears.values()) ear.then((open) => open.close()).catch(() => undefined)
    await this.#lastWords()
    await Promise.all(this.#nodes.map(({ wire }) => wire.close()))
  }

  /**
   * What was given back a moment ago may be unanswered, and would stay for a ttl if it got lost. Nobody who is silent
   * is waited for longer than usual.
   */
  #lastWords(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#limits.start(this.#timeoutMs, resolve)
      this.#majority.whenAnswered(() => {
        timer.cancel()
        resolve()
      })
    })
  }

  /**
   * Resolves when a majority can be asked. Only the first connections are waited for, and all of them, for a moment:
   * later, a majority that is away is a refusal, at once.
   */
  async #reachable(): Promise<void> {
    if (this.#wasReachable) return
    const most = majorityOf(this.#nodes.length)
    let trouble: Error | undefined
    const connecting = this.#nodes.map(async (node) => {
      await node.connected().catch((error: Error) => {
        trouble = error
        throw error
      })
    })
    const answered = await enough(connecting, most, this.#clock, this.#timeoutMs)
    if (answered < most) throw notApplied(unanswered(answered, this.#nodes.length, trouble))
    this.#wasReachable = true
  }

  /** Listens on every server that can be reached; on the others when they come back. */
  async #listen(): Promise<void> {
    const most = majorityOf(this.#nodes.length)
    const opening = this.#nodes.flatMap((node, index) => (node.wire.ready ? this.#listenAt(index) : []))
    if (opening.length >= most) await enough(opening, most, this.#clock, this.#timeoutMs)
  }

  #listenAt(index: number): readonly Promise<ListenConnection>[] {
    const { wire, names } = this.#nodes[index] as ServerNode
    const known = this.#ears.get(index)
    if (known !== undefined) return [known]
    // Closed meanwhile: nobody would close it.
    if (wire.listen === undefined || this.#closed) return []
    const opening = wire.listen(this.#channel, {
      message: (message) => this.#hints.heard(index, message, (K) => names.userKey(K)),
      gap: () => this.#listener?.({ gap: true }),
    })
    opening.then(
      () => {
        this.#hearing.add(index)
        this.#hints.deaf = this.#hearing.size < majorityOf(this.#nodes.length)
      },
      // Tried again when the server comes back.
      () => this.#ears.delete(index),
    )
    this.#ears.set(index, opening)
    return [opening]
  }

  #returned(index: number): void {
    if (this.#closed) return
    this.#majority.returned(index)
    if (this.#listener !== undefined) void this.#listenAt(index)
  }

  /** Who does not wait any more needs no hint. */
  #seen(places: readonly Place[], standings: readonly Standing[]): readonly Standing[] {
    for (const [index, { state }] of standings.entries())
      if (state !== 'waiting') this.#hints.forget((places[index] as Place).id)
    return standings
  }

  /** Without those whose key would look like one of ours. */
  async #enterSome(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const rest = claims.filter(({ key }) => !this.#refuses(key))
    const standings = (rest.length === 0 ? [] : await this.enter(rest)).values()
    return claims.map(({ key }): Standing => {
      if (this.#refuses(key)) return { state: 'failed', error: reservedKey(this.#prefix + key) }
      return standings.next().value as Standing
    })
  }

  #refuses(key: string): boolean {
    return this.#nodes.some(({ names }) => names.refuses(key))
  }
}

/** Nothing has been sent. */
function notApplied(error: EngineError): EngineError {
  const { message, transient, cause } = error
  return new EngineError(ENGINE, message.replace(`${ENGINE}: `, ''), { outcome: 'not-applied', transient, cause })
}
