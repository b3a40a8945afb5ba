/**
 * One random trace of contract calls, on the memory engine and on another one, with equal answers: what the
 * memory engine answers is right.
 *
 * The other's server has a clock that stands still and is moved by the trace, together with that of the memory engine,
 * so that expiry is part of it. Tokens differ in number, so they are compared by rank: of each key, the n-th that one
 * gives out is the n-th of the other.
 */
import { expect } from 'vitest'
import { type Dice, dice } from '../../conformance/chance.ts'
import { type Claim, type Engine, type EntryName, type Place, UNLIMITED } from '../../src/core/engine.ts'
import { LineFullError } from '../../src/core/errors.ts'
import { type FakeClock, fakeClock, MemoryServer, memory } from '../../src/testing.ts'
import type { ServerClock } from '../servers/clock.ts'

const KEYS = ['a', 'A', 'a ', 'á', 'a/b', 'a}b', '{}x', '"x"', 'x\\', 'a%', 'ab', '\u{1F512}', 'NULL']

/**
 * The clock is moved by whole ticks, and a ttl is some ticks and a half, so that nothing expires in the very moment of
 * a call: there the two sides differ by definition. What is less than half a tick is not compared: where time stands
 * still, MariaDB counts a microsecond for each statement of a connection.
 */
const TICK_MS = 10

interface Rank {
  /** Tokens of the one, by tokens of the other. */
  readonly tokens: Map<bigint, bigint>
  latest: { readonly memory: bigint; readonly other: bigint }
}

/** The two sides, each with as many clients of one place. */
export class Pair implements AsyncDisposable {
  readonly clock: FakeClock = fakeClock()
  readonly memories: readonly Engine[]
  readonly others: readonly Engine[]
  readonly #serverClock: ServerClock
  readonly #ranks = new Map<string, Rank>()

  constructor(serverClock: ServerClock, others: readonly Engine[]) {
    const server = new MemoryServer({ clock: this.clock })
    this.#serverClock = serverClock
    this.memories = others.map(() => memory({ server }))
    this.others = others
  }

  async advance(ms: number): Promise<void> {
    await this.clock.advance(ms)
    this.#serverClock.advance(ms)
  }

  /**
   * Equal answers, with tokens by rank and errors by class; `keys` says what each of several answers is about. Since
   * when an entry holds depends on who was there to see the expiry of another, so that is left out.
   */
  same(memory: unknown, other: unknown, step: string, keys?: readonly string[]): void {
    expect(
      this.#plain(other, keys, (key, token) => this.#rankOf(key).tokens.get(token) ?? token),
      step,
    ).toEqual(this.#plain(memory, keys, (_, token) => token))
  }

  /** To be called before: which token of the other is which of memory's. */
  learn(memory: unknown, other: unknown, keys?: readonly string[]): void {
    const found: [string, bigint][] = []
    this.#plain(memory, keys, (key, token) => found.push([key, token]))
    this.#plain(other, keys, (key, token) => {
      const [, ours] = found.shift() ?? []
      if (ours !== undefined) this.#pair(key, ours, token)
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.memories, ...this.others].map((engine) => engine[Symbol.asyncDispose]()))
  }

  #rankOf(key: string): Rank {
    const rank = this.#ranks.get(key) ?? { tokens: new Map(), latest: { memory: 0n, other: 0n } }
    this.#ranks.set(key, rank)
    return rank
  }

  #pair(key: string, memory: bigint, other: bigint): void {
    const rank = this.#rankOf(key)
    if (rank.tokens.has(other)) return
    if (memory > rank.latest.memory) {
      expect(other, 'a token goes up').toBeGreaterThan(rank.latest.other)
      rank.latest = { memory, other }
    } else {
      expect(other, 'a token of before').toBeLessThan(rank.latest.other)
    }
    rank.tokens.set(other, memory)
  }

  #plain(
    value: unknown,
    keys: readonly string[] | undefined,
    token: (key: string, token: bigint) => unknown,
    key = '',
  ): unknown {
    if (typeof value === 'bigint') return token(key, value)
    if (value instanceof Error) return value instanceof LineFullError ? `full: ${value.bound}` : value
    if (Array.isArray(value))
      return value.map((item, index) => this.#plain(item, undefined, token, keys?.[index] ?? key))
    if (typeof value !== 'object' || value === null) return value
    const own = 'key' in value ? String(value.key) : key
    const fields = Object.entries(value).map(([name, item]) => {
      if (name === 'heldMs') return [name, item !== null]
      if (name === 'ageMs') return [name, Math.round(Number(item) / TICK_MS)]
      return [
        name,
        name === 'remainingMs' ? Math.ceil(Number(item) / TICK_MS) : this.#plain(item, undefined, token, own),
      ]
    })
    return Object.fromEntries(fields)
  }
}

interface Question {
  readonly keys?: readonly string[]
  ask(engine: Engine): Promise<unknown>
}

const RECENT = 12

/** Ids are drawn from a few, so that claims of known, gone and evicted ids are as common as fresh ones. */
export class Trace {
  readonly #dice: Dice
  readonly #pair: Pair
  readonly #ids: string[]
  #recent: EntryName[]

  constructor(seed: number, pair: Pair) {
    this.#dice = dice(seed)
    this.#pair = pair
    this.#ids = Array.from({ length: 40 }, () => this.#dice.id())
    this.#recent = this.#ids.map((id) => ({ key: this.#dice.pick(KEYS), id }))
  }

  async step(number: number): Promise<void> {
    const which = this.#dice.below(this.#pair.others.length)
    const [memory, other] = [this.#pair.memories[which] as Engine, this.#pair.others[which] as Engine]
    const verb = this.#dice.pick([
      'enter',
      'enter',
      'enter',
      'renew',
      'leave',
      'leave',
      'evict',
      'inspect',
      'list',
      'time',
    ] as const)
    const { ask, keys } = await this.#question(verb, memory, other)
    const [expected, found] = [await ask(memory), await ask(other)]
    this.#pair.learn(expected, found, keys)
    this.#pair.same(expected, found, `step ${number}: ${verb}`, keys)
  }

  /** Something to ask both sides. */
  async #question(verb: string, memory: Engine, other: Engine): Promise<Question> {
    const key = this.#dice.pick(KEYS)
    switch (verb) {
      case 'enter': {
        const claims = this.#some(() => this.#claim())
        return { keys: claims.map((claim) => claim.key), ask: (engine) => engine.enter(claims) }
      }
      case 'renew': {
        const places = this.#some(() => this.#place())
        return { keys: places.map((place) => place.key), ask: (engine) => engine.renew(places) }
      }
      case 'leave': {
        const places = this.#some(() => this.#known())
        return { ask: (engine) => engine.leave(places) }
      }
      case 'evict': {
        const lines = new Map([
          [memory, await memory.inspect(key)],
          [other, await other.inspect(key)],
        ])
        const place = this.#dice.below((lines.get(memory)?.entries.length ?? 0) + 1)
        const how = this.#dice.oneIn(2) ? 'now' : 'expire'
        return { ask: (engine) => engine.evict(key, lines.get(engine)?.entries[place]?.token ?? 0n, how) }
      }
      case 'inspect':
        return { ask: (engine) => engine.inspect(key) }
      case 'list': {
        const prefix = this.#dice.pick(['', 'a', 'á', '\u{1F512}', 'a/', '{', 'zz'])
        return { ask: (engine) => sorted(engine.list(prefix)) }
      }
      default:
        await this.#pair.advance(TICK_MS * this.#dice.below(this.#dice.oneIn(4) ? 300 : 10))
        return { ask: async () => undefined }
    }
  }

  #some<Item>(make: () => Item): Item[] {
    return Array.from({ length: 1 + this.#dice.below(this.#dice.oneIn(5) ? 12 : 3) }, make)
  }

  #claim(): Claim {
    const limit = this.#dice.pick([1, 1, 1, 2, 3, 5, UNLIMITED, UNLIMITED])
    const weight = limit === UNLIMITED ? 1 : 1 + this.#dice.below(limit)
    const [key, id, wait] = [this.#dice.pick(KEYS), this.#dice.pick(this.#ids), !this.#dice.oneIn(4)]
    this.#recent = [...this.#recent.slice(-RECENT), { key, id }]
    return { key, id, holder: `holder ${this.#dice.below(9)} é"\\,{}`, weight, limit, ttlMs: this.#ttlMs(), wait }
  }

  #place(): Place {
    const place = { ...this.#known(), ttlMs: this.#ttlMs() }
    return this.#dice.oneIn(4) ? { ...place, outlives: true } : place
  }

  /** Mostly an entry that has asked to enter not long ago. */
  #known(): EntryName {
    return this.#dice.oneIn(3)
      ? { key: this.#dice.pick(KEYS), id: this.#dice.pick(this.#ids) }
      : this.#dice.pick(this.#recent)
  }

  #ttlMs(): number {
    return this.#dice.pick([55, 105, 1005, 5005])
  }
}

async function sorted(lines: AsyncIterable<{ key: string }>): Promise<unknown[]> {
  const found: { key: string }[] = []
  for await (const line of lines) found.push(line)
  return found.sort((a, b) => (a.key < b.key ? -1 : 1))
}
