/** The engine: a quorum (quorum.ts) of Redis servers (server.ts), with signals for waiters (listen.ts). */

import { RESERVED, RedisNames, reservedKey } from '../../clients/redis/names.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import { CallLimits } from '../../clients/shared/call-limits.ts'
import { type Chance, type Clock, systemChance } from '../../core/clock.ts'
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
import type { EngineCall } from '../../core/failed-call.ts'
import { LINE_BOUND, RedlockScriptArguments } from './codec.ts'
import { diagnose } from './diagnose.ts'
import { asEngineError, ENGINE, noMajority } from './errors.ts'
import { entriesIn, keysOn } from './inspect.ts'
import { RedlockListener, RetrySignals } from './listen.ts'
import { Quorum } from './quorum.ts'
import { majorityOf } from './quorum-decision.ts'
import { askAllServers, fulfilledCount, RedlockServer } from './server.ts'

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
    takesSignal: [],
    tokensSurvive:
      'release, expiry, and everything that clocks and the network do; restarts of servers that keep their counters ' +
      '(appendonly yes, appendfsync always), and of others as long as their clock is not behind the last token',
    survives:
      'the loss of any minority of the servers at any moment; two holders at once only if clocks jump, processes or ' +
      'messages are late by more than the ttl, or servers restart empty: then tokens tell them apart',
  }
}

export interface RedlockEngineSetup {
  readonly wires: readonly RedisWire[]
  readonly prefix: string
  readonly clock: Clock
  readonly timeoutMs: number
}

/** An engine on several Redis servers that know nothing of each other. */
export class RedlockEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits
  readonly #servers: readonly RedlockServer[]
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #limits: CallLimits
  readonly #prefix: string
  /** A key of the user could look like one of our own, on some server: each is checked. */
  readonly #risky: boolean
  readonly #quorum: Quorum
  readonly #signals: RetrySignals
  readonly #listen: RedlockListener
  #listener: ((news: News) => void) | undefined
  #wasReachable = false
  #closed = false

  /** @internal */
  constructor({ wires, prefix, clock, timeoutMs }: RedlockEngineSetup, chance: Chance = systemChance) {
    const engineId = chance.id()
    this.traits = traitsFor(timeoutMs)
    this.#clock = clock
    this.#timeoutMs = timeoutMs
    this.#limits = new CallLimits(clock)
    this.#prefix = prefix
    this.#servers = serversOn(wires, clock, prefix, engineId)
    this.#risky = this.#servers.some(({ names }) => !names.together)
    this.#listen = new RedlockListener(this.#servers, clock, RESERVED + engineId, (server) => {
      const { names } = this.#servers[server] as RedlockServer
      return {
        message: (message) => this.#signals.received(server, message, (serverKey) => names.userKey(serverKey)),
        gap: () => this.#listener?.({ gap: true }),
      }
    })
    this.#signals = new RetrySignals({
      servers: wires.length,
      clock,
      chance,
      deaf: () => this.#listen.deaf,
      isOurs: (id) => this.#quorum.has(id),
      retry: (key, id) => this.#listener?.({ key, id }),
    })
    this.#quorum = new Quorum({
      servers: this.#servers,
      clock,
      chance,
      timeoutMs,
      onWaiting: (place, summary) => this.#signals.schedule(place, summary),
    })
    for (const [index, server] of this.#servers.entries()) server.onReturn = () => this.#serverReturned(index)
  }

  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    if (!this.#wasReachable) return this.#reachable('enter').then(() => this.enter(claims))
    if (this.#risky && claims.some(({ key }) => this.#refuses(key))) return this.#enterAllowed(claims)
    return new Promise((resolve) =>
      this.#quorum.enter(claims, (standings) => resolve(this.#afterCall(claims, standings))),
    )
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    if (places.some(({ id }) => this.#signals.awaits(id))) this.#listen.check()
    return new Promise((resolve) =>
      this.#quorum.renew(places, (standings) => resolve(this.#afterCall(places, standings))),
    )
  }

  leave(places: readonly EntryName[]): Promise<readonly boolean[]> {
    for (const { id } of places) this.#signals.forget(id)
    return new Promise((resolve, reject) => {
      this.#quorum.leave(places, (were, error) => (were === undefined ? reject(error as Error) : resolve(were)))
    })
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    const { entries } = await this.#inspect('evict', key)
    const entry = entries.find((one) => one.token === token)
    if (entry === undefined) return false
    const were = await this.#askAll('evict', (server) => server.evict(key, entry.id, how))
    return were.filter((was) => was === true).length >= majorityOf(this.#servers.length)
  }

  inspect(key: string): Promise<Line> {
    return this.#inspect('inspect', key)
  }

  async *list(prefix: string, onProgress: () => void = () => undefined): AsyncIterable<LineSummary> {
    await this.#reachable('list')
    try {
      for await (const keys of keysOn(this.#servers, prefix)) {
        onProgress()
        for (const { key, entries } of await Promise.all(keys.map((one) => this.#inspect('list', one)))) {
          const held = entries.filter(({ state }) => state === 'held').length
          if (entries.length > 0) yield { key, held, waiting: entries.length - held }
        }
      }
    } catch (error) {
      throw asEngineError('list', error)
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    await this.#reachable('subscribe')
    const opening = this.#listen.openAll()
    const most = majorityOf(this.#servers.length)
    if (opening.length >= most) await fulfilledCount(opening, most, this.#clock, this.#timeoutMs)
    return {
      [Symbol.asyncDispose]: async () => {
        // Another listener may have come since.
        if (this.#listener !== listener) return
        this.#listener = undefined
        this.#signals.stop()
      },
    }
  }

  /**
   * What about these servers could break the promises. Looks through all keys for those of strangers that never end.
   */
  async diagnose(): Promise<readonly Finding[]> {
    await this.#reachable('diagnose')
    return await diagnose(this.#servers, this.#clock)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.#signals.stop()
    this.#listen.close()
    await this.#leavesAnswered()
    await Promise.all(this.#servers.map(({ wire }) => wire.close()))
  }

  /**
   * A leave that was sent a moment ago may be unanswered. If it got lost, the key would stay for a ttl. A server that
   * is silent is not waited for longer than usual.
   */
  #leavesAnswered(): Promise<void> {
    return new Promise((resolve) => {
      const timer = this.#limits.start(this.#timeoutMs, resolve)
      this.#quorum.whenLeavesAnswered(() => {
        timer.cancel()
        resolve()
      })
    })
  }

  async #inspect(call: EngineCall, key: string): Promise<Line> {
    await this.#reachable(call)
    const replies = await this.#askAll(call, (server) => server.inspect(key, call))
    const inspections = replies.filter((reply) => reply !== undefined)
    return { key, entries: entriesIn(key, inspections, this.#servers.length) }
  }

  #askAll<Reply>(
    call: EngineCall,
    ask: (server: RedlockServer) => Promise<Reply>,
  ): Promise<readonly (Reply | undefined)[]> {
    return askAllServers(this.#servers, this.#limits, this.#timeoutMs, call, ask)
  }

  /**
   * Resolves when a majority can be asked. Only the first connections are waited for, and all of them, for a moment.
   * Later, a call while a majority is away fails at once.
   */
  async #reachable(call: EngineCall): Promise<void> {
    if (this.#wasReachable) return
    const most = majorityOf(this.#servers.length)
    let lastError: unknown
    const connecting = this.#servers.map(async (server) => {
      await server.connected().catch((error: unknown) => {
        lastError = error
        throw error
      })
    })
    const answered = await fulfilledCount(connecting, most, this.#clock, this.#timeoutMs)
    if (answered < most) throw noMajority(call, answered, this.#servers.length, lastError, 'not-applied')
    this.#wasReachable = true
  }

  #serverReturned(index: number): void {
    if (this.#closed) return
    this.#quorum.serverReturned(index)
    if (this.#listener !== undefined) void this.#listen.openOn(index)
  }

  /** An entry that does not wait any more needs no signal. */
  #afterCall(places: readonly Place[], standings: readonly Standing[]): readonly Standing[] {
    for (const [index, { state }] of standings.entries())
      if (state !== 'waiting') this.#signals.forget((places[index] as Place).id)
    return standings
  }

  /** Without the claims whose key would look like one of our own. */
  async #enterAllowed(claims: readonly Claim[]): Promise<readonly Standing[]> {
    const allowed = claims.filter(({ key }) => !this.#refuses(key))
    const standings = (allowed.length === 0 ? [] : await this.enter(allowed)).values()
    return claims.map(({ key }): Standing => {
      if (this.#refuses(key)) return { state: 'failed', error: reservedKey(ENGINE, this.#prefix + key) }
      return standings.next().value as Standing
    })
  }

  #refuses(key: string): boolean {
    return this.#servers.some(({ names }) => names.refuses(key))
  }
}

/** Servers whose keys have the same names share what makes the arguments of scripts. */
function serversOn(
  wires: readonly RedisWire[],
  clock: Clock,
  prefix: string,
  engineId: string,
): readonly RedlockServer[] {
  const known = new Map<string, RedlockScriptArguments>()
  return wires.map((wire) => {
    const names = new RedisNames(wire, prefix)
    const args = known.get(wire.keyPrefix) ?? new RedlockScriptArguments(names, engineId)
    known.set(wire.keyPrefix, args)
    return new RedlockServer(wire, clock, names, args)
  })
}
