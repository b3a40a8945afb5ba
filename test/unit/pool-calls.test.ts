/** How the steps of one pool are sent: two calls at once where the store allows it, and never two about one id. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Store } from '../../src/core/store.ts'
import type { PoolStep } from '../../src/core/store-hold.ts'
import { stock } from '../../src/recipes/stock/index.ts'
import { memory } from '../../src/testing.ts'
import { StockWorld } from './stock-world.ts'

const BUYERS = 8

let it = new StockWorld()
afterEach(async () => {
  await it.close()
  it = new StockWorld()
})

/** A store that answers when `answer` is called, and what it was asked until then. */
function slowStore(holdsOverlap: boolean) {
  const engine = memory({ server: it.server })
  const store = engine.store as Store & Required<Pick<Store, 'hold'>>
  const unanswered: { steps: readonly PoolStep[]; answer: () => void }[] = []
  const slow: Store = {
    traits: { ...store.traits, holdsOverlap },
    get: (keys) => store.get(keys),
    put: (changes) => store.put(changes),
    list: (prefix) => store.list(prefix),
    hold: (steps) =>
      new Promise((resolve) => {
        unanswered.push({ steps, answer: () => resolve(store.hold(steps)) })
      }),
  }
  const locks = it.locks(delegate(engine, { traits: { ...engine.traits, splitFrom: 2 }, store: slow }))
  const turn = () => new Promise((resolve) => setImmediate(resolve))
  const answerAll = async () => {
    while (unanswered.length > 0) {
      unanswered.shift()?.answer()
      await turn()
    }
  }
  return { seats: stock(locks, 'concert:9'), unanswered, turn, answerAll }
}

describe('steps of one pool', () => {
  test.each([
    [true, [BUYERS / 2, BUYERS / 2]],
    [false, [BUYERS]],
  ])('where calls may overlap (%s), so many are on their way: %j', async (holdsOverlap, expected) => {
    await it.seats().set({ A: BUYERS })
    const { seats, unanswered, turn, answerAll } = slowStore(holdsOverlap)
    const bought = Array.from({ length: BUYERS }, (_, buyer) => seats.reserve(`cart ${buyer}`, { A: 1 }))
    await turn()
    expect(unanswered.map(({ steps }) => steps.length)).toEqual(expected)
    await answerAll()
    expect((await Promise.all(bought)).every((hold) => hold?.state === 'held')).toBe(true)
  })

  test('one id is in one call at a time', async () => {
    await it.seats().set({ A: BUYERS })
    const { seats, unanswered, turn, answerAll } = slowStore(true)
    const first = seats.reserve('cart', { A: 1 })
    await turn()
    const others = [seats.confirm('cart'), seats.cancel('cart'), seats.reserve('another cart', { A: 1 })]
    await turn()
    expect(unanswered.map(({ steps }) => steps.map(({ id }) => id))).toEqual([['cart'], ['another cart']])
    await answerAll()
    expect((await first)?.state).toBe('held')
    expect((await Promise.all(others)).slice(0, 2)).toEqual(['sold', 'sold'])
  })
})
