/** The records of a recipe: batching, values, leases, and calls whose outcome is unknown. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import { EngineError, UnsupportedError } from '../../src/core/errors.ts'
import type { LocksOptions } from '../../src/core/locks-options.ts'
import { type Change, type Put, type Store, VALUE_LIMIT_BYTES } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { createLocks, type Locks } from '../../src/locks.ts'
import { RecordStore } from '../../src/store/record-store.ts'
import { fakeClock } from '../../src/testing.ts'

const opened: Locks[] = []
afterEach(async () => {
  await Promise.all(opened.splice(0).map((locks) => locks.close()))
})

function locksOn(engine: Engine, options: LocksOptions = {}): Locks {
  const locks = createLocks(engine, options)
  opened.push(locks)
  return locks
}

/** An engine on `server` whose store counts its calls, and can lose requests and replies. */
class Faulty {
  readonly calls: string[] = []
  /** What happens to the next puts, in order. */
  readonly faults: ('lose request' | 'lose reply' | 'refuse' | 'never')[] = []
  readonly engine: Engine
  readonly #store: Store

  constructor(server = new MemoryServer()) {
    const engine = memory({ server })
    this.#store = engine.store
    this.engine = delegate(engine, {
      store: {
        traits: engine.store.traits,
        get: (keys) => {
          this.calls.push(`get ${keys.join(' ')}`)
          return engine.store.get(keys)
        },
        put: (changes) => this.#put(changes),
        list: (prefix) => engine.store.list(prefix),
      },
    })
  }

  async #put(changes: readonly Change[]): Promise<readonly Put[]> {
    this.calls.push(`put ${changes.map(({ key }) => key).join(' ')}`)
    const fault = this.faults.shift()
    if (fault === 'never') return new Promise(() => {})
    if (fault === 'refuse') throw new EngineError('memory', 'no connection', { outcome: 'not-applied' })
    if (fault === 'lose request') throw new EngineError('memory', 'lost', { outcome: 'unknown' })
    const puts = await this.#store.put(changes)
    if (fault === 'lose reply') throw new EngineError('memory', 'lost', { outcome: 'unknown' })
    return puts
  }
}

function records(engine: Engine, options: LocksOptions = {}): RecordStore<unknown> {
  return new RecordStore('test', locksOn(engine, options), {})
}

test('reads of one key that are not sent yet are one read, and what is asked after that is read anew', async () => {
  const world = new Faulty()
  const store = records(world.engine)
  await store.put('a', 1, {})
  world.calls.length = 0
  const first = [store.get('a'), store.get('b'), store.get('a')]
  // In the turn after the ticks, the call is on its way.
  await new Promise((resolve) => process.nextTick(() => process.nextTick(resolve)))
  const later = store.get('a')
  await Promise.all([...first, later])
  expect(world.calls).toEqual(['get a b', 'get a'])
  expect((await first[2])?.value).toBe(1)
})

test('what callers ask in one turn goes out in one call for each verb, whatever recipe they are of', async () => {
  const { engine, calls } = new Faulty()
  const locks = locksOn(engine)
  const [once, cron] = [new RecordStore('once', locks, {}), new RecordStore('cron', locks, {})]
  await Promise.all([once.put('a', 1, {}), cron.put('b', 2, {}), once.get('a'), cron.get('c')])
  expect(calls).toEqual(['put a b', 'get a c'])
})

describe('a value', () => {
  test.each([[undefined], [null], [0], [''], [{ a: [1, 'x'] }]])('%j is read as it was put', async (value) => {
    const store = records(memory())
    expect(await store.get('a')).toMatchObject({ exists: false, value: undefined, version: 0n })
    await store.put('a', value, {})
    expect(await store.get('a')).toMatchObject({ exists: true, value })
  })

  test('that cannot be stored is refused before anything is done', async () => {
    const { engine, calls } = new Faulty()
    const store = records(engine)
    const circle: unknown[] = []
    circle.push(circle)
    for (const value of [10n, () => 1, Symbol('s'), circle])
      await expect(store.put('a', value, {})).rejects.toThrow(/^the value of 'a' cannot be stored: .*serialize/s)
    await expect(store.put('a', 'x'.repeat(VALUE_LIMIT_BYTES - 1), {})).rejects.toThrow(/65537 bytes.*at most 65536/)
    await expect(store.put('', 1, {})).rejects.toThrow(RangeError)
    await expect(store.put('a', 1, { mark: -1n })).rejects.toThrow(RangeError)
    expect(calls).toEqual([])
    await store.put('a', 'x'.repeat(VALUE_LIMIT_BYTES - 2), {})
    expect(calls).toEqual(['put a'])
  })

  test('is stored as the user says', async () => {
    const serialize = {
      encode: (value: unknown) => `<${value as string}>`,
      decode: (bytes: Uint8Array) => `${bytes.length}`,
    }
    const store = new RecordStore('test', locksOn(memory()), { serialize })
    await store.put('a', 12n, {})
    expect(await store.get('a')).toMatchObject({ value: '4' })
  })
})

describe('a lease', () => {
  test('that is held lets its holder put; one that is over does not', async () => {
    const locks = locksOn(memory())
    const store = new RecordStore('test', locks, {})
    const first = await locks.mutex('a').acquire()
    expect(await store.put('a', 1, { holding: first, absent: true })).toMatchObject({ state: 'stored' })
    await first.release()
    const late = await store.put('a', 2, { holding: first })
    expect(late).toMatchObject({ state: 'refused', by: 'holding', found: { exists: true, value: 1 } })
    const lease = await locks.mutex('a', { reentrant: true }).acquire()
    const nested = await locks.mutex('a', { reentrant: true }).acquire({ within: lease })
    expect(await store.put('a', 3, { holding: nested })).toMatchObject({ state: 'stored' })
  })

  test('of another key, or of no lock of ours, is a mistake', async () => {
    const locks = locksOn(memory())
    const store = new RecordStore('test', locks, {})
    const lease = await locks.mutex('b').acquire()
    await expect(store.put('a', 1, { holding: lease })).rejects.toThrow(/must be a lease of 'a'.*got one of 'b'/)
    const both = await locks.all([locks.mutex('c'), locks.mutex('d')]).acquire()
    await expect(store.put('c + d', 1, { holding: both })).rejects.toThrow(TypeError)
  })

  test('is not checked by the store of another engine, where versions protect', async () => {
    const [locks, store] = [locksOn(memory()), locksOn(memory())]
    const elsewhere = new RecordStore('test', locks, { store })
    expect([elsewhere.checksHolding, new RecordStore('test', locks, {}).checksHolding]).toEqual([false, true])
    const lease = await locks.mutex('a').acquire()
    const put = await elsewhere.put('a', 1, { holding: lease, version: 0n })
    expect(put).toMatchObject({ state: 'stored' })
    expect(await elsewhere.put('a', 2, { holding: lease, version: 0n })).toMatchObject({ by: 'version' })
  })
})

test('an engine without a store is refused by name, and the option that helps is named', () => {
  const { store: _, ...poor } = delegate(memory())
  const locks = locksOn(poor)
  expect(() => new RecordStore('once', locks, {})).toThrow(UnsupportedError)
  expect(() => new RecordStore('once', locks, {})).toThrow(/memory has no store for the records of once\(\).*store/)
})

describe('an unknown outcome', () => {
  test.each(['lose request', 'lose reply'] as const)(
    'of a change that can be made once (%s) is cleared up',
    async (fault) => {
      const faulty = new Faulty()
      const store = records(faulty.engine)
      faulty.faults.push(fault)
      const put = await store.put('a', { attempt: 1 }, { absent: true })
      expect(put).toMatchObject({ state: 'stored', version: (await store.get('a')).version })
      expect(faulty.calls.filter((call) => call === 'put a')).toHaveLength(2)
    },
  )

  test('is not taken for the change of another writer', async () => {
    const server = new MemoryServer()
    const faulty = new Faulty(server)
    const [store, other] = [records(faulty.engine), records(memory({ server }))]
    faulty.faults.push('lose request')
    const asked = store.put('a', { attempt: 1 }, { absent: true })
    await other.put('a', { attempt: 2 }, { absent: true })
    expect(await asked).toMatchObject({ state: 'refused', by: 'absent', found: { value: { attempt: 2 } } })
  })

  test('of any other change is told, and the change is not repeated', async () => {
    const faulty = new Faulty()
    const store = records(faulty.engine)
    faulty.faults.push('lose reply')
    await expect(store.put('a', 1, {})).rejects.toMatchObject({ outcome: 'unknown' })
    expect(faulty.calls).toEqual(['put a'])
  })

  test('is told as such, though the last try certainly did nothing', async () => {
    const clock = fakeClock()
    const faulty = new Faulty()
    const store = records(faulty.engine, { clock, callTimeout: '1s' })
    faulty.faults.push('lose reply', ...Array.from({ length: 100 }, () => 'refuse' as const))
    const asked = store.put('a', 1, { version: 0n })
    const refused = expect(asked).rejects.toMatchObject({ outcome: 'unknown' })
    await clock.advance('2s')
    await refused
    expect(faulty.calls.length).toBeGreaterThan(3)
    expect(faulty.calls.length).toBeLessThan(20)
  })
})

test('a change that certainly was not made is asked again, whatever its conditions', async () => {
  const faulty = new Faulty()
  const store = records(faulty.engine)
  faulty.faults.push('refuse', 'refuse')
  expect(await store.put('a', 1, {})).toMatchObject({ state: 'stored' })
  expect(faulty.calls).toEqual(['put a', 'put a', 'put a'])
})

test('a call that is not answered rejects at the time limit of calls', async () => {
  const clock = fakeClock()
  const faulty = new Faulty()
  const store = records(faulty.engine, { clock, callTimeout: '1s' })
  faulty.faults.push('never')
  const refused = expect(store.put('a', 1, { absent: true })).rejects.toThrow('memory: put: no answer within 1000 ms')
  await clock.advance('1s')
  await refused
})

test('closing refuses who waits for an answer, and who asks later', async () => {
  const faulty = new Faulty()
  const locks = locksOn(faulty.engine)
  const store = new RecordStore('test', locks, {})
  faulty.faults.push('never')
  const refused = expect(store.put('a', 1, {})).rejects.toMatchObject({ outcome: 'unknown', transient: false })
  await new Promise((resolve) => setImmediate(resolve))
  await locks.close()
  await refused
  await expect(store.get('a')).rejects.toMatchObject({ outcome: 'not-applied' })
})
