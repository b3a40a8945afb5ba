/**
 * A seeded random trace of calls to a store, and to the lines beside it, run on the memory engine and on the engine
 * under test, with equal answers. As in trace.ts, time is kept out of the comparison: records have no ttl, except where
 * a step is about expiry, and waits for it. Versions differ in value: each side is given its own, by which change of
 * the key they are of. Those of different keys may be equal.
 */
import assert from 'node:assert/strict'
import type { Claim, Engine } from '../src/core/engine.ts'
import type { Change, Put, Store, Stored, When } from '../src/core/store.ts'
import { fakeClock, MemoryServer, memory } from '../src/testing.ts'
import { type Dice, dice } from './chance.ts'
import { isRead, putOne, putting, read, toText } from './records.ts'
import type { Scene } from './scene.ts'

const CLIENTS = 2
const STEPS = 120
const EXPIRIES = 2
const SHORT_TTL_MS = 100

/** One engine with several clients. */
interface StoreSide {
  readonly engines: readonly Engine[]
  /** By key: the versions that it has given to changes, in order; the first is that of nothing. */
  readonly versions: Versions
}

type Versions = ReadonlyMap<string, bigint[]>

/** A change whose versions are told by the number of the change of its key. */
type TraceChange = Omit<Change, 'when'> & { readonly when: Omit<When, 'version'> & { readonly version?: number } }

export class StoreTrace {
  readonly #chance: Dice
  readonly #scene: Scene
  readonly #clock: ReturnType<typeof fakeClock> = fakeClock()
  readonly #reference: StoreSide
  readonly #tried: StoreSide
  readonly #keys: readonly string[]
  readonly #claims: Claim[] = []
  readonly #log: string[] = []
  readonly #canHold: boolean
  readonly #canEnter: boolean
  #expiries = 0

  private constructor(scene: Scene, seed: number, tried: readonly Engine[]) {
    const server = new MemoryServer({ clock: this.#clock })
    this.#scene = scene
    this.#chance = dice(seed)
    this.#keys = ['a', 'A'].map((label) => scene.recordKey(`trace ${label}`))
    const versions = (): Versions => new Map(this.#keys.map((key) => [key, [0n]]))
    this.#reference = { engines: tried.map(() => memory({ server })), versions: versions() }
    this.#tried = { engines: tried, versions: versions() }
    this.#canHold = tried[0]?.store?.traits.holding === true
    this.#canEnter = tried[0]?.store?.putEntering !== undefined
  }

  /** Run one trace. Throws at the first difference, with the seed and the steps that led to it. */
  static async run(scene: Scene, seed: number): Promise<void> {
    const trace = new StoreTrace(scene, seed, await scene.times(CLIENTS, () => scene.engine()))
    try {
      for (let step = 0; step < STEPS; step += 1) await trace.#step()
    } catch (error) {
      const steps = trace.#log.slice(-12).map((step) => `  ${step}`)
      const message = error instanceof Error ? error.message : String(error)
      throw new Error(`differs from memory with HOLDFAST_SEED=${seed}, after\n${steps.join('\n')}\n${message}`, {
        cause: error,
      })
    }
  }

  async #step(): Promise<void> {
    const roll = this.#chance.below(100)
    if (roll < 10 && this.#canEnter) await this.#putEntering()
    else if (roll < 20 && this.#canEnter) await this.#putLeaving()
    else if (roll < 60) await this.#put()
    else if (roll < 75) await this.#enter()
    else if (roll < 87) await this.#leave()
    else if (roll < 97) await this.#compareRecords()
    else await this.#expire()
  }

  async #put(): Promise<void> {
    const client = this.#chance.below(CLIENTS)
    const changes = Array.from({ length: 1 + this.#chance.below(4) }, () => this.#change(client))
    for (const change of changes) this.#log.push(`client ${client}: ${described(change)}`)
    const [expected, puts] = await this.#both((side) =>
      storeOf(side.engines[client]).put(changes.map((change) => withVersion(change, side))),
    )
    this.#comparePuts(changes, expected, puts)
  }

  #comparePuts(changes: readonly TraceChange[], expected: readonly Put[], puts: readonly Put[]): void {
    assert.equal(puts.length, changes.length, 'answers to put')
    for (const [index, change] of changes.entries()) {
      const [wanted, put] = [expected[index] as Put, puts[index] as Put]
      const [earlier, earlierWanted] = [versionsOf(this.#tried, change.key), versionsOf(this.#reference, change.key)]
      assert.deepEqual(comparable(put, earlier), comparable(wanted, earlierWanted), described(change))
      if (put.state !== 'stored' || wanted.state !== 'stored') continue
      assert(
        earlier.every((version) => version < put.version),
        `version ${put.version} is higher than all before`,
      )
      earlier.push(put.version)
      earlierWanted.push(wanted.version)
    }
  }

  async #putEntering(): Promise<void> {
    const client = this.#chance.below(CLIENTS)
    const entrances = Array.from({ length: 1 + this.#chance.below(3) }, () => {
      const { value, ...change } = this.#freeChange(client)
      const more = { id: this.#chance.id(), holder: String(client), wait: false }
      // An entrance is no removal.
      return { claim: this.#scene.claim(change.key, more), change: { ...change, value: value ?? Buffer.from('x') } }
    })
    for (const { claim, change } of entrances)
      this.#log.push(`client ${client} enters ${claim.id.slice(0, 6)} and ${described(change)}`)
    const [expected, entered] = await this.#both(async (side) => {
      const asked = entrances.map(({ claim, change }) => ({ claim, change: withVersion(change, side) }))
      return (await storeOf(side.engines[client]).putEntering?.(asked)) ?? []
    })
    for (const [index, { claim }] of entrances.entries()) {
      const state = entered[index]?.standing.state
      assert.equal(state, expected[index]?.standing.state)
      if (state === 'held') this.#claims.push(claim)
    }
    this.#comparePuts(
      entrances.map(({ change }) => change),
      expected.map(({ put }) => put),
      entered.map(({ put }) => put),
    )
  }

  async #putLeaving(): Promise<void> {
    if (this.#claims.length === 0) return
    const claims = Array.from({ length: 1 + this.#chance.below(3) }, () => this.#chance.pick(this.#claims))
    const changes = claims.map(({ key }) => this.#freeChange(0, key))
    for (const [index, { id }] of claims.entries())
      this.#log.push(`${described(changes[index] as TraceChange)} and leaves ${id.slice(0, 6)}`)
    const [expected, puts] = await this.#both(async (side) => {
      const leavings = claims.map(({ id }, index) => ({
        id,
        change: withVersion(changes[index] as TraceChange, side),
      }))
      return (await storeOf(side.engines[0]).putLeaving?.(leavings)) ?? []
    })
    this.#comparePuts(changes, expected, puts)
  }

  /** One that asks for no holder. */
  #freeChange(client: number, key?: string): TraceChange {
    const { when, ...change } = this.#change(client, key)
    const { holding: _, ...others } = when
    return { ...change, when: others }
  }

  #change(client: number, key: string = this.#chance.pick(this.#keys)): TraceChange {
    const chance = this.#chance
    if (chance.oneIn(3)) return this.#usualChange(key)
    const value = chance.oneIn(6) ? null : Buffer.from(chance.id().slice(0, chance.below(9)))
    // Entries are named to the engine object that has entered them.
    const own = this.#claims.filter((claim) => claim.key === key && claim.holder === String(client))
    return {
      key,
      value,
      ttlMs: chance.oneIn(5) ? this.#scene.longTtlMs : null,
      ...(value !== null && chance.oneIn(3) ? { mark: BigInt(chance.below(50)) } : {}),
      when: {
        ...(this.#canHold && own.length > 0 && chance.oneIn(2) ? { holding: chance.pick(own).id } : {}),
        ...(chance.oneIn(6) ? { absent: true } : {}),
        // Mostly recent ones: those have a chance to be met.
        ...(chance.oneIn(3) ? { version: this.#recentVersion(key) } : {}),
        ...(chance.oneIn(5) ? { markBelow: BigInt(chance.below(50)) } : {}),
      },
    }
  }

  /** As recipes make them: servers have a short way for these. */
  #usualChange(key: string): TraceChange {
    const newest = versionsOf(this.#tried, key).length - 1
    return {
      key,
      value: Buffer.from(this.#chance.id().slice(0, 8)),
      ttlMs: this.#scene.longTtlMs,
      when: this.#chance.oneIn(2) ? { absent: true } : { version: newest },
    }
  }

  /** The number of one of the last changes of a key, or that of nothing. */
  #recentVersion(key: string): number {
    const { length } = versionsOf(this.#tried, key)
    return this.#chance.oneIn(4) ? 0 : Math.max(0, length - 1 - this.#chance.below(6))
  }

  async #enter(): Promise<void> {
    const client = this.#chance.below(CLIENTS)
    const claim = this.#scene.claim(this.#chance.pick(this.#keys), { id: this.#chance.id(), holder: String(client) })
    this.#log.push(`client ${client} enters ${claim.id.slice(0, 6)} (${claim.key.slice(-1)})`)
    const [[expected], [standing]] = await this.#both(({ engines }) => (engines[client] as Engine).enter([claim]))
    assert.equal(standing?.state, expected?.state)
    this.#claims.push(claim)
  }

  async #leave(): Promise<void> {
    if (this.#claims.length === 0) return
    const claim = this.#chance.pick(this.#claims)
    this.#log.push(`leaves ${claim.id.slice(0, 6)} (${claim.key.slice(-1)})`)
    const client = Number(claim.holder)
    const [expected, left] = await this.#both(({ engines }) => (engines[client] as Engine).leave([claim]))
    assert.deepEqual(left, expected)
  }

  async #compareRecords(): Promise<void> {
    const client = this.#chance.below(CLIENTS)
    const [expected, got] = await this.#both(({ engines }) => storeOf(engines[client]).get(this.#keys))
    for (const [index, key] of this.#keys.entries()) {
      assert.deepEqual(
        shape(isRead(got[index]), versionsOf(this.#tried, key)),
        shape(isRead(expected[index]), versionsOf(this.#reference, key)),
        `the record of ${key}`,
      )
    }
  }

  /** Give one record the shortest life, and wait until it is gone from both. */
  async #expire(): Promise<void> {
    if (this.#expiries === EXPIRIES) return
    this.#expiries += 1
    const key = this.#chance.pick(this.#keys)
    this.#log.push(`expire the record of ${key.slice(-1)}`)
    const change = putting(key, 'short', {}, { ttlMs: SHORT_TTL_MS })
    const [expected, put] = await this.#both(({ engines }) => putOne(storeOf(engines[0]), change))
    assert.deepEqual([put.state, expected.state], ['stored', 'stored'])
    this.#clock.stall(SHORT_TTL_MS)
    const store = storeOf(this.#tried.engines[0])
    await this.#scene.eventually('the record has expired', async () => (await read(store, key)).value === null)
  }

  async #both<Answer>(call: (side: StoreSide) => Promise<Answer>): Promise<[Answer, Answer]> {
    return [await call(this.#reference), await call(this.#tried)]
  }
}

function storeOf(engine: Engine | undefined): Store {
  return engine?.store as Store
}

function versionsOf({ versions }: Pick<StoreSide, 'versions'>, key: string): bigint[] {
  return versions.get(key) as bigint[]
}

function withVersion({ when, ...change }: TraceChange, side: StoreSide): Change {
  const { version, ...others } = when
  const versions = versionsOf(side, change.key)
  return { ...change, when: version === undefined ? others : { ...others, version: versions[version] as bigint } }
}

/** What of an answer has to be equal. */
function comparable(put: Put, versions: readonly bigint[]): object {
  if (put.state === 'stored') return { state: 'stored', mark: put.mark }
  if (put.state === 'refused') return { state: 'refused', by: put.by, stored: shape(put.stored, versions) }
  return { state: 'failed', error: put.error.message }
}

function shape(stored: Stored, versions: readonly bigint[]): object {
  const { mark, version, livesForMs } = stored
  return { text: toText(stored), mark, change: versions.indexOf(version), expires: livesForMs !== null }
}

function described({ key, value, ttlMs, mark, when }: TraceChange): string {
  const what = value === null ? 'removes' : `puts '${toText({ value })}'`
  const more = [key.slice(-1), ttlMs === null ? '' : ', with a ttl', mark === undefined ? '' : `, mark ${mark}`]
  const conditions = JSON.stringify(when, (_, one: unknown) => (typeof one === 'bigint' ? Number(one) : one))
  return `${what} (${more.join('')}) when ${conditions}`
}
