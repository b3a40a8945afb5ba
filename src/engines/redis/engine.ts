/**
 * The engine: what the core asks is passed on to the server (calls.ts), and waiters are kept an eye on, by letters and
 * by looking.
 *
 * What a line is, and every decision about it, is in lua/.
 */

import { asEngineError, ENGINE } from '../../clients/redis/errors.ts'
import { RESERVED, RedisNames } from '../../clients/redis/names.ts'
import { ScriptCaller } from '../../clients/redis/script-caller.ts'
import { serverFindings } from '../../clients/redis/server-findings.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { Clock } from '../../core/clock.ts'
import type { Claim, Engine, Finding, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { NewsChannel } from '../shared/news-channel.ts'
import { RecheckTimer } from '../shared/recheck-timer.ts'
import { Calls, type Departing } from './calls.ts'
import { Confirmation, type Durability } from './durability.ts'
import { linesIn } from './listing.ts'
import { readMessages } from './messages.ts'
import { LINE_BOUND, Standings } from './replies.ts'
import { Warnings } from './warnings.ts'
import { Watches } from './watches.ts'

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
  takesSignal: false,
  tokensSurvive:
    'release, expiry, deletion, FLUSHALL, restart and fail-over, as long as the clock of the server that goes on is not behind the last token',
  survives:
    'the death of any client; with persistence, restarts of the server; a fail-over can lose locks, since replication is asynchronous',
}

export interface EngineSetup {
  readonly wire: RedisWire
  readonly prefix: string
  readonly clock: Clock
  /** What scripts call us: the name of our channel. */
  readonly client: string
  readonly durability: Durability | undefined
}

/** An engine on Redis. */
export interface RedisEngine extends Engine {
  /** What about this server could break its promises. Looks through all keys for those of strangers that never end. */
  diagnose(): Promise<readonly Finding[]>
}

export class RedisLines implements RedisEngine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly #wire: RedisWire
  readonly #clock: Clock
  readonly #client: string
  readonly #names: RedisNames
  readonly #caller: ScriptCaller
  readonly #calls: Calls
  readonly #rechecks: RecheckTimer
  readonly #confirmation: Confirmation | undefined
  readonly #warnings = new Warnings()
  readonly #watches: Watches
  #news: NewsChannel | undefined
  #opening: Promise<void> | undefined
  #listener: ((news: News) => void) | undefined
  #closed = false

  constructor({ wire, prefix, clock, client, durability }: EngineSetup) {
    this.#wire = wire
    this.#clock = clock
    this.#client = client
    this.#names = new RedisNames(wire, prefix)
    this.#rechecks = new RecheckTimer(
      clock,
      () => this.#news === undefined || wire.listen === undefined,
      (key, id) => this.#listener?.({ key, id }),
    )
    const confirmation = durability === undefined ? undefined : new Confirmation(wire, clock, durability)
    this.#confirmation = confirmation
    this.#caller = new ScriptCaller(wire, clock, confirmation && (() => confirmation.asked()))
    const standings = new Standings((key) => this.#names.serverKey(key), {
      waits: (recheck) => this.#rechecks.schedule(recheck),
      waitsNot: (id) => this.#rechecks.forget(id),
      endless: ({ message }) => this.#warnings.tell({ name: 'strangers', finding: message }),
    })
    this.#calls = new Calls({ caller: this.#caller, names: this.#names, standings, client })
    this.#watches = new Watches(clock, (keys, ttlMs) => this.#calls.watch(keys, ttlMs), {
      deaf: wire.listen === undefined,
    })
  }

  // Neither takes a signal: what is sent is sent, and nothing waits long to be.
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    return this.#calls.enter(claims)
  }

  async renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const sentAt = this.#clock.now()
    const standings = await this.#calls.renew(places)
    if (standings.some(({ state }) => state === 'waiting')) this.#news?.expect(sentAt)
    return standings
  }

  leave(places: readonly Departing[]): Promise<readonly boolean[]> {
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

  async *list(prefix: string): AsyncIterable<LineSummary> {
    await this.#caller.connected()
    for await (const page of linesIn(this.#wire, this.#names.serverKey(prefix))) {
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
    void this.#warn()
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
    return await this.#watches.add(key, listener)
  }

  async diagnose(): Promise<readonly Finding[]> {
    await this.#caller.connected()
    return await this.#diagnose({ thorough: true })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#listener = undefined
    this.#rechecks.stop()
    this.#watches.stop()
    await this.#news?.[Symbol.asyncDispose]()
    await this.#wire.close()
  }

  /** Resolves when letters arrive. There is one news, for waiters and observers alike. */
  #opened(): Promise<void> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined
      throw asEngineError(error)
    })
    return this.#opening
  }

  async #open(): Promise<void> {
    await this.#caller.connected()
    const reader = {
      news: (news: News) => this.#heard(news),
      changed: (key: string) => this.#watches.ring(key),
    }
    const news = new NewsChannel(this.#clock, {
      message: (text) => readMessages(text, (K) => this.#names.userKey(K), reader),
      gap: () => this.#heard({ gap: true }),
    })
    if (this.#wire.listen !== undefined) await news.open(this.#wire.listen, RESERVED + this.#client)
    // Until now nobody has told us anything, and waiters had to look.
    this.#news = news
    // Closed meanwhile: nobody else would close it.
    if (this.#closed) await news[Symbol.asyncDispose]()
  }

  #heard(news: News): void {
    if ('id' in news) this.#rechecks.forget(news.id)
    else this.#watches.ringAll()
    // A grant that the replicas have not confirmed is only a hint: the renewal that follows will have it confirmed.
    const unconfirmed = this.#confirmation !== undefined && 'id' in news && news.standing?.state === 'held'
    this.#listener?.(unconfirmed ? { key: news.key, id: news.id } : news)
  }

  async #warn(): Promise<void> {
    if (!this.#warnings.heard) return
    // Whoever cannot ask has nothing to warn of; the locks themselves will tell what is wrong.
    const findings = await this.#diagnose({ thorough: false }).catch(() => [])
    for (const finding of findings) if (finding.status !== 'ok') this.#warnings.tell(finding)
  }

  #diagnose({ thorough }: { readonly thorough: boolean }): Promise<readonly Finding[]> {
    return serverFindings({
      wire: this.#wire,
      prefix: this.#names.serverKey(''),
      replicas: this.#confirmation?.replicas ?? 0,
      thorough,
    })
  }
}
