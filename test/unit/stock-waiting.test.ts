/** The waiting list of a stock: who is woken when, and who waits for whom. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { memory } from '../../src/testing.ts'
import { held, StockWorld } from './stock-world.ts'

let world: StockWorld

beforeEach(() => {
  world = new StockWorld()
})

afterEach(() => world.close())

describe('the waiting list', () => {
  test('wakes the first in line when a hold is cancelled, in another process', async () => {
    const [one, other] = [world.seats(), world.seats()]
    await one.set({ A: 1 })
    const hold = await held(one.reserve('first', { A: 1 }))
    const waiting = other.reserve('second', { A: 1 }, { wait: '1m' })
    await world.clock.advance(1)
    await hold.cancel()
    await world.clock.advance(1)
    expect(await held(waiting)).toMatchObject({ id: 'second', state: 'held' })
  })

  test('lets the first in line have what lapses, when it lapses', async () => {
    const one = world.seats()
    await one.set({ A: 1 })
    await held(one.reserve('first', { A: 1 }, { hold: '3s' }))
    let at = 0
    const waiting = world
      .seats()
      .reserve('second', { A: 1 }, { wait: '1m' })
      .then((hold) => {
        at = world.clock.now()
        return hold
      })
    await world.clock.advance('4s')
    expect(await held(waiting)).toMatchObject({ id: 'second' })
    expect(at).toBeLessThan(3_010)
  })

  test('asks nothing while nothing lapses and nothing is given back', async () => {
    let asked = 0
    const counting = world.through((store, steps) => {
      asked += steps.length
      return store.hold(steps)
    })
    const one = world.seats()
    await one.set({ A: 1 })
    await held(one.reserve('first', { A: 1 }))
    const waiting = Array.from({ length: 5 }, (_, index) =>
      world.seats({}, world.locks(counting)).reserve(`${index}`, { A: 1 }, { wait: '1m' }),
    )
    await world.clock.advance('50s')
    // Each asks once when it comes; the first in line once more, and then every 8 s.
    expect(asked).toBeLessThanOrEqual(5 + 1 + 7)
    await world.clock.advance('11s')
    expect(await Promise.all(waiting)).toEqual(Array.from({ length: 5 }, () => undefined))
  })

  test('serves in order, and a large cart is not overtaken by small ones, nor by who does not wait', async () => {
    const one = world.seats()
    await one.set({ A: 4 })
    const holds = await Promise.all(['a', 'b', 'c', 'd'].map((id) => held(one.reserve(id, { A: 1 }))))
    const got: string[] = []
    const wait = async (id: string, quantity: number): Promise<void> => {
      if ((await world.seats().reserve(id, { A: quantity }, { wait: '5m' })) !== undefined) got.push(id)
    }
    const waiting = [wait('large', 3)]
    await world.clock.advance(5)
    waiting.push(wait('small', 1))
    await world.clock.advance(5)
    for (const hold of holds.slice(0, 2)) await hold.cancel()
    await world.clock.advance(5)
    expect(await one.reserve('newcomer', { A: 1 }), 'two are left, for the first in line').toBeUndefined()
    expect(got).toEqual([])
    await holds[2]?.cancel()
    await world.clock.advance(5)
    await holds[3]?.cancel()
    await world.clock.advance(5)
    await Promise.all(waiting)
    expect(got).toEqual(['large', 'small'])
  })

  test('keeps waiters of different items apart', async () => {
    const one = world.seats()
    await one.set({ A: 1, B: 1 })
    await held(one.reserve('a', { A: 1 }))
    const b = await held(one.reserve('b', { B: 1 }))
    const first = world.seats().reserve('wants A', { A: 1 }, { wait: '1m' })
    await world.clock.advance(5)
    const second = world.seats().reserve('wants B', { B: 1 }, { wait: '1m' })
    await world.clock.advance(5)
    await b.cancel()
    await world.clock.advance(5)
    expect(await second).toBeDefined()
    await world.clock.advance('2m')
    expect(await first).toBeUndefined()
  })

  test('is left when the wait is over or cancelled, and then others get the items', async () => {
    const one = world.seats()
    await one.set({ A: 1 })
    const hold = await held(one.reserve('first', { A: 1 }))
    const ending = new AbortController()
    const aborted = world.seats().reserve('second', { A: 1 }, { wait: '1m', signal: ending.signal })
    await world.clock.advance(5)
    ending.abort(new Error('the buyer has gone'))
    await expect(aborted).rejects.toThrow('the buyer has gone')
    const tooLong = world.seats().reserve('third', { A: 1 }, { wait: '2s' })
    await world.clock.advance('3s')
    expect(await tooLong).toBeUndefined()
    await hold.cancel()
    expect(await one.reserve('newcomer', { A: 1 })).toBeDefined()
  })

  test('goes on when the first in line has died', async () => {
    const one = world.seats()
    await one.set({ A: 1 })
    const hold = await held(one.reserve('first', { A: 1 }, { hold: '1h' }))
    const dying = world.locks(
      delegate(memory({ server: world.server }), {
        renew: () => new Promise(() => undefined),
        leave: () => new Promise(() => undefined),
      }),
    )
    const dead = world
      .seats({}, dying)
      .reserve('dead', { A: 1 }, { wait: '1m' })
      .catch(() => undefined)
    await world.clock.advance(5)
    const next = world.seats().reserve('next', { A: 1 }, { wait: '3m' })
    await world.clock.advance('40s')
    await hold.cancel()
    await world.clock.advance('10s')
    expect(await next).toBeDefined()
    await world.clock.advance('2m')
    await dead
  })

  test('rings when there is more stock', async () => {
    const one = world.seats()
    await one.set({ A: 0 })
    const waiting = world.seats().reserve('cart', { A: 2 }, { wait: '1m' })
    await world.clock.advance(5)
    await one.add({ A: 2 })
    await world.clock.advance(5)
    expect(await waiting).toBeDefined()
  })
})
