/**
 * The engine: the verbs of the contract, each one script call for a whole batch (in Cluster one for each slot, sent together).
 *
 * What a line is, and every decision about it, is in lua/. Here batches are packed, answers unpacked, and waiters kept an eye on.
 */
import type { Clock } from '../../core/clock.ts'
import type { Claim, Engine, Line, LineSummary, News, Place, Standing, Traits } from '../../core/engine.ts'
import { EngineError } from '../../core/errors.ts'
import { Caller } from './caller.ts'
import { ENGINE, fault } from './faults.ts'
import { Letterbox } from './letterbox.ts'
import { Lookout } from './lookout.ts'
import { counterKey, RESERVED, siblings, slotOf } from './names.ts'
import { departures, inspected, LINE_BOUND, Standings } from './replies.ts'
import { enterArguments, renewArguments } from './requests.ts'
import { linesIn } from './scan.ts'
import { enter, evict, inspect, leave, renew, type Script } from './scripts.ts'
import type { Wire } from './wires/wire.ts'

const traits: Traits = {
  order: 'fifo',
  fencing: true,
  sharing: true,
  ttl: 'entry',
  minTtlMs: 10,
  lossBeforeNext: true,
  lineBound: LINE_BOUND,
  batchLimit: 500,
  overlaps: true,
  tokensSurvive:
    'release, expiry, deletion, FLUSHALL, restart and fail-over, as long as the clock of the server that goes on is not behind the last token',
  survives:
    'the death of any client; with persistence, restarts of the server; a fail-over can lose locks, since replication is asynchronous',
}

export interface EngineSetup {
  readonly wire: Wire
  readonly prefix: string
  readonly clock: Clock
  /** What scripts call us: the name of our channel. */
  readonly client: string
}

type Item = Pick<Place, 'key' | 'id'>

export class RedisEngine implements Engine {
  readonly name: string = ENGINE
  readonly traits: Traits = traits
  readonly #wire: Wire
  readonly #prefix: string
  readonly #clock: Clock
  readonly #client: string
  readonly #caller: Caller
  readonly #standings: Standings
  readonly #lookout: Lookout
  #letterbox: Letterbox | undefined
  #listener: ((news: News) => void) | undefined

  constructor({ wire, prefix, clock, client }: EngineSetup) {
    this.#wire = wire
    this.#prefix = prefix
    this.#clock = clock
    this.#client = client
    this.#caller = new Caller(wire, clock)
    this.#lookout = new Lookout(clock, (key, id) => this.#listener?.({ key, id }))
    this.#standings = new Standings(
      (key) => this.#fullK(key),
      (patience) => this.#lookout.waits(patience),
    )
  }

  // Neither takes a signal: what is sent is sent, and nothing waits long to be.
  enter(claims: readonly Claim[]): Promise<readonly Standing[]> {
    if (!this.#wire.cluster) return this.#enter(claims)
    return this.#eachSlot(claims, (some, slot) => this.#enter(some, slot), refused)
  }

  renew(places: readonly Place[]): Promise<readonly Standing[]> {
    if (!this.#wire.cluster) return this.#renew(places)
    return this.#eachSlot(places, (some) => this.#renew(some), refused)
  }

  leave(places: readonly Item[]): Promise<readonly boolean[]> {
    if (!this.#lookout.idle) for (const { id } of places) this.#lookout.forget(id)
    if (!this.#wire.cluster) return this.#leave(places)
    return this.#eachSlot(places, (some) => this.#leave(some))
  }

  async evict(key: string, token: bigint, how: 'expire' | 'now'): Promise<boolean> {
    return Number(await this.#call(evict, [{ key }], [String(token), how])) === 1
  }

  async inspect(key: string): Promise<Line> {
    const { entries } = inspected(await this.#call(inspect, [{ key }], ['all']), this.#fullK(key))
    return { key, entries }
  }

  async *list(prefix: string): AsyncIterable<LineSummary> {
    await this.#caller.connected()
    for await (const page of linesIn(this.#wire, this.#fullK(prefix))) {
      const lines = await Promise.all(page.map((K) => this.#count(this.#keyOf(K))))
      yield* lines.filter(({ held, waiting }) => held + waiting > 0)
    }
  }

  async subscribe(listener: (news: News) => void): Promise<AsyncDisposable> {
    await this.#caller.connected()
    const letterbox = new Letterbox(
      this.#clock,
      (K) => this.#keyOf(K),
      (news) => {
        if ('id' in news) this.#lookout.forget(news.id)
        this.#listener?.(news)
      },
    )
    this.#listener = listener
    try {
      await letterbox.open(this.#wire, RESERVED + this.#client)
    } catch (error) {
      throw fault(error)
    }
    this.#letterbox = letterbox
    this.#lookout.deaf = this.#wire.listen === undefined
    return { [Symbol.asyncDispose]: () => this.#unsubscribe() }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#unsubscribe()
    await this.#wire.close()
  }

  async #unsubscribe(): Promise<void> {
    this.#listener = undefined
    this.#lookout.stop()
    await this.#letterbox?.[Symbol.asyncDispose]()
  }

  async #count(key: string): Promise<LineSummary> {
    const { held, waiting } = inspected(await this.#call(inspect, [{ key }], ['count']), this.#fullK(key))
    return { key, held, waiting }
  }

  // ---- calling ----

  async #enter(claims: readonly Claim[], slot?: number): Promise<readonly Standing[]> {
    const args = enterArguments(claims, this.#client)
    if (args === undefined) return await halves(claims, (half) => this.#enter(half, slot))
    const reply = await this.#call(enter, claims, args, counterKey(slot))
    const standings = this.#standings.entered(reply, claims)
    this.#forgetAllBut(claims, standings)
    return standings
  }

  async #renew(places: readonly Place[]): Promise<readonly Standing[]> {
    const args = renewArguments(places)
    if (args === undefined) return await halves(places, (half) => this.#renew(half))
    const sentAt = this.#clock.now()
    const standings = this.#standings.renewed(await this.#call(renew, places, args), places)
    this.#forgetAllBut(places, standings)
    if (standings.some(({ state }) => state === 'waiting')) this.#letterbox?.expect(sentAt)
    return standings
  }

  async #leave(places: readonly Item[]): Promise<readonly boolean[]> {
    const ids = places.map(({ id }) => id)
    return departures(await this.#call(leave, places, ids), places.length)
  }

  #call(
    script: Script,
    items: readonly (Pick<Place, 'key'> & { readonly ttlMs?: number })[],
    args: readonly string[],
    counter?: string,
  ): Promise<unknown> {
    const words = ['', '']
    if (counter !== undefined) words.push(counter)
    for (const { key } of items) {
      words.push(this.#prefix + key)
      // Outside Cluster the scripts make the other names themselves.
      if (this.#wire.cluster) words.push(...siblings(this.#fullK(key)))
    }
    words[1] = String(words.length - 2)
    for (const arg of args) words.push(arg)
    // A lease that is soon over is not helped by what comes too late.
    return this.#caller.call(script, words, words[2] as string, (items[0]?.ttlMs ?? Number.POSITIVE_INFINITY) / 3)
  }

  /** One call for each slot, at the same time. A slot that fails leaves the others alone where `refused` can say so. */
  async #eachSlot<One extends Pick<Place, 'key'>, Answer>(
    items: readonly One[],
    call: (items: readonly One[], slot: number) => Promise<readonly Answer[]>,
    refused?: (error: EngineError) => Answer,
  ): Promise<readonly Answer[]> {
    const bySlot = new Map<number, number[]>()
    for (const [index, { key }] of items.entries()) {
      const slot = slotOf(this.#fullK(key))
      bySlot.set(slot, [...(bySlot.get(slot) ?? []), index])
    }
    const answers: Answer[] = new Array(items.length)
    const calls = [...bySlot].map(async ([slot, indices]) => {
      const some = indices.map((index) => items[index] as One)
      const found = await call(some, slot).catch((error: unknown) => {
        if (refused === undefined || !(error instanceof EngineError)) throw error
        return some.map(() => refused(error))
      })
      for (const [at, index] of indices.entries()) answers[index] = found[at] as Answer
    })
    await Promise.all(calls)
    return answers
  }

  #forgetAllBut(items: readonly Item[], standings: readonly Standing[]): void {
    if (this.#lookout.idle) return
    for (const [index, { id }] of items.entries()) if (standings[index]?.state !== 'waiting') this.#lookout.forget(id)
  }

  /** K as the server sees it. */
  #fullK(key: string): string {
    return this.#wire.keyPrefix + this.#prefix + key
  }

  #keyOf(K: string): string {
    return K.slice(this.#wire.keyPrefix.length + this.#prefix.length)
  }
}

function refused(error: EngineError): Standing {
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
