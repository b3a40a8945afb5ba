/**
 * Processes whose calls take a random while, on their way there and back, and code that asks and invalidates at random.
 * The source counts up: what is given can be compared with what was invalidated before.
 */
import { setImmediate as turn } from 'node:timers/promises'
import { type Dice, dice } from '../../conformance/chance.ts'
import { delegate } from '../../conformance/delegate.ts'
import { EngineError } from '../../src/core/errors.ts'
import type { Change, Put, Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import type { Locks } from '../../src/locks.ts'
import { type Cache, type CacheOptions, cache, type ValueStore } from '../../src/recipes/cache/index.ts'
import { type FakeClock, fakeClock } from '../../src/testing.ts'
import { locksOn } from './once-world.ts'

/** What is different in the fleet of a test. */
export interface FleetOptions {
  readonly cache?: Partial<CacheOptions>
  readonly processes?: number
  /** Lines are entered and left in the step of a change. */
  readonly inOneStep?: boolean
  /** The store cannot look at lines: it is that of another engine. */
  readonly apart?: boolean
  /** A key-value store for the values, whose calls take a while, too. */
  readonly withValues?: boolean
  /** Whether processes are stopped for longer than their ttl, now and then. */
  readonly stops?: boolean
  /** A change instead of the one that is asked for; undefined: it is answered as if it had been made. */
  readonly broken?: (change: Change, stored: Uint8Array | null) => Change | undefined
}

/** What happened in a run. */
export interface Story {
  /** Values that were older than an invalidation that had returned before they were asked for. */
  readonly old: string[]
  /** How often two fills were under way at once. */
  overlaps: number
  fills: number
  /** Invalidations that began while a fill was under way. */
  interleavings: number
}

const TTL_MS = 3000
const KEY = 'page'

/** Whether a change stores a record of this kind. */
export function stores(kind: 'filling' | 'value', { value }: Pick<Change, 'value'>): boolean {
  return value !== null && Buffer.from(value).toString().startsWith(`{"is":"${kind}"`)
}

class SlowProcess {
  readonly locks: Locks
  readonly cache: Cache
  stopped = false

  constructor(server: MemoryServer, clock: FakeClock, chance: Dice, options: FleetOptions, values?: ValueStore) {
    const { inOneStep = true, apart = false, broken } = options
    const slowly = async <Answer>(call: () => Promise<Answer>): Promise<Answer> => {
      for (let left = chance.below(4); left > 0; left -= 1) await turn()
      const answer = await call()
      for (let left = chance.below(4); left > 0; left -= 1) await turn()
      return answer
    }
    const engine = memory({ server })
    const { store } = engine
    /** Each by itself, as the store makes them. */
    const changed = async (change: Change, put: (one: Change) => Promise<Put | undefined>): Promise<Put> => {
      const [got] = await store.get([change.key])
      const stored = got?.state === 'read' ? got.stored.value : null
      const other = broken === undefined ? change : broken(change, stored)
      const version = got?.state === 'read' ? got.stored.version : 0n
      if (other === undefined) return { state: 'stored', version, mark: 0n, serverTimeMs: null }
      return (await put(other)) as Put
    }
    const slow: Store = {
      traits: { ...store.traits, holding: !apart },
      get: (keys) => slowly(() => store.get(keys)),
      put: (changes) =>
        slowly(() => Promise.all(changes.map((change) => changed(change, async (one) => (await store.put([one]))[0])))),
      list: (prefix) => store.list(prefix),
    }
    if (inOneStep && !apart) {
      slow.putEntering = (entrances) => slowly(async () => (await store.putEntering?.(entrances)) ?? [])
      slow.putLeaving = (leavings) =>
        slowly(() =>
          Promise.all(
            leavings.map(({ change, id }) =>
              changed(change, async (one) => (await store.putLeaving?.([{ change: one, id }]))?.[0]),
            ),
          ),
        )
    }
    this.locks = locksOn(
      delegate(engine, {
        enter: (claims) => slowly(() => engine.enter(claims)),
        leave: (places) => slowly(() => engine.leave(places)),
        renew: (places) => (this.stopped ? new Promise(() => {}) : engine.renew(places)),
        store: slow,
      }),
      { clock, ttl: TTL_MS },
    )
    const slowValues = values && {
      get: (key: string) => slowly(() => values.get(key)),
      set: (key: string, value: Uint8Array, ttlMs: number) => slowly(() => values.set(key, value, ttlMs)),
    }
    const asked = { ttl: 2_000, ...options.cache, ...(slowValues && { values: slowValues }) }
    this.cache = cache(this.locks, asked)
  }
}

/** A Map, whose entries do not expire: the clock of these tests is not that of the machine. */
function plainValues(): ValueStore {
  const map = new Map<string, Uint8Array>()
  return { get: async (key) => map.get(key), set: async (key, value) => map.set(key, value) }
}

/** One run: `actors` ask and invalidate at once, each `steps` times. */
export async function interleave(seed: number, options: FleetOptions, actors = 10, steps = 30): Promise<Story> {
  const chance = dice(seed)
  const clock = fakeClock()
  const server = new MemoryServer({ clock })
  const values = options.withValues ? plainValues() : undefined
  const { processes = 3, stops = false } = options
  const fleet = Array.from({ length: processes }, () => new SlowProcess(server, clock, chance, options, values))
  const story: Story = { old: [], overlaps: 0, fills: 0, interleavings: 0 }
  let [truth, invalidated, filling] = [0, 0, 0]
  const pause = async (most: number): Promise<void> => {
    for (let left = chance.below(most); left > 0; left -= 1) await turn()
  }
  const fill = async (): Promise<number> => {
    story.fills += 1
    if (filling > 0) story.overlaps += 1
    filling += 1
    await pause(10)
    const read = truth
    // Where processes are stopped, some fills go on beside the next one.
    await pause(stops && chance.oneIn(3) ? 100 : 10)
    filling -= 1
    return read
  }
  const invalidate = async (cache: Cache): Promise<void> => {
    // Most often while there is a fill to disturb.
    for (let left = chance.below(20); left > 0 && filling === 0; left -= 1) await turn()
    if (filling > 0) story.interleavings += 1
    truth += 1
    const now = truth
    if (await answered(cache.invalidate(KEY).then(() => true))) invalidated = Math.max(invalidated, now)
  }
  const ask = async (cache: Cache): Promise<void> => {
    const least = invalidated
    const given = await answered(cache.get(KEY, fill))
    if (given !== undefined && given < least)
      story.old.push(`seed ${seed}: ${given} was given after ${least} had been invalidated`)
  }
  const act = async (): Promise<void> => {
    for (let step = 0; step < steps; step += 1) {
      const { cache } = chance.pick(fleet)
      await (chance.oneIn(3) ? invalidate(cache) : ask(cache))
      await pause(4)
    }
  }
  let over = false
  const passTime = async (): Promise<void> => {
    while (!over) {
      await pause(10)
      if (!stops || !chance.oneIn(10)) {
        await clock.advance(chance.below(200))
        continue
      }
      const process = chance.pick(fleet)
      process.stopped = true
      await clock.advance(TTL_MS + 500)
      process.stopped = false
    }
  }
  const passing = passTime()
  await Promise.all(Array.from({ length: actors }, act))
  over = true
  await passing
  await Promise.all(fleet.map(({ locks }) => locks.close()))
  return story
}

/** Time that passes while a call is under way can make it one without an answer. */
async function answered<Value>(asked: Promise<Value>): Promise<Value | undefined> {
  try {
    return await asked
  } catch (error) {
    if (error instanceof EngineError) return undefined
    throw error
  }
}
