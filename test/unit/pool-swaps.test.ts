/** Stock on a store without `hold`: all of it in one record, changed by versions, several processes at once. */
import { afterEach, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { comparable, PoolTrace } from '../../conformance/pool-trace.ts'
import { UnsupportedError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import type { PoolAnswer } from '../../src/core/store-hold.ts'
import { MemoryPools } from '../../src/engines/memory/pools.ts'
import { type Stock, stock } from '../../src/recipes/stock/index.ts'
import { PoolStore } from '../../src/store/pool-store.ts'
import { memory } from '../../src/testing.ts'
import { leftOf, StockWorld } from './stock-world.ts'

let world = new StockWorld()

afterEach(async () => {
  await world.close()
  world = new StockWorld()
})

interface Swapper {
  readonly locks: ReturnType<StockWorld['locks']>
  readonly calls: string[]
}

/** The locks of a process whose store has no `hold`. `change`: what else is different about it. */
function newSwapper(change: (store: Store) => Partial<Store> = () => ({})): Swapper {
  const engine = memory({ server: world.server })
  const { store } = engine
  const calls: string[] = []
  const { get, put, traits } = {
    get: store.get.bind(store),
    put: store.put.bind(store),
    traits: store.traits,
    ...change(store),
  }
  const plain: Store = {
    traits,
    get: (keys) => {
      calls.push('get')
      return get(keys)
    },
    put: (changes) => {
      calls.push('put')
      return put(changes)
    },
    list: (prefix) => store.list(prefix),
  }
  return { locks: world.locks(delegate(engine, { store: plain })), calls }
}

function shop(change?: (store: Store) => Partial<Store>): Stock {
  return stock(newSwapper(change).locks, 'concert:9', { hold: '10m' })
}

test.each([1, 2, 3])('three processes are answered as by the rule, seed %i', async (seed) => {
  const processes = [1, 2, 3].map(() => newSwapper().locks)
  const rule = new MemoryPools()
  const trace = new PoolTrace(seed, ['one pool'])
  for (let call = 0; call < 300; call += 1) {
    const next = trace.next()
    if (typeof next === 'number') {
      await world.clock.advance(next)
      continue
    }
    const locks = processes[call % processes.length] as (typeof processes)[number]
    const pool = new PoolStore('stock', locks, 'one pool')
    // A hundred and more at once are more than one record has room for.
    const steps = next.slice(0, 60)
    const found = await Promise.all(steps.map((step) => pool.step(step)))
    const expected = steps.map((step): PoolAnswer => rule.step(step, world.clock.now()))
    for (const [index, step] of steps.entries())
      expect(comparable(found[index]), `call ${call}, ${JSON.stringify(step)}`).toEqual(comparable(expected[index]))
  }
})

test('the first step reads and puts, the next ones only put, and what one turn asks goes out together', async () => {
  const { locks, calls } = newSwapper()
  const seats = stock(locks, 'concert:9')
  await seats.set({ A: 4 })
  await seats.reserve('one', { A: 1 })
  expect(calls).toEqual(['get', 'put', 'put'])
  const holds = await Promise.all(['2', '3', '4', '5'].map((id) => seats.reserve(id, { A: 1 })))
  expect(holds.map((hold) => hold !== undefined)).toEqual([true, true, true, false])
  expect(calls).toEqual(['get', 'put', 'put', 'put'])
})

test('shops that sell at once sell no more than there is', async () => {
  const shops = [1, 2, 3, 4].map(() => shop())
  await shops[0]?.set({ A: 10 })
  const buy = async (seats: Stock, number: number): Promise<number> => {
    let sold = 0
    for (let buyer = 0; buyer < 12; buyer += 1) {
      const hold = await seats.reserve(`buyer ${number} ${buyer}`, { A: 1 })
      if ((await hold?.confirm()) === 'sold') sold += 1
    }
    return sold
  }
  let over = false
  const all = Promise.all(shops.map(buy)).finally(() => {
    over = true
  })
  while (!over) await world.clock.advance(1)
  expect((await all).reduce((sum, sold) => sum + sold, 0)).toBe(10)
  expect(await leftOf(shops[1] as Stock)).toBe(0)
})

test('a mutant that puts without its version sells a seat twice', async () => {
  const unversioned = (store: Store): Partial<Store> => ({
    put: (changes) => store.put(changes.map((change) => ({ ...change, when: {} }))),
  })
  const shops = [1, 2].map(() => shop(unversioned))
  await shops[0]?.set({ A: 1 })
  await shops[1]?.set({ B: 1 })
  const holds = await Promise.all(shops.map((seats, number) => seats.reserve(`buyer ${number}`, { A: 1 })))
  expect(holds.filter((hold) => hold !== undefined)).toHaveLength(2)
})

test('a hold is said to live no longer than other processes let it live, however slow the server was', async () => {
  const slow = (store: Store): Partial<Store> => ({
    get: async (keys) => {
      world.clock.stall(400)
      const got = await store.get(keys)
      world.clock.stall(600)
      return got
    },
  })
  const quick = shop()
  await quick.set({ A: 1 })
  const hold = await shop(slow).reserve('slow', { A: 1 }, { hold: '10s' })
  await world.clock.advance(Math.floor(hold?.remainingMs ?? 0) - 1)
  expect(await quick.find('slow')).toBeDefined()
})

test('a stock that has no room for more says so, and those that hold can still buy', async () => {
  const small = (store: Store): Partial<Store> => ({ traits: { ...store.traits, valueLimitBytes: 500 } })
  const seats = shop(small)
  await seats.set({ A: 1000 })
  const asked = await Promise.allSettled(Array.from({ length: 30 }, (_, id) => seats.reserve(`${id}`, { A: 1 })))
  const refused = asked.flatMap((one) => (one.status === 'rejected' ? [one.reason] : []))
  expect(refused.length).toBeGreaterThan(0)
  expect(refused.length).toBeLessThan(30)
  expect(refused[0]).toBeInstanceOf(UnsupportedError)
  expect(refused[0]).toMatchObject({ message: expect.stringContaining('no room for more holds') })
  expect(await seats.confirm('0')).toBe('sold')
  expect(await seats.cancel('1')).toBe('cancelled')
})

test('a server that does not tell its time is refused in words', async () => {
  const timeless = (store: Store): Partial<Store> => ({
    get: async (keys) => (await store.get(keys)).map((got) => ({ ...got, serverTimeMs: null })),
  })
  await expect(shop(timeless).show()).rejects.toThrow('does not tell its time, by which holds lapse')
})
