/**
 * One random trace of contract calls, on the memory engine and on SQLite, with equal answers: what the memory
 * engine answers is right.
 *
 * Tokens differ in number (SQLite begins at the wall clock), so they are compared by rank: the n-th that one gives out
 * is the n-th of the other.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type Dice, dice } from '../../conformance/chance.ts'
import { type Claim, type Engine, type News, UNLIMITED } from '../../src/core/engine.ts'
import { LineFullError } from '../../src/core/errors.ts'
import { sqlite } from '../../src/engines/sqlite/index.ts'
import { type FakeClock, fakeClock, MemoryServer, memory } from '../../src/testing.ts'

const KEYS = ['a', 'A', 'a ', 'á', 'a/b', 'a}b', '{}x', 'a%', 'ab', '\u{1F512}', '\u{10FFFF}', 'a\u{10FFFF}b']
/** Where lines are often empty; some of them look like something else to SQL or JSON. */
const SPARE_KEYS = [
  ...Array.from({ length: 30 }, (_, index) => `k${index}`),
  'q"q',
  'b\\s',
  'tab\t',
  '\u2028',
  '1.0',
  'null',
  '[0]',
  '$.a',
  "o'x",
]
const STEPS = 18_000

let folder: string

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'holdfast-'))
})

afterEach(() => {
  rmSync(folder, { recursive: true })
})

/** The two sides, each with as many clients of one place. */
class Pair {
  readonly clock: FakeClock = fakeClock()
  readonly memories: Engine[]
  readonly files: Engine[]
  readonly news: { memory: News[]; file: News[] } = { memory: [], file: [] }
  /** Tokens of the one, by tokens of the other. */
  readonly #tokens = new Map<bigint, bigint>()
  #latest = { memory: 0n, file: 0n }

  constructor(clients: number) {
    const server = new MemoryServer({ clock: this.clock })
    const file = join(folder, 'locks.db')
    this.memories = Array.from({ length: clients }, () => memory({ server }))
    this.files = Array.from({ length: clients }, () => sqlite({ file, clock: this.clock }))
  }

  async subscribe(): Promise<void> {
    for (const engine of this.memories) await engine.subscribe?.((news) => this.news.memory.push(news))
    for (const engine of this.files) await engine.subscribe?.((news) => this.news.file.push(news))
  }

  #learn(file: bigint, memory: bigint): void {
    const known = this.#tokens.get(file)
    if (known !== undefined) expect(memory).toBe(known)
    else if (memory > this.#latest.memory) {
      expect(file, 'a token goes up').toBeGreaterThan(this.#latest.file)
      this.#latest = { memory, file }
    } else {
      expect(file, 'a token of before').toBeLessThan(this.#latest.file)
    }
    this.#tokens.set(file, memory)
  }

  /**
   * Equal answers, with tokens by rank and errors by class. Since when an entry holds depends on who was there to see
   * the expiry of another, so that is left out.
   */
  same(memory: unknown, file: unknown, step: string): void {
    this.#pairTokens(memory, file)
    expect(
      this.#plain(file, (token) => this.#tokens.get(token)),
      step,
    ).toEqual(this.#plain(memory, (token) => token))
  }

  #pairTokens(memory: unknown, file: unknown): void {
    if (typeof memory !== 'object' || typeof file !== 'object' || memory === null || file === null) return
    for (const name of Object.keys(memory)) {
      const [a, b] = [(memory as Record<string, unknown>)[name], (file as Record<string, unknown>)[name]]
      if (typeof a === 'bigint' && typeof b === 'bigint') this.#learn(b, a)
      else this.#pairTokens(a, b)
    }
  }

  #plain(value: unknown, token: (token: bigint) => bigint | undefined): unknown {
    if (typeof value === 'bigint') return token(value)
    if (value instanceof Error) return value instanceof LineFullError ? `full: ${value.bound}` : value
    if (Array.isArray(value)) return value.map((item) => this.#plain(item, token))
    if (typeof value !== 'object' || value === null) return value
    return Object.fromEntries(
      Object.entries(value).map(([name, item]) => [name, name === 'heldMs' ? item !== null : this.#plain(item, token)]),
    )
  }

  async close(): Promise<void> {
    for (const engine of [...this.memories, ...this.files]) await engine[Symbol.asyncDispose]()
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
    const which = this.#dice.below(this.#pair.memories.length)
    const sides = [this.#pair.memories[which] as Engine, this.#pair.files[which] as Engine] as const
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
    const [ours, theirs] = await this.#both(verb, sides)
    this.#pair.same(ours, theirs, `step ${number}: ${verb}`)
  }

  async #both(verb: string, [ours, theirs]: readonly [Engine, Engine]): Promise<[unknown, unknown]> {
    const key = this.#key()
    switch (verb) {
      case 'enter': {
        const claims = this.#dice.oneIn(3) ? this.#alike() : this.#some(() => this.#claim())
        return [await ours.enter(claims), await theirs.enter(claims)]
      }
      case 'renew': {
        const places = this.#some(() => ({ key: this.#key(), id: this.#dice.pick(this.#ids), ttlMs: this.#ttlMs() }))
        return [await ours.renew(places), await theirs.renew(places)]
      }
      case 'leave': {
        const places = this.#dice.oneIn(2)
          ? await this.#present(ours)
          : this.#some(() => ({ key: this.#key(), id: this.#dice.pick(this.#ids) }))
        return [await ours.leave(places), await theirs.leave(places)]
      }
      case 'evict': {
        const line = [await ours.inspect(key), await theirs.inspect(key)] as const
        this.#pair.same(line[0], line[1], 'before an evict')
        const place = this.#dice.below(line[0].entries.length + 1)
        const how = this.#dice.oneIn(2) ? 'now' : 'expire'
        const tokens = line.map(({ entries }) => entries[place]?.token ?? 0n) as [bigint, bigint]
        return [await ours.evict(key, tokens[0], how), await theirs.evict(key, tokens[1], how)]
      }
      case 'inspect':
        return [await ours.inspect(key), await theirs.inspect(key)]
      case 'list': {
        const prefix = this.#dice.pick(['', 'a', 'á', '\u{10FFFF}', 'a/', 'zz'])
        return [await sorted(ours.list(prefix)), await sorted(theirs.list(prefix))]
      }
      default:
        await this.#pair.clock.advance(this.#dice.oneIn(4) ? this.#dice.below(3000) : this.#dice.below(100))
        return [undefined, undefined]
    }
  }

  #some<Item>(make: () => Item): Item[] {
    return Array.from({ length: 1 + this.#dice.below(this.#dice.oneIn(5) ? 12 : 3) }, make)
  }

  #claim(): Claim {
    const limit = this.#dice.pick([1, 1, 1, 2, 3, 5, UNLIMITED, UNLIMITED])
    const weight = limit === UNLIMITED ? 1 : 1 + this.#dice.below(limit)
    const [key, id, wait] = [this.#key(), this.#dice.pick(this.#ids), !this.#dice.oneIn(4)]
    return { key, id, holder: `holder ${this.#dice.below(9)} é`, weight, limit, ttlMs: this.#ttlMs(), wait }
  }

  /** One claim, for several keys: what SQLite can do with one statement, if their lines are empty. */
  #alike(): Claim[] {
    const claim = { ...this.#claim(), wait: true }
    const keys = new Set(Array.from({ length: 4 + this.#dice.below(8) }, () => this.#dice.pick(SPARE_KEYS)))
    return [...keys].map((key) => ({
      ...claim,
      key,
      id: this.#dice.oneIn(3) ? this.#dice.pick(this.#ids) : this.#dice.id(),
    }))
  }

  /** Some of those who are in line: one of each. */
  async #present(engine: Engine): Promise<{ key: string; id: string }[]> {
    const places: { key: string; id: string }[] = []
    for await (const { key } of engine.list('')) {
      const { entries } = await engine.inspect(key)
      if (!this.#dice.oneIn(3))
        places.push({ key, id: (entries[this.#dice.below(entries.length)] as { id: string }).id })
    }
    return places
  }

  /** Half of everything happens in one line, so that it gets long. */
  #key(): string {
    return this.#dice.oneIn(2) ? 'a' : this.#dice.pick(KEYS)
  }

  #ttlMs(): number {
    return this.#dice.pick([50, 1000, 5000, 20_000])
  }
}

async function sorted(lines: AsyncIterable<{ key: string }>): Promise<unknown[]> {
  const found: { key: string }[] = []
  for await (const line of lines) found.push(line)
  return found.sort((a, b) => (a.key < b.key ? -1 : 1))
}

test.each([1, 2, 3])('SQLite answers as memory does, three clients, seed %i', async (seed) => {
  const pair = new Pair(3)
  const trace = new Trace(seed, pair)
  for (let number = 0; number < STEPS / 3; number += 1) await trace.step(number)
  await pair.close()
})

test.each([4, 5])('SQLite tells its own waiters what memory tells them, seed %i', async (seed) => {
  const pair = new Pair(1)
  await pair.subscribe()
  const trace = new Trace(seed, pair)
  let told = 0
  for (let number = 0; number < 3000; number += 1) {
    await trace.step(number)
    await new Promise(setImmediate)
    const [ours, theirs] = [pair.news.memory.splice(0), pair.news.file.splice(0)]
    pair.same(ours.sort(byId), theirs.sort(byId), `news of step ${number}`)
    told += ours.length
  }
  expect(told).toBeGreaterThan(100)
  await pair.close()
})

function byId(a: News, b: News): number {
  return 'id' in a && 'id' in b ? (a.id + a.key).localeCompare(b.id + b.key) : 0
}
