/**
 * The engine: what the core asks is passed on to the server (script-calls.ts), and waiters are woken, by messages of
 * the server and by rechecks.
 *
 * What a line is, and every decision about it, is in lua/.
 */

import { asEngineError, ENGINE } from '../../clients/redis/errors.ts'
import { RESERVED, RedisNames } from '../../clients/redis/names.ts'
import { ScriptCaller } from '../../clients/redis/script-caller.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { Claim, Engine, Finding, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { LINE_BOUND, readMessages, StandingReader } from './codec.ts'
import { ServerDiagnosis } from './diagnose.ts'
import { linesIn } from './inspect.ts'
import { Observers } from './observers.ts'
import { type Durability, ReplicaConfirmation } from './replica-confirmation.ts'
import { ScriptCalls } from './script-calls.ts'

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
  readonly #wire: RedisWire
  readonly #clock: Clock
  readonly #engineId: string
  readonly #names: RedisNames
  readonly #caller: ScriptCaller
  readonly #calls: ScriptCalls
  readonly #rechecks: RecheckTimer
  readonly #confirmation: ReplicaConfirmation | undefined
  readonly #diagnosis: ServerDiagnosis
  readonly #observers: Observers
  #news: NewsChannel | undefined
  #opening: Promise<void> | undefined
  #listener: ((news: News) => void) | undefined
  #closed = false

  /** @internal */
  constructor({ wire, prefix, clock, engineId, durability }: RedisEngineSetup) {
    this.#wire = wire
    this.#clock = clock
    this.#engineId = engineId
    this.#names = new RedisNames(wire, prefix)
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.#news === undefined || wire.listen === undefined,
      (key, id) => this.#listener?.({ key, id }),
    )
    const confirmation = durability === undefined ? undefined : new ReplicaConfirmation(wire, clock, durability)
    this.#confirmation = confirmation
    this.#diagnosis = new ServerDiagnosis(wire, this.#names, confirmation?.replicas ?? 0)
    this.#caller = new ScriptCaller(wire, clock, confirmation && (() => confirmation.ask()))
    const standings = new StandingReader(this.#names, {
      waiting: (recheck) => this.#rechecks.schedule(recheck),
      notWaiting: (id) => this.#rechecks.forget(id),
      // The server has told this process before it answered: the message arrives now, or the channel is dead.
      grantUnheard: () => this.#news?.expect(clock.now()),
      endless: ({ message }) => this.#diagnosis.warnOf({ name: 'strangers', finding: message }),
    })
    this.#calls = new ScriptCalls({ caller: this.#caller, clock, names: this.#names, standings, engineId })
    this.#observers = new Observers(clock, (keys, ttlMs) => this.#calls.watch(keys, ttlMs), {
      deaf: wire.listen === undefined,
    })
  }

  // Neither takes a signal: what is sent is sent, and nothing waits long to be.
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    return this.#calls.enter(claims)
  }

  async renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const sentAt = this.#clock.now()
    const standings = await this.#rechecks.during(this.#calls.renew(places))
    if (standings.some(({ state }) => state === 'waiting')) this.#news?.expect(sentAt)
    return standings
  }

  leave(places: readonly Pick<Place, 'key' | 'id'>[]): Promise<readonly boolean[]> {
    for (const { id } of places) this.#rechecks.forget(id)
    return this.#calls.leave(places)
  }

  evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return this.#calls.evict(key, token, how)
  }

  async inspect(key: string): Promise<Line> {
    const { entries } = await this.#calls.inspect(key, 'all')
    return { key, entries }
  }

  async *list(prefix: string, onProgress: () => void = () => undefined): AsyncIterable<LineSummary> {
    await this.#caller.connected()
    for await (const page of linesIn(this.#wire, this.#names.serverKey(prefix))) {
      onProgress()
      const keys = page.map((serverKey) => this.#names.userKey(serverKey))
      const lines = await Promise.all(keys.map((key) => this.#calls.inspect(key, 'count')))
      for (const [index, { held, waiting }] of lines.entries()) {
        if (held + waiting > 0) yield { key: keys[index] as string, held, waiting }
      }
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    this.#listener = listener
    await this.#opened()
    void this.#diagnosis.warn()
    return {
      [Symbol.asyncDispose]: async () => {
        if (this.#listener !== listener) return
        this.#listener = undefined
        this.#rechecks.stop()
      },
    }
  }

  async watch(key: string, listener: () => void): Promise<AsyncDisposable> {
    await this.#opened()
    return await this.#observers.add(key, listener)
  }

  /** What about this server could break its promises. Looks through all keys for those of strangers that never end. */
  async diagnose(): Promise<readonly Finding[]> {
    await this.#caller.connected()
    return await this.#diagnosis.findings({ thorough: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.#rechecks.stop()
    this.#observers.stop()
    await this.#news?.[Symbol.asyncDispose]()
    await this.#wire.close()
  }

  /** Resolves when messages can arrive. There is one channel, for waiters and observers alike. */
  #opened(): Promise<void> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined
      throw asEngineError(error)
    })
    return this.#opening
  }

  async #open(): Promise<void> {
    await this.#caller.connected()
    const listener = {
      news: (news: News) => this.#heard(news),
      changed: (key: string) => this.#observers.ring(key),
    }
    const news = new NewsChannel(this.#clock, {
      message: (text) => readMessages(text, this.#names, listener),
      gap: () => this.#heard({ gap: true }),
    })
    if (this.#wire.listen !== undefined) await news.open(this.#wire.listen, RESERVED + this.#engineId)
    // Until now no message could arrive, and waiters were rechecked again and again.
    this.#news = news
    // The engine was closed meanwhile, when there was no channel to close yet.
    if (this.#closed) await news[Symbol.asyncDispose]()
  }

  #heard(news: News): void {
    if ('id' in news) this.#rechecks.forget(news.id)
    else this.#observers.ringAll()
    // A grant that the replicas have not confirmed is only a hint: the renewal that follows will have it confirmed.
    const unconfirmed = this.#confirmation !== undefined && 'id' in news && news.standing?.state === 'held'
    this.#listener?.(unconfirmed ? { key: news.key, id: news.id } : news)
  }
}
