/** `stock` on a memory server: what users ask, and what they are answered. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import { EngineError, StockError, UnsupportedError } from '../../src/core/errors.ts'
import { type StockOptions, stock } from '../../src/recipes/stock/index.ts'
import { MemoryServer, memory } from '../../src/testing.ts'
import { held, leftOf, StockWorld } from './stock-world.ts'

let world: StockWorld

beforeEach(() => {
  world = new StockWorld()
})

afterEach(() => world.close())

describe('a hold', () => {
  test('keeps its units from others, of several items all or none', async () => {
    const one = world.seats()
    await one.set({ A: 3, B: 1 })
    const hold = await held(one.reserve('cart 1', { A: 2, B: 1 }))
    expect(hold).toMatchObject({ id: 'cart 1', items: { A: 2, B: 1 }, state: 'held' })
    expect(await one.reserve('cart 2', { A: 1, B: 1 })).toBeUndefined()
    expect(await leftOf(one)).toBe(1)
    expect(await one.reserve('cart 3', { A: 1 })).toBeDefined()
    expect(await one.show()).toEqual({
      name: 'concert:9',
      items: [
        { item: 'A', stock: 3, sold: 0, held: 3, left: 0 },
        { item: 'B', stock: 1, sold: 0, held: 1, left: 0 },
      ],
      holds: 2,
      nextLapseMs: 600_000,
    })
  })

  test('is one for all retries with its id, also from other processes, and refuses other quantities', async () => {
    const one = world.seats()
    await one.set({ A: 5 })
    await held(one.reserve('cart', { A: 2 }))
    await world.clock.advance('1m')
    const again = await held(
      world.seats().reserve('cart', [
        { item: 'A', quantity: 1 },
        { item: 'A', quantity: 1 },
      ]),
    )
    expect(again.remainingMs).toBe(540_000)
    expect(await leftOf(one)).toBe(3)
    await expect(one.reserve('cart', { A: 3 })).rejects.toThrow(
      "stock 'concert:9': the id 'cart' holds {\"A\":2}: another cart needs another id",
    )
    await expect(one.reserve('cart', { A: 3 })).rejects.toMatchObject({ code: 'STOCK', why: 'differs' })
  })

  test('lapses by itself, and its units are there in that instant', async () => {
    const one = world.seats()
    await one.set({ A: 1 })
    const hold = await held(one.reserve('slow', { A: 1 }, { hold: '1s' }))
    await world.clock.advance(999)
    expect(await one.reserve('quick', { A: 1 })).toBeUndefined()
    await world.clock.advance(1)
    expect(hold.remainingMs).toBe(0)
    expect(await one.find('slow')).toBeUndefined()
    expect(await one.reserve('quick', { A: 1 })).toBeDefined()
    expect(await hold.confirm()).toBe('lapsed')
    expect(await hold.extend()).toBe('lapsed')
    expect(await hold.cancel()).toBe('lapsed')
  })

  test('is extended, never shortened', async () => {
    const one = world.seats()
    await one.set({ A: 1 })
    const hold = await held(one.reserve('cart', { A: 1 }, { hold: '10s' }))
    expect(await hold.extend('5s')).toBe('held')
    expect(hold.remainingMs).toBe(10_000)
    await world.clock.advance('9s')
    expect(await one.extend('cart', '30s')).toBe('held')
    await world.clock.advance('29s')
    expect(await hold.confirm()).toBe('sold')
    expect(await hold.extend()).toBe('sold')
  })

  test('is sold once, however often it is confirmed, for as long as its id is remembered', async () => {
    const one = world.seats({ keep: '1h' })
    await one.set({ A: 4 })
    const hold = await held(one.reserve('cart', { A: 2 }))
    expect(await hold.confirm()).toBe('sold')
    await world.clock.advance('59m')
    expect(await world.seats().confirm('cart')).toBe('sold')
    expect(await hold.cancel()).toBe('sold')
    expect(await one.reserve('cart', { A: 2 })).toMatchObject({ state: 'sold', remainingMs: 0 })
    expect(await one.show()).toMatchObject({ items: [{ stock: 4, sold: 2, held: 0, left: 2 }], holds: 0 })
    await world.clock.advance('2m')
    expect(await one.reserve('cart', { A: 2 })).toMatchObject({ state: 'held' })
  })

  test('that has lapsed is sold all the same if there still is enough, and only then', async () => {
    const one = world.seats()
    await one.set({ A: 2 })
    const [first, second] = [
      await held(one.reserve('first', { A: 1 }, { hold: '1s' })),
      await held(one.reserve('second', { A: 1 }, { hold: '1s' })),
    ]
    await world.clock.advance('2s')
    await held(one.reserve('third', { A: 1 }))
    expect(await first.confirm({ late: 'if-available' })).toBe('sold')
    expect(await second.confirm({ late: 'if-available' })).toBe('lapsed')
    expect(await one.confirm('first', { late: 'if-available', items: { A: 1 } })).toBe('sold')
    expect(await one.show()).toMatchObject({ items: [{ sold: 1, held: 1, left: 0 }] })
    await expect(one.confirm('first', { late: 'if-available' })).rejects.toThrow(/needs items/)
  })

  test('is shown with what it holds', async () => {
    const one = world.seats()
    await one.set({ A: 1 })
    const hold = await held(one.reserve('cart', { A: 1 }))
    expect(JSON.parse(JSON.stringify(hold))).toEqual({
      id: 'cart',
      items: { A: 1 },
      state: 'held',
      remainingMs: 600_000,
    })
  })
})

describe('a stock', () => {
  test('is changed, and never below what is sold and held unless that is forced', async () => {
    const one = world.seats()
    await one.set({ A: 2 })
    await one.add({ A: 3, B: 1 })
    await held(one.reserve('cart', { A: 4 }))
    await expect(one.remove({ A: 2 })).rejects.toThrow(StockError)
    await expect(one.set({ A: 3 })).rejects.toThrow(/less of 'A' than is sold and held/)
    expect(await leftOf(one)).toBe(1)
    await one.remove({ A: 2 }, { force: true })
    expect(await leftOf(one)).toBe(-1)
    expect(await one.confirm('cart'), 'what was promised is kept').toBe('sold')
    await one.add({ A: 1 })
    expect(await one.reserve('next', { A: 1 })).toBeUndefined()
  })

  test('is another one under another name', async () => {
    const locks = world.locks()
    await stock(locks, 'one').set({ A: 1 })
    await expect(stock(locks, 'two').reserve('cart', { A: 1 })).rejects.toThrow(
      "stock 'two': it has no item 'A': say how many there are, with set({ 'A': 10 })",
    )
  })

  test('may have items with the names that every object has', async () => {
    const one = world.seats()
    await one.set([
      { item: '__proto__', quantity: 1 },
      { item: 'constructor', quantity: 1 },
    ])
    const hold = await held(one.reserve('cart', [{ item: '__proto__', quantity: 1 }]))
    expect(await hold.confirm({ late: 'if-available' })).toBe('sold')
    expect(await leftOf(one, '__proto__')).toBe(0)
  })

  test('refuses what cannot be meant, before anything is done', async () => {
    const one = world.seats()
    const wrong: [() => unknown, RegExp][] = [
      [() => world.seats({ hodl: '1m' } as StockOptions), /unknown option 'hodl' in stock\(\).*did you mean 'hold'/],
      [() => world.seats({ hold: 0 }), /hold must be from 1ms/],
      [() => stock(world.locks(), ''), /the name of a stock/],
      [() => one.reserve('', { A: 1 }), /the id of a hold/],
      [() => one.reserve('a\nb', { A: 1 }), /without control characters/],
      [() => one.reserve('id', {}), /at least one item/],
      [() => one.reserve('id', { A: 0 }), /'A' must be a whole number from 1 to/],
      [() => one.reserve('id', { A: 1.5 }), /must be a whole number/],
      [() => one.reserve('id', 'A' as never), /items must be an object/],
      [() => one.reserve('id', [7] as never), /a line must be an object/],
      [() => one.reserve('id', { A: 1 }, { wiat: '1s' } as never), /did you mean 'wait'/],
      [() => one.reserve('id', { A: 1 }, { signal: true } as never), /signal must be an AbortSignal/],
      [() => one.confirm('id', { late: 'yes' } as never), /late must be refuse or if-available/],
      [() => one.set({ A: -1 }), /from 0 to/],
      [() => one.set({ A: 1 }, { force: 1 } as never), /force must be true or false/],
      [() => one.reserve('id', Object.fromEntries(Array.from({ length: 101 }, (_, i) => [`i${i}`, 1]))), /at most 100/],
    ]
    for (const [ask, message] of wrong) await expect((async () => ask())()).rejects.toThrow(message)
    expect(world.server.size).toBe(0)
  })

  test('says which option helps where the engine keeps none, and takes it', async () => {
    const engine = memory({ server: new MemoryServer({ clock: world.clock }) })
    const locks = world.locks({ ...delegate(engine, {}), store: undefined } as unknown as Engine)
    expect(() => stock(locks, 'x')).toThrow(UnsupportedError)
    expect(() => stock(locks, 'x')).toThrow(/give it the option store/)
    const one = stock(locks, 'x', { store: world.locks() })
    await one.set({ A: 1 })
    expect(await one.reserve('cart', { A: 1 })).toBeDefined()
  })
})

describe('an answer that is lost', () => {
  test('is asked for again, and each id counts once', async () => {
    let calls = 0
    const one = world.seats(
      {},
      world.locks(
        world.through(async (store, steps) => {
          const answers = await store.hold(steps)
          calls += 1
          if (calls % 2 === 1) throw new EngineError('memory', 'the answer was lost', { outcome: 'unknown' })
          return answers
        }),
      ),
    )
    const soon = async <Value>(asked: Promise<Value>): Promise<Value> => {
      const [value] = await Promise.all([asked, world.clock.advance('1s')])
      return value
    }
    await soon(one.set({ A: 5 }))
    await soon(one.add({ A: 5 }))
    const hold = await held(soon(one.reserve('cart', { A: 3 })))
    expect(await soon(hold.confirm())).toBe('sold')
    await soon(one.remove({ A: 1 }))
    expect(await soon(one.show())).toMatchObject({ items: [{ stock: 9, sold: 3, held: 0, left: 6 }] })
    expect(calls).toBe(12)
  })
})
