/**
 * Records beside the lines, as update pipelines, do what the memory engine does, in random traces in which lines and
 * records change. The pipelines are evaluated by `mingo`, without any server.
 */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { type Dice, dice } from '../../conformance/chance.ts'
import type { Claim } from '../../src/core/engine.ts'
import type { Change, Got, Put, Stored, When } from '../../src/core/store.ts'
import { lineOf, type ShownLine } from '../../src/engines/mongodb/codec.ts'
import { enterPipeline, evictPipeline, leavePipeline, renewPipeline } from '../../src/engines/mongodb/pipelines.ts'
import {
  gotNothing,
  gotOf,
  type PutDocument,
  putNowhere,
  putOf,
  type ShownRecord,
} from '../../src/engines/mongodb/record-codec.ts'
import { putPipeline } from '../../src/engines/mongodb/record-pipeline.ts'
import { upsertsRecord } from '../../src/engines/mongodb/store.ts'
import { type FakeClock, fakeClock, MemoryServer } from '../../src/testing.ts'
import { MingoLines } from './mongodb-lines.ts'

const ENGINE = 'e'.repeat(32)
const KEYS = ['a', '$record']
const TRACES = 8 * Number(process.env.HOLDFAST_ROUNDS ?? 1)
const STEPS = 150
const HOUR_MS = 3_600_000

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['Date'], now: Date.UTC(2026, 0, 1) })
})
afterEach(() => {
  vi.useRealTimers()
})

/** The same calls on both, one line at a time. */
class RecordTrace {
  readonly #dice: Dice
  readonly #clock: FakeClock = fakeClock()
  readonly #memory = new MemoryServer({ clock: this.#clock })
  readonly #lines = new MingoLines()
  readonly #ids = ['1', '2', '$$NOW'].map((id) => id.padStart(8, '-'))
  /** By key, the versions that each side has given, in order; the first is that of nothing. */
  readonly #versions = new Map(KEYS.map((key): [string, [bigint[], bigint[]]] => [key, [[0n], [0n]]]))
  readonly #highest = new Map<string, bigint>()

  constructor(seed: number) {
    this.#dice = dice(seed)
  }

  async step(): Promise<void> {
    const key = this.#dice.pick(KEYS)
    const roll = this.#dice.below(12)
    if (roll < 5) this.#put(key)
    else if (roll < 7) this.#enter(key)
    else if (roll < 8) this.#leave(key)
    else if (roll < 9) this.#renew(key)
    else if (roll < 10) this.#evict(key)
    else await this.#advance()
    for (const each of KEYS) this.#compare(each)
  }

  async #advance(): Promise<void> {
    const ms = 1 + this.#dice.below(this.#dice.oneIn(20) ? 30 * HOUR_MS : 300)
    await this.#clock.advance(ms)
    vi.advanceTimersByTime(ms)
  }

  #put(key: string): void {
    const value = this.#dice.oneIn(4) ? null : Buffer.from(this.#dice.id().slice(0, this.#dice.below(9)))
    const base = {
      key,
      value,
      ttlMs: this.#dice.pick([null, 55, 105, 10_000_000]),
      ...(value !== null && this.#dice.oneIn(3) ? { mark: BigInt(this.#dice.below(50)) } : {}),
    }
    const { length } = this.#versionsOf(key, 0)
    const version = this.#dice.oneIn(4) ? 0 : Math.max(0, length - 1 - this.#dice.below(4))
    const isNumbered = this.#dice.oneIn(3)
    const other: When = {
      ...(this.#dice.oneIn(2) ? { holding: this.#dice.pick(this.#ids) } : {}),
      ...(this.#dice.oneIn(6) ? { absent: true } : {}),
      ...(this.#dice.oneIn(5) ? { markBelow: BigInt(this.#dice.below(50)) } : {}),
    }
    const changeOf = (side: 0 | 1): Change => {
      const numbered = { version: this.#versionsOf(key, side)[version] as bigint }
      return { ...base, when: { ...other, ...(isNumbered ? numbered : {}) } }
    }
    const expected = this.#memory.putRecords([changeOf(0)])[0] as Put
    const put = this.#changed(changeOf(1))
    expect(this.#comparable(put, 1)).toEqual(this.#comparable(expected, 0))
    if (put.state !== 'stored' || expected.state !== 'stored') return
    this.#isHighest(key, put.version)
    this.#versionsOf(key, 0).push(expected.version)
    this.#versionsOf(key, 1).push(put.version)
  }

  #versionsOf(key: string, side: 0 | 1): bigint[] {
    return this.#versions.get(key)?.[side] as bigint[]
  }

  #changed(change: Change): Put {
    const { key, when } = change
    const before = this.#lines.documents.get(key)
    const after = this.#lines.change(key, putPipeline(change), { upsert: upsertsRecord(when) })
    if (after === undefined) return putNowhere(key, when, Date.now())
    const { remove_at, entries, record } = after as unknown as {
      remove_at: Date
      entries: { expires_at: Date }[]
      record: { expires_at: Date | null } | null
    }
    const ends = [...entries.map(({ expires_at }) => expires_at), ...(record === null ? [] : [record.expires_at])]
    for (const end of ends)
      expect(remove_at.getTime()).toBeGreaterThanOrEqual(end === null ? Date.UTC(9000, 0) : end.getTime() + HOUR_MS)
    expect(remove_at.getTime()).toBeGreaterThanOrEqual(Date.now() + HOUR_MS)
    const put = putOf(key, after as unknown as PutDocument)
    if (put.state === 'refused') expect(after.token).toEqual(before?.token ?? after.token)
    return put
  }

  #enter(key: string): void {
    const ttlMs = this.#dice.pick([55, 105, 1005])
    const more = { holder: 'h', weight: 1, limit: this.#dice.pick([1, 1, 2]), ttlMs, wait: !this.#dice.oneIn(4) }
    const claim: Claim = { key, id: this.#dice.pick(this.#ids), ...more }
    this.#memory.enter([claim], { listener: undefined })
    const after = this.#lines.change(key, enterPipeline([claim], ENGINE), { upsert: true })
    const { entries } = after as unknown as { entries: { id: string; token: number }[] }
    const entry = entries.find(({ id }) => id === claim.id)
    this.#isAbove(key, BigInt(entry?.token ?? 0))
    this.#isKept(key)
  }

  #leave(key: string): void {
    const id = this.#dice.pick(this.#ids)
    this.#memory.leave([{ key, id }])
    this.#lines.change(key, leavePipeline([id]), { upsert: false })
    this.#isKept(key)
  }

  #renew(key: string): void {
    const place = { key, id: this.#dice.pick(this.#ids), ttlMs: this.#dice.pick([55, 1005]) }
    this.#memory.renew([place])
    this.#lines.change(key, renewPipeline([place]), { upsert: false })
    this.#isKept(key)
  }

  #evict(key: string): void {
    const how = this.#dice.oneIn(2) ? 'now' : 'expire'
    const place = this.#dice.below(2)
    this.#memory.evict(key, this.#memory.inspect(key).entries[place]?.token ?? 0n, how)
    const shown = this.#lines.documents.get(key) as unknown as ShownLine | undefined
    const { entries } = lineOf(key, shown && { ...shown, now: new Date() })
    this.#lines.change(key, evictPipeline(entries[place]?.token ?? 0n, how), { upsert: false })
    this.#isKept(key)
  }

  /** A change of the line leaves the document for as long as its record is to stay. */
  #isKept(key: string): void {
    const { record, remove_at } = (this.#lines.documents.get(key) ?? {}) as {
      record?: { expires_at: Date | null } | null
      remove_at?: Date
    }
    if (record === undefined || record === null) return
    const end = record.expires_at?.getTime() ?? Date.UTC(9000, 0)
    expect(remove_at?.getTime()).toBeGreaterThanOrEqual(end)
  }

  #isHighest(key: string, version: bigint): void {
    expect(version).toBeGreaterThan(this.#highest.get(key) ?? 0n)
    this.#highest.set(key, version)
  }

  /** The entry may be one from before. */
  #isAbove(key: string, token: bigint): void {
    if (token > (this.#highest.get(key) ?? 0n)) this.#highest.set(key, token)
  }

  #compare(key: string): void {
    const document = this.#lines.documents.get(key) as unknown as ShownRecord | undefined
    const found = document === undefined ? gotNothing(key, Date.now()) : gotOf(key, { ...document, now: new Date() })
    const [expected] = this.#memory.getRecords([key])
    expect(this.#read(found, 1)).toEqual(this.#read(expected, 0))
  }

  #read(got: Got | undefined, side: 0 | 1): object {
    if (got?.state !== 'read') throw new Error('no record was read')
    return this.#shape(got.stored, side)
  }

  #comparable(put: Put, side: 0 | 1): object {
    if (put.state === 'stored') return { state: 'stored', mark: put.mark }
    if (put.state === 'refused') return { state: 'refused', by: put.by, stored: this.#shape(put.stored, side) }
    return put
  }

  #shape({ key, value, version, mark, livesForMs }: Stored, side: 0 | 1): object {
    const text = value === null ? null : Buffer.from(value).toString()
    return { text, mark, livesForMs, change: this.#versionsOf(key, side).indexOf(version) }
  }
}

const putting = (text: string | null, more: Partial<Change> = {}): Change => ({
  ...{ key: 'k', value: text === null ? null : Buffer.from(text), ttlMs: null, when: {} },
  ...more,
})

describe('a record as update pipelines', () => {
  test('is equal to the memory engine in random traces', async () => {
    for (let seed = 1; seed <= TRACES; seed += 1) {
      const trace = new RecordTrace(seed)
      for (let step = 1; step <= STEPS; step += 1) {
        try {
          await trace.step()
        } catch (error) {
          throw new Error(`seed ${seed}, step ${step}: ${(error as Error).message}`, { cause: error })
        }
      }
    }
  })

  test('without a ttl keeps its document for good, also when the line is used; a removal lets go of it', () => {
    const lines = new MingoLines()
    lines.change('k', putPipeline(putting('kept')), { upsert: true })
    const claim = { key: 'k', id: '1', holder: 'h', weight: 1, limit: 1, ttlMs: 1000, wait: true }
    for (const pipeline of [enterPipeline([claim], ENGINE), renewPipeline([claim]), leavePipeline(['1'])]) {
      lines.change('k', pipeline, { upsert: true })
      expect(lines.documents.get('k')).toMatchObject({ remove_at: new Date(Date.UTC(9999, 0, 1)) })
    }
    lines.change('k', putPipeline(putting(null)), { upsert: true })
    const { remove_at, record } = lines.documents.get('k') as unknown as { remove_at: Date; record: unknown }
    expect(record).toBeNull()
    expect(remove_at.getTime()).toBeLessThanOrEqual(Date.now() + 2 * HOUR_MS)
  })

  test('has versions that rise also when the clock of the server is set back', () => {
    const lines = new MingoLines()
    const version = (): bigint => {
      const after = lines.change('k', putPipeline(putting('a')), { upsert: true })
      const put = putOf('k', after as unknown as PutDocument)
      return put.state === 'stored' ? put.version : 0n
    }
    const first = version()
    vi.setSystemTime(Date.now() - 86_400_000)
    expect(version()).toBe(first + 1n)
  })

  test('in a document of a newer version is left alone', () => {
    const lines = new MingoLines()
    const newer = { _id: 'k', format: 2, record: 'what ever' }
    lines.documents.set('k', newer)
    expect(lines.change('k', putPipeline(putting('a')), { upsert: true })).toEqual(newer)
    expect(() => putOf('k', newer as never)).toThrow(/newer Holdfast/)
  })
})
