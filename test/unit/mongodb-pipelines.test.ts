/**
 * The line as update pipelines does what the memory engine does, in random traces of everything that changes a line.
 * The pipelines are evaluated by `mingo`, without any server; on a server the same is shown in
 * test/engines/mongodb.test.ts.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Dice, dice } from '../../conformance/chance.ts'
import { type Claim, type Place, type Standing, UNLIMITED } from '../../src/core/engine.ts'
import {
  enteredStandings,
  hasEvicted,
  type LineDocument,
  leaveAnswersOf,
  lineOf,
  newsIn,
  renewedStandings,
  type ShownLine,
  tokenOf,
} from '../../src/engines/mongodb/codec.ts'
import { enterPipeline, evictPipeline, leavePipeline, renewPipeline } from '../../src/engines/mongodb/pipelines.ts'
import { type FakeClock, fakeClock, MemoryServer } from '../../src/testing.ts'
import { MingoLines } from './mongodb-lines.ts'

const ENGINE = 'e'.repeat(32)
const KEYS = ['a', '$token', '$$NOW']
const TRACES = 10 * Number(process.env.HOLDFAST_ROUNDS ?? 1)
const STEPS = 120

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 1) })
})
afterEach(() => {
  vi.useRealTimers()
})

const noRecheck = (): void => undefined
const claimOf = (key: string, id: string, more: Partial<Claim> = {}): Claim => ({
  ...{ key, id, holder: 'h', weight: 1, limit: 1, ttlMs: 1000, wait: true },
  ...more,
})

/** The same calls on both, one line at a time. */
class Trace {
  readonly #dice: Dice
  readonly #clock: FakeClock = fakeClock()
  readonly #memory = new MemoryServer({ clock: this.#clock })
  readonly #lines = new MingoLines()
  readonly #ids: readonly string[]
  /** By key: the highest token so far. */
  readonly #highest = new Map<string, bigint>()

  constructor(seed: number) {
    this.#dice = dice(seed)
    this.#ids = Array.from({ length: 12 }, (_, index) => (index === 0 ? '$$NOW' : this.#dice.id()))
  }

  async step(): Promise<void> {
    const key = this.#dice.pick(KEYS)
    const roll = this.#dice.below(10)
    if (roll < 4) this.#enter(key)
    else if (roll < 5) this.#renew(key)
    else if (roll < 7) this.#leave(key)
    else if (roll < 8) this.#evict(key)
    else await this.#advance(this.#dice.below(400))
    for (const each of KEYS) this.#compare(each)
  }

  async #advance(ms: number): Promise<void> {
    await this.#clock.advance(ms + 1)
    vi.advanceTimersByTime(ms + 1)
  }

  #enter(key: string): void {
    const claims = this.#claims(key)
    const expected = this.#memory.enter(claims, { listener: undefined })
    const stored = this.#change(key, enterPipeline(claims, ENGINE), true)
    sameStandings(enteredStandings(stored as LineDocument, claims, noRecheck), expected)
  }

  #renew(key: string): void {
    const places = this.#some((): Place => {
      const place = { key, id: this.#dice.pick(this.#ids), ttlMs: this.#ttlMs() }
      return this.#dice.oneIn(4) ? { ...place, outlives: true } : place
    }, 3)
    const expected = this.#memory.renew(places)
    const stored = this.#change(key, renewPipeline(places), false)
    sameStandings(renewedStandings(stored, places, noRecheck), expected)
  }

  #leave(key: string): void {
    const ids = this.#some(() => this.#dice.pick(this.#ids), 3)
    const expected = this.#memory.leave(ids.map((id) => ({ key, id })))
    expect(leaveAnswersOf(this.#change(key, leavePipeline(ids), false), ids)).toEqual(expected)
  }

  #evict(key: string): void {
    const [memory, other] = [this.#memory.inspect(key), this.#inspect(key)]
    const place = this.#dice.below(memory.entries.length + 1)
    const how = this.#dice.oneIn(2) ? 'now' : 'expire'
    const expected = this.#memory.evict(key, memory.entries[place]?.token ?? 0n, how)
    const stored = this.#change(key, evictPipeline(other.entries[place]?.token ?? 0n, how), false)
    expect(hasEvicted(stored)).toBe(expected)
  }

  #compare(key: string): void {
    const [expected, found] = [this.#memory.inspect(key), this.#inspect(key)]
    const shape = ({ entries }: typeof expected): unknown =>
      entries.map((entry) => ({ ...entry, token: undefined, heldMs: undefined, holds: entry.heldMs !== null }))
    expect(shape(found)).toEqual(shape(expected))
    const tokens = found.entries.map(({ token }) => token as bigint)
    expect(tokens).toEqual([...tokens].sort((a, b) => (a < b ? -1 : 1)))
  }

  #inspect(key: string): ReturnType<typeof lineOf> {
    const stored = this.#lines.documents.get(key) as unknown as ShownLine | undefined
    return lineOf(key, stored && { ...stored, now: new Date() })
  }

  /** Change the line; new entries have tokens above all before, and a waiter that begins to hold is told of. */
  #change(key: string, pipeline: ReturnType<typeof enterPipeline>, upsert: boolean): LineDocument | undefined {
    const before = this.#lines.documents.get(key) as unknown as LineDocument | undefined
    const after = this.#lines.change(key, pipeline, { upsert }) as unknown as LineDocument | undefined
    if (after === undefined) return undefined
    const waited = new Set(before?.entries.filter(({ since }) => since === null).map(({ token }) => tokenOf(token)))
    const known = new Set(before?.entries.map(({ token }) => tokenOf(token)))
    const highest = this.#highest.get(key) ?? 0n
    for (const token of after.entries.map((entry) => tokenOf(entry.token))) {
      if (known.has(token)) continue
      expect(token).toBeGreaterThan(highest)
      this.#highest.set(key, token)
    }
    const began = after.entries.filter(({ since }) => since !== null).map(({ token }) => tokenOf(token))
    const told = newsIn(key, after.news, ENGINE).flatMap((news) =>
      'id' in news && news.standing?.state === 'held' ? [news.standing.token as bigint] : [],
    )
    // One that begins to hold and is evicted in the same moment is told both.
    const isThere = (token: bigint): boolean => after.entries.some((entry) => tokenOf(entry.token) === token)
    expect(told.filter((token) => waited.has(token) && isThere(token))).toEqual(
      began.filter((token) => waited.has(token)),
    )
    return after
  }

  /** Of one entry there is one claim, but it may be asked for twice. */
  #claims(key: string): Claim[] {
    const claims = new Map<string, Claim>()
    return this.#some(
      () => {
        const claim = this.#claim(key)
        const asked = claims.get(claim.id) ?? claim
        claims.set(claim.id, asked)
        return asked
      },
      this.#dice.oneIn(10) ? 40 : 3,
    )
  }

  #claim(key: string): Claim {
    const limit = this.#dice.pick([1, 1, 2, 3, 5, UNLIMITED])
    const weight = limit === UNLIMITED ? 1 : 1 + this.#dice.below(limit)
    const more = { holder: this.#dice.pick(['$e.id', 'é"\\', 'h']), weight, limit, ttlMs: this.#ttlMs() }
    return claimOf(key, this.#dice.pick(this.#ids), { ...more, wait: !this.#dice.oneIn(4) })
  }

  #some<Item>(make: () => Item, most: number): Item[] {
    return Array.from({ length: 1 + this.#dice.below(most) }, make)
  }

  #ttlMs(): number {
    return this.#dice.pick([55, 105, 1005])
  }
}

/** Tokens are compared elsewhere; `ahead` only where both sides count. */
function sameStandings(found: readonly Standing[], expected: readonly Standing[]): void {
  const plain = (standings: readonly Standing[], others: readonly Standing[]): unknown =>
    standings.map((standing, index) => {
      const other = others[index]
      if (standing.state === 'held') return { state: 'held', heldForMs: standing.heldForMs }
      if (!('ahead' in standing)) return standing
      const counted = standing.ahead !== null && other !== undefined && 'ahead' in other && other.ahead !== null
      return { state: standing.state, ahead: counted ? standing.ahead : undefined }
    })
  expect(plain(found, expected)).toEqual(plain(expected, found))
}

describe('the line as update pipelines', () => {
  test('is equal to the memory engine in random traces', async () => {
    for (let seed = 1; seed <= TRACES; seed += 1) {
      const trace = new Trace(seed)
      for (let step = 1; step <= STEPS; step += 1) {
        try {
          await trace.step()
        } catch (error) {
          throw new Error(`seed ${seed}, step ${step}: ${(error as Error).message}`, { cause: error })
        }
      }
    }
  })

  test('takes as many entries as its bound, and then no more', () => {
    const lines = new MingoLines()
    const claims = ['1', '2', '3'].map((id) => claimOf('k', id))
    const stored = lines.change('k', enterPipeline(claims, ENGINE, 2), { upsert: true }) as unknown as LineDocument
    expect(stored.entries.map(({ id }) => id)).toEqual(['1', '2'])
  })

  test('keeps the last token of an empty line, and goes on above it when the clock was set back', () => {
    const lines = new MingoLines()
    const enter = (id: string): bigint => {
      const stored = lines.change('k', enterPipeline([claimOf('k', id)], ENGINE), { upsert: true })
      return tokenOf((stored as unknown as LineDocument).entries[0]?.token ?? 0)
    }
    const first = enter('1')
    lines.change('k', leavePipeline(['1']), { upsert: false })
    vi.setSystemTime(Date.now() - 86_400_000)
    expect(enter('2')).toBe(first + 1n)
  })

  test('a renewal that began early and is applied late cuts no entry short that was renewed since', () => {
    const lines = new MingoLines()
    const expiries = (pipeline: ReturnType<typeof renewPipeline>): number[] => {
      const stored = lines.change('k', pipeline, { upsert: true }) as unknown as LineDocument
      return stored.entries.map(({ expires_at }) => expires_at.getTime())
    }
    const began = Date.now()
    const claims = ['1', '2'].map((id) => claimOf('k', id))
    expiries(enterPipeline(claims, ENGINE))
    vi.setSystemTime(began + 400)
    const renewed = expiries(renewPipeline(claims))
    expect(renewed).toEqual([began + 1400, began + 1400])
    // `$$NOW` is when a command began. These have waited in the server.
    vi.setSystemTime(began + 100)
    expect(expiries(renewPipeline(claims.slice(0, 1)))).toEqual(renewed)
    expect(expiries(renewPipeline(claims))).toEqual(renewed)
    expect(expiries(enterPipeline(claims, ENGINE))).toEqual(renewed)
  })

  test('a clock that was set back far makes no entry live longer than its ttl once it is renewed', () => {
    const lines = new MingoLines()
    const claim = claimOf('k', '1')
    lines.change('k', enterPipeline([claim], ENGINE), { upsert: true })
    vi.setSystemTime(Date.now() - 3_600_000)
    const stored = lines.change('k', renewPipeline([claim]), { upsert: false }) as unknown as LineDocument
    expect(stored.entries[0]?.expires_at.getTime()).toBe(Date.now() + claim.ttlMs)
  })

  test('leaves alone what a newer version has written', () => {
    const lines = new MingoLines()
    const newer = { _id: 'k', format: 2, what: 'ever' }
    lines.documents.set('k', newer)
    for (const pipeline of [
      enterPipeline([claimOf('k', '1')], ENGINE),
      renewPipeline([claimOf('k', '1')]),
      leavePipeline(['1']),
      evictPipeline(1n, 'now'),
    ])
      expect(lines.change('k', pipeline, { upsert: true })).toEqual(newer)
  })

  test('may be taken away by the TTL index an hour after its last entry has expired, and not before', () => {
    const lines = new MingoLines()
    const hour = 3_600_000
    for (const ttlMs of [1000, 10_000_000, 1000]) {
      const stored = lines.change('k', enterPipeline([claimOf('k', '1', { ttlMs })], ENGINE), { upsert: true })
      const { remove_at, entries } = stored as unknown as { remove_at: Date } & LineDocument
      const last = Math.max(...entries.map(({ expires_at }) => expires_at.getTime()))
      expect(remove_at.getTime()).toBeGreaterThanOrEqual(last + hour)
      vi.advanceTimersByTime(1500)
    }
    const before = lines.documents.get('k')?.remove_at
    lines.change('k', renewPipeline([claimOf('k', '1')]), { upsert: false })
    expect(lines.documents.get('k')?.remove_at).toEqual(before)
  })

  test('is had as soon as its holder has expired, whatever the TTL index does', () => {
    const lines = new MingoLines()
    const enter = (id: string): LineDocument =>
      lines.change('k', enterPipeline([claimOf('k', id, { wait: false })], ENGINE), {
        upsert: true,
      }) as unknown as LineDocument
    enter('1')
    vi.advanceTimersByTime(999)
    expect(enter('2').entries.map(({ id }) => id)).toEqual(['1'])
    vi.advanceTimersByTime(1)
    // The document, and the entry in it, are still stored.
    expect(enter('3').entries.map(({ id }) => id)).toEqual(['3'])
  })

  test('tells the next waiter that it is the first now, when the first one has gone', () => {
    const lines = new MingoLines()
    lines.change(
      'k',
      enterPipeline(
        ['1', '2', '3'].map((id) => claimOf('k', id)),
        ENGINE,
      ),
      { upsert: true },
    )
    const stored = lines.change('k', leavePipeline(['2']), { upsert: false }) as unknown as LineDocument
    expect(newsIn('k', stored.news, ENGINE)).toEqual([{ key: 'k', id: '3' }])
  })

  test('tells the first waiter to look again when the holder is to outlive its process', () => {
    const lines = new MingoLines()
    lines.change(
      'k',
      enterPipeline(
        ['1', '2'].map((id) => claimOf('k', id)),
        ENGINE,
      ),
      { upsert: true },
    )
    const renewal = [{ key: 'k', id: '1', ttlMs: 10, outlives: true }]
    const stored = lines.change('k', renewPipeline(renewal), { upsert: false }) as unknown as LineDocument
    expect(newsIn('k', stored.news, ENGINE)).toEqual([{ key: 'k', id: '2' }])
    expect(newsIn('k', stored.news, 'another')).toEqual([])
  })
})
