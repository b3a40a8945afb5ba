/** `cache` while its store, or the key-value store of the user, cannot be asked: told apart from a miss. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { EngineError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import type { Locks } from '../../src/locks.ts'
import { type CacheOptions, cache, ioredisValues, mapValues, type ValueStore } from '../../src/recipes/cache/index.ts'
import { closeAll, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

const PLAIN: CacheOptions = { ttl: '10s', jitter: 0 }

/** Locks on a store that can be cut off, in one verb or in all. */
class Trouble {
  readonly locks: Locks
  down: 'get' | 'put' | 'all' | undefined

  constructor(server = new MemoryServer()) {
    const engine = memory({ server })
    const { store } = engine
    const ask = <Answer>(verb: 'get' | 'put', call: () => Promise<Answer>): Promise<Answer> =>
      this.down === 'all' || this.down === verb
        ? Promise.reject(new EngineError('memory', 'no answer', { outcome: 'unknown' }))
        : call()
    const cut: Store = {
      traits: store.traits,
      get: (keys) => ask('get', () => store.get(keys)),
      put: (changes) => ask('put', () => store.put(changes)),
      list: (prefix) => store.list(prefix),
    }
    const enter = (claims: Parameters<typeof engine.enter>[0]) => ask('put', () => engine.enter(claims))
    this.locks = locksOn(delegate(engine, { enter, store: cut }), { callTimeout: 300, ttl: '3s' })
  }
}

/** The bytes of a record, without what says that its value is in a store of the user. */
function withoutMark(record: Uint8Array): Uint8Array {
  return Buffer.from(Buffer.from(record).toString().replace(',"outside":true', ''))
}

describe('a store that cannot be asked', () => {
  test('is no miss: the fill is not called, and the caller is told', async () => {
    const world = new Trouble()
    const pages = cache(world.locks, PLAIN)
    world.down = 'get'
    await expect(pages.get('page', () => expect.unreachable())).rejects.toThrow(EngineError)
    world.down = undefined
    expect(await pages.get('page', () => 'value')).toBe('value')
  })

  test('with outage: fill, is done without: once for the callers of a process, and nothing is stored', async () => {
    const world = new Trouble()
    const pages = cache(world.locks, { ...PLAIN, outage: 'fill' })
    world.down = 'all'
    let fills = 0
    const fill = async (): Promise<number> => {
      fills += 1
      await turns()
      return fills
    }
    expect(await Promise.all([1, 2, 3].map(() => pages.get('page', fill)))).toEqual([1, 1, 1])
    expect(await pages.get('page', fill)).toBe(2)
    await expect(pages.get('page', () => Promise.reject(new Error('the database as well')))).rejects.toThrow('as well')
    world.down = undefined
    expect(await pages.get('page', () => 'stored')).toBe('stored')
  })

  test('with outage: fill, gives no caller what was begun before it came: an invalidation may lie between', async () => {
    const world = new Trouble()
    const pages = cache(world.locks, { ...PLAIN, outage: 'fill' })
    const slow = gate()
    world.down = 'get'
    const before = pages.get('page', async () => {
      await slow.opened
      return 'old'
    })
    await turns()
    await pages.invalidate('page')
    const after = pages.get('page', () => 'new')
    await turns()
    slow.open()
    expect(await before).toBe('old')
    expect(await after).toBe('new')
  })

  test('is not what a fill is about that throws such an error itself: with outage: fill, it is called once', async () => {
    const { locks } = new Trouble()
    const pages = cache(locks, { ...PLAIN, outage: 'fill' })
    let fills = 0
    const asked = pages.get('page', () => {
      fills += 1
      throw new EngineError('elsewhere', 'another store is down', { outcome: 'unknown' })
    })
    await expect(asked).rejects.toThrow('another store is down')
    expect(fills).toBe(1)
  })

  test('with outage: fill and a first level, is not asked again for the ttl of that', async () => {
    const world = new Trouble()
    const pages = cache(world.locks, { ...PLAIN, outage: 'fill', local: { max: 10, ttl: '5s' } })
    world.down = 'all'
    expect(await pages.get('page', () => 1)).toBe(1)
    expect(await pages.get('page', () => 2)).toBe(1)
    await expect(pages.invalidate('page')).rejects.toThrow(EngineError)
    expect(await pages.get('page', () => 3)).toBe(3)
  })

  test.each(['fail', 'fill'] as const)('when the value is made is told, or the value is given: %s', async (outage) => {
    const world = new Trouble()
    const pages = cache(world.locks, { ...PLAIN, outage })
    const asked = pages.get('page', () => {
      world.down = 'put'
      return 'made'
    })
    if (outage === 'fill') expect(await asked).toBe('made')
    else await expect(asked).rejects.toThrow(EngineError)
    world.down = undefined
    expect(await pages.get('page', () => 'made again')).toBe('made again')
  })

  test('when the fill fails does not hide why it failed', async () => {
    const world = new Trouble()
    const pages = cache(world.locks, PLAIN)
    const asked = pages.get('page', () => {
      world.down = 'put'
      throw new Error('the database is down')
    })
    await expect(asked).rejects.toThrow('the database is down')
  })

  test('does not keep a stale value from being served, if it can be read', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, { ...PLAIN, stale: '1m' })
    await pages.get('page', () => 'old')
    await clock.advance('10s')
    of(0).putDelay = () => 1_000_000
    expect(await pages.get('page', () => 'new')).toBe('old')
  })

  test('that is closed is told, also with outage: fill', async () => {
    const world = new Trouble()
    const pages = cache(world.locks, { ...PLAIN, outage: 'fill' })
    await world.locks.close()
    await expect(pages.get('page', () => expect.unreachable())).rejects.toThrow('the locks were closed')
  })
})

describe('a key-value store of the user', () => {
  const large = 'x'.repeat(1_000_000)

  test('has the values, of any size, and the engine has what counts', async () => {
    const { of } = fleet(2)
    const map = new Map<string, { value: Uint8Array; until: number }>()
    const [here, there] = [0, 1].map((nth) => cache(of(nth).locks, { ...PLAIN, values: mapValues(map) }))
    expect(await here?.get('page', () => large)).toBe(large)
    expect(await there?.get('page', () => 'again')).toBe(large)
    expect([...map.keys()]).toEqual(['holdfast:value:cache:page'])
    await there?.invalidate('page')
    expect(await here?.get('page', () => 'new')).toBe('new')
  })

  test('that this process was not given has values that are nothing to it: it makes its own', async () => {
    const { of } = fleet(2)
    const [beside, without] = [cache(of(0).locks, { ...PLAIN, values: mapValues() }), cache(of(1).locks, PLAIN)]
    expect(await beside.get('page', () => 'beside')).toBe('beside')
    expect(await without.get('page', () => 'inside')).toBe('inside')
    expect(await beside.get('page', () => 'beside again')).toBe('beside again')
    expect(await without.get('page', () => undefined)).toBe(undefined)
    expect(await without.get('page', () => 'never')).toBe(undefined)
  })

  test('has the values of records that do not say that it has them, as earlier releases stored them', async () => {
    const { of } = fleet(1, (change) => ({ ...change, value: change.value && withoutMark(change.value) }))
    const pages = cache(of(0).locks, { ...PLAIN, values: mapValues() })
    expect(await pages.get('page', () => 'value')).toBe('value')
    expect(await pages.get('page', () => 'again')).toBe('value')
  })

  test('that has forgotten a value, or has an older one, has none', async () => {
    const { of } = fleet(1)
    const map = new Map<string, { value: Uint8Array; until: number }>()
    const pages = cache(of(0).locks, { ...PLAIN, values: mapValues(map) })
    await pages.get('page', () => 'first')
    const [[name, first]] = [...map] as [[string, { value: Uint8Array; until: number }]]
    await pages.invalidate('page')
    await pages.get('page', () => 'second')
    map.set(name, first)
    expect(await pages.get('page', () => 'third')).toBe('third')
    map.clear()
    expect(await pages.get('page', () => 'fourth')).toBe('fourth')
  })

  test('that is a Map does not keep what is over behind a value that lives for longer', async () => {
    const bytes = new Uint8Array(1)
    const over = Array.from({ length: 50 }, (_, nth) => [`over ${nth}`, { value: bytes, until: 0 }] as const)
    const map = new Map([['long', { value: bytes, until: Number.POSITIVE_INFINITY }], ...over])
    const values = mapValues(map)
    for (let time = 1; time <= 50; time += 1) await values.set('new', bytes, 3_600_000)
    expect([...map.keys()]).toEqual(['long', 'new'])
  })

  test('is served from, stale, when a refresh has failed', async () => {
    const { clock, of } = fleet(1)
    const pages = cache(of(0).locks, { ...PLAIN, stale: '1m', negative: '5s', values: mapValues() })
    await pages.get('page', () => large)
    await clock.advance('10s')
    for (let ask = 0; ask < 3; ask += 1) {
      expect(await pages.get('page', () => Promise.reject(new Error('down')))).toBe(large)
      await turns()
    }
  })

  test('can be a client of ioredis', async () => {
    const written: unknown[][] = []
    const values = ioredisValues({
      getBuffer: async () => (written[0]?.[1] as Buffer) ?? null,
      set: async (...words) => written.push(words),
    })
    const { of } = fleet(1)
    const pages = cache(of(0).locks, { ...PLAIN, values })
    expect(await pages.get('page', () => 'value')).toBe('value')
    expect(await pages.get('page', () => 'again')).toBe('value')
    expect(written).toEqual([['holdfast:value:cache:page', expect.any(Buffer), 'PX', 40_000]])
  })

  test.each(['get', 'set'] as const)('that fails is an outage as well: %s', async (verb) => {
    const working = mapValues()
    const values: ValueStore = { ...working, [verb]: () => Promise.reject(new Error('out of memory')) }
    const { of } = fleet(1)
    const asked = cache(of(0).locks, { ...PLAIN, values }).get('page', () => 'value')
    await expect(asked).rejects.toThrow(
      `values: the key-value store of cache() could not ${verb} a value: out of memory`,
    )
    const filling = cache(of(0).locks, { ...PLAIN, values, outage: 'fill' })
    expect(await filling.get('page', () => 'value')).toBe('value')
  })
})

test('an invalidation whose answer is lost is asked again, and a store that stays down is told', async () => {
  const world = new Trouble()
  const pages = cache(world.locks, PLAIN)
  await pages.get('page', () => 'old')
  world.down = 'put'
  const invalidating = pages.invalidate('page')
  const open = gate()
  setTimeout(() => {
    world.down = undefined
    open.open()
  }, 50)
  await open.opened
  await invalidating
  expect(await pages.get('page', () => 'new')).toBe('new')
  world.down = 'put'
  await expect(pages.invalidate('page')).rejects.toThrow(EngineError)
})
