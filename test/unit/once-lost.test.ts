/** `once` on the memory engine: what an execution has done for good is stored, though its lease was lost meanwhile. */
import { afterEach, describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Put } from '../../src/core/store.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { type Attempt, type OnceOptions, once, ReplayedFailureError } from '../../src/recipes/once/index.ts'
import { closeAll, type Fleet, fleet, gate, locksOn, turns } from './once-world.ts'

afterEach(closeAll)

/** How the first process loses the lease of `once::a`. No other execution begins. */
const LOSSES: Readonly<Record<string, (world: Fleet) => Promise<unknown>>> = {
  'a drain': async ({ clock, of }) => {
    void of(0).locks.drain({ grace: '100ms' })
    await clock.advance('200ms')
  },
  'a pause': async ({ clock }) => {
    clock.stall('4s')
    await clock.advance('100ms')
  },
  'an eviction': async ({ of }) => {
    const { entries } = await of(1).locks.inspect('once::a')
    await of(1).locks.evict('once::a', entries[0]?.token as bigint)
    await turns()
  },
}

/** The first process charges, loses its lease in the middle, and goes on to its end. */
async function charged(loss: string, charge: (attempt: Attempt) => Promise<unknown>, options: OnceOptions = {}) {
  const world = fleet(2)
  const { of } = world
  const [begun, goesOn] = [gate<Attempt>(), gate()]
  const first = once(of(0).locks, options).run('a', async (attempt) => {
    begun.open(attempt)
    await goesOn.opened
    return charge(attempt)
  })
  first.catch(() => {})
  const { signal } = await begun.opened
  await turns()
  await LOSSES[loss]?.(world)
  expect(signal.aborted).toBe(true)
  goesOn.open()
  return { first, other: once(of(1).locks, options) }
}

describe.each(Object.keys(LOSSES))('an execution that has lost its lease by %s, and not to another one,', (loss) => {
  test('stores a failure that is final: its caller is told what it threw, and the work is not done again', async () => {
    const declined = new Error('declined')
    const { first, other } = await charged(loss, async (attempt) => {
      throw attempt.final(declined)
    })
    await expect(first).rejects.toBe(declined)
    await expect(other.run('a', () => 'again')).rejects.toThrow(ReplayedFailureError)
  })

  test('does not keep what it threw because it was told to stop', async () => {
    const stopped = ({ signal }: Attempt): Promise<never> => Promise.reject(signal.reason)
    const { first, other } = await charged(loss, stopped, { failures: 'keep' })
    await expect(first).rejects.toThrow(LeaseLostError)
    expect(await other.run('a', () => 'again')).toMatchObject({ value: 'again', replayed: false })
  })
})

test('a commit that was rolled back, and is refused when it is tried again after the loss, has not failed for good', async () => {
  const engine = memory()
  const { store } = engine
  const rolledBack: Put = { state: 'stored', version: 1_000n, mark: 0n, serverTimeMs: 0 }
  const inTransactions = delegate(engine, {
    store: {
      traits: store.traits,
      get: (keys) => store.get(keys),
      put: (changes) => store.put(changes),
      list: (prefix) => store.list(prefix),
      putIn: async () => rolledBack,
    },
  })
  const locks = locksOn(inTransactions)
  const pay = once(locks, { failures: 'keep' })
  const lost = pay.run('a', async (attempt) => {
    await attempt.commit({}, 'paid')
    await locks.evict('once::a', attempt.token as bigint)
    await turns()
    return attempt.commit({}, 'paid')
  })
  await expect(lost).rejects.toThrow(LeaseLostError)
  expect(await pay.run('a', () => 'paid again')).toMatchObject({ value: 'paid again', replayed: false })
})

test('a step that ends after the loss of the lease, and cannot be stored, is not done again', async () => {
  const world = fleet(2)
  const { of } = world
  const answered = gate()
  let charges = 0
  const charge = (attempt: Attempt): Promise<unknown> =>
    attempt.step('charge', async () => {
      charges += 1
      await answered.opened
      return { cents: 10n }
    })
  const first = once(of(0).locks).run('a', charge)
  first.catch(() => {})
  await expect.poll(() => charges).toBe(1)
  await LOSSES['a drain']?.(world)
  answered.open()
  await expect(first).rejects.toThrow(/cannot be stored/)
  await expect(once(of(1).locks).run('a', charge)).rejects.toThrow(ReplayedFailureError)
  expect(charges).toBe(1)
})

test('a final failure of an execution that was replaced is not stored: its caller hears of the loss', async () => {
  const { clock, of } = fleet(2)
  const [begun, goesOn] = [gate(), gate()]
  const first = once(of(0).locks).run('a', async (attempt) => {
    begun.open()
    await goesOn.opened
    throw attempt.final(new Error('declined'))
  })
  first.catch(() => {})
  await begun.opened
  await turns()
  of(0).stopped = true
  const working = gate<string>()
  const second = once(of(1).locks).run('a', () => working.opened)
  await clock.advance('4s')
  goesOn.open()
  await expect(first).rejects.toThrow(LeaseLostError)
  working.open('paid')
  expect(await second).toMatchObject({ value: 'paid', replayed: false })
})
