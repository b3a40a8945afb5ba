/**
 * One random trace of contract calls, on the memory engine and on Redis, with equal answers: whatever memory.ts says is what the scripts have to say too.
 *
 * The server's clock stands still and is moved by the test, together with that of the memory engine, so that expiry is part of the trace. Tokens differ in
 * number, so they are compared by rank: the n-th that one gives out is the n-th of the other.
 */
import { afterAll, expect, test } from 'vitest'
import { type Dice, dice } from '../../conformance/chance.ts'
import { type Claim, type Engine, UNLIMITED } from '../../src/core/engine.ts'
import { LineFullError } from '../../src/core/errors.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { type FakeClock, fakeClock, MemoryServer, memory } from '../../src/testing.ts'
import type { ServerClock } from '../servers/clock.ts'
import { Clockwork } from '../servers/clockwork.ts'
import { describeServer } from '../servers/suite.ts'

const KEYS = ['a', 'A', 'a ', 'á', 'a/b', 'a}b', '{}x', '{x}', 'x', 'a%', 'ab', '\u{1F512}']
const CLIENTS = 3
const STEPS = 4000

/** The two sides, each with as many clients of one place. */
class Pair implements AsyncDisposable {
  readonly clock: FakeClock = fakeClock()
  readonly memories: readonly Engine[]
  readonly redises: readonly Engine[]
  readonly #serverClock: ServerClock
  /** Tokens of the one, by tokens of the other. */
  readonly #tokens = new Map<bigint, bigint>()
  #latest = { memory: 0n, redis: 0n }

  static async make({ clock, server }: Clockwork, prefix: string): Promise<Pair> {
    return new Pair(clock, await Promise.all(Array.from({ length: CLIENTS }, () => openRedis(server.url, { prefix }))))
  }

  private constructor(serverClock: ServerClock, redises: readonly Engine[]) {
    const server = new MemoryServer({ clock: this.clock })
    this.#serverClock = serverClock
    this.memories = redises.map(() => memory({ server }))
    this.redises = redises
  }

  async advance(ms: number): Promise<void> {
    await this.clock.advance(ms)
    this.#serverClock.advance(ms)
  }

  /** Equal answers, with tokens by rank and errors by class. Since when somebody holds depends on who was there to see the expiry of another, so that is left out. */
  same(memory: unknown, redis: unknown, step: string): void {
    this.#pairTokens(memory, redis)
    expect(
      this.#plain(redis, (token) => this.#tokens.get(token)),
      step,
    ).toEqual(this.#plain(memory, (token) => token))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.memories, ...this.redises].map((engine) => engine[Symbol.asyncDispose]()))
  }

  #pairTokens(memory: unknown, redis: unknown): void {
    if (typeof memory !== 'object' || typeof redis !== 'object' || memory === null || redis === null) return
    for (const name of Object.keys(memory)) {
      const [a, b] = [(memory as Record<string, unknown>)[name], (redis as Record<string, unknown>)[name]]
      if (typeof a === 'bigint' && typeof b === 'bigint') this.#learn(b, a)
      else this.#pairTokens(a, b)
    }
  }

  #learn(redis: bigint, memory: bigint): void {
    const known = this.#tokens.get(redis)
    if (known !== undefined) expect(memory).toBe(known)
    else if (memory > this.#latest.memory) {
      expect(redis, 'a token goes up').toBeGreaterThan(this.#latest.redis)
      this.#latest = { memory, redis }
    } else {
      expect(redis, 'a token of before').toBeLessThan(this.#latest.redis)
    }
    this.#tokens.set(redis, memory)
  }

  #plain(value: unknown, token: (token: bigint) => bigint | undefined): unknown {
    if (typeof value === 'bigint') return token(value)
    if (value instanceof Error) return value instanceof LineFullError ? `full: ${value.bound}` : value
    if (Array.isArray(value)) return value.map((item) => this.#plain(item, token))
    if (typeof value !== 'object' || value === null) return value
    const fields = Object.entries(value).map(([name, item]) => {
      if (name === 'heldMs') return [name, item !== null]
      return [name, name === 'ageMs' ? Math.round(item as number) : this.#plain(item, token)]
    })
    return Object.fromEntries(fields)
  }
}

/** Ids are drawn from a few, so that claims of known, gone and evicted ids are as common as fresh ones. */
class Trace {
  readonly #dice: Dice
  readonly #pair: Pair
  readonly #ids: string[]

  constructor(seed: number, pair: Pair) {
    this.#dice = dice(seed)
    this.#pair = pair
    this.#ids = Array.from({ length: 40 }, () => this.#dice.id())
  }

  async step(number: number): Promise<void> {
    const which = this.#dice.below(CLIENTS)
    const [memory, redis] = [this.#pair.memories[which] as Engine, this.#pair.redises[which] as Engine]
    const verb = this.#dice.pick(['enter', 'enter', 'enter', 'renew', 'leave', 'leave', 'evict', 'inspect', 'list', 'time'] as const)
    const ask = await this.#question(verb, memory, redis)
    this.#pair.same(await ask(memory), await ask(redis), `step ${number}: ${verb}`)
  }

  /** Something to ask both sides. */
  async #question(verb: string, memory: Engine, redis: Engine): Promise<(engine: Engine) => Promise<unknown>> {
    const key = this.#dice.pick(KEYS)
    switch (verb) {
      case 'enter': {
        const claims = this.#some(() => this.#claim())
        return (engine) => engine.enter(claims)
      }
      case 'renew': {
        const places = this.#some(() => ({ key: this.#dice.pick(KEYS), id: this.#dice.pick(this.#ids), ttlMs: this.#ttlMs() }))
        return (engine) => engine.renew(places)
      }
      case 'leave': {
        const places = this.#some(() => ({ key: this.#dice.pick(KEYS), id: this.#dice.pick(this.#ids) }))
        return (engine) => engine.leave(places)
      }
      case 'evict': {
        const lines = new Map([
          [memory, await memory.inspect(key)],
          [redis, await redis.inspect(key)],
        ])
        const place = this.#dice.below((lines.get(memory)?.entries.length ?? 0) + 1)
        const how = this.#dice.oneIn(2) ? 'now' : 'expire'
        return (engine) => engine.evict(key, lines.get(engine)?.entries[place]?.token ?? 0n, how)
      }
      case 'inspect':
        return (engine) => engine.inspect(key)
      case 'list': {
        const prefix = this.#dice.pick(['', 'a', 'á', '\u{1F512}', 'a/', '{', 'zz'])
        return (engine) => sorted(engine.list(prefix))
      }
      default:
        // Times are whole tens of milliseconds and ttls are not, so that nothing expires in the very moment of a call: there the two differ by definition.
        await this.#pair.advance(10 * this.#dice.below(this.#dice.oneIn(4) ? 300 : 10))
        return async () => undefined
    }
  }

  #some<Item>(make: () => Item): Item[] {
    return Array.from({ length: 1 + this.#dice.below(this.#dice.oneIn(5) ? 12 : 3) }, make)
  }

  #claim(): Claim {
    const limit = this.#dice.pick([1, 1, 1, 2, 3, 11, UNLIMITED, UNLIMITED])
    const weight = limit === UNLIMITED ? 1 : 1 + this.#dice.below(limit)
    const [key, id, wait] = [this.#dice.pick(KEYS), this.#dice.pick(this.#ids), !this.#dice.oneIn(4)]
    return { key, id, holder: `holder ${this.#dice.below(9)} é`, weight, limit, ttlMs: this.#ttlMs(), wait }
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

/** Which keys would stay if everybody died now. */
async function endless({ server }: Clockwork): Promise<readonly string[]> {
  await using client = await server.connect()
  const found: string[] = []
  for (const key of (await client.command('KEYS', '*')) as string[]) if ((await client.command('PTTL', key)) === -1) found.push(key)
  return found
}

await describeServer('Redis under a clock of ours', Clockwork.start, (works) => {
  afterAll(() => works[Symbol.asyncDispose]())

  test.each([1, 2, 3, 4])('answers as memory does, three clients, seed %i', async (seed) => {
    await using pair = await Pair.make(works, `seed ${seed}:`)
    const trace = new Trace(seed, pair)
    for (let number = 0; number < STEPS; number += 1) {
      await trace.step(number)
      if (number % 50 === 0) expect(await endless(works), `step ${number}: keys that never expire`).toEqual(['hf1:counter'])
    }
  })
})
