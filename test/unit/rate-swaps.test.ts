/** Rate limits on a store without `take`: by versions, several processes at once. */
import { afterEach, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import { UnsupportedError } from '../../src/core/errors.ts'
import type { Store } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import type { Locks } from '../../src/locks.ts'
import { rateLimit, takeAll } from '../../src/recipes/rate-limit/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { closeAll, locksOn } from './once-world.ts'

afterEach(closeAll)

const clock = fakeClock()
const server = new MemoryServer({ clock })

interface Swapper {
  readonly locks: Locks
  readonly calls: string[]
}

/** `change`: what is different about its store. */
function newSwapper(change: (store: Store) => Partial<Store> = () => ({})): Swapper {
  const engine = memory({ server })
  const { store } = engine
  const calls: string[] = []
  const { get, put } = { get: store.get.bind(store), put: store.put.bind(store), ...change(store) }
  const plain: Store = {
    traits: store.traits,
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
  return { locks: locksOn(delegate(engine, { store: plain }), { clock }), calls }
}

test('the first take reads and puts, the next ones only put, and callers of one turn go together', async () => {
  const { locks, calls } = newSwapper()
  const api = rateLimit(locks, { limit: 5, per: '1s' })
  expect(await api.take('a')).toMatchObject({ allowed: true, remaining: 4 })
  expect(await api.take('a')).toMatchObject({ allowed: true, remaining: 3 })
  const verdicts = await Promise.all([1, 2, 3, 4].map(() => api.take('a')))
  expect(verdicts.map(({ allowed }) => allowed)).toEqual([true, true, true, false])
  expect(calls).toEqual(['get', 'put', 'put', 'put'])
  expect(await api.take('a')).toMatchObject({ allowed: false, retryAfterMs: 200 })
  await clock.advance(200)
  expect(await api.take('a')).toMatchObject({ allowed: true })
})

test('processes that take at once count each other', async () => {
  const limits = [1, 2, 3, 4].map(() => rateLimit(newSwapper().locks, { limit: 50, per: '1h' }))
  const take = async (api: (typeof limits)[number]): Promise<number> => {
    let taken = 0
    for (let i = 0; i < 30; i += 1) if ((await api.take('b')).allowed) taken += 1
    return taken
  }
  let over = false
  const all = Promise.all(limits.map(take)).finally(() => {
    over = true
  })
  while (!over) await clock.advance(1)
  // What drains in the few milliseconds of the run is less than one.
  expect((await all).reduce((sum, taken) => sum + taken, 0)).toBe(50)
})

test('a refusal is looked at again: another process may have given something back', async () => {
  const [one, other] = [newSwapper(), newSwapper()]
  const [api, theirs] = [one, other].map(({ locks }) => rateLimit(locks, { limit: 1, per: '1h' }))
  await api?.take('c')
  await theirs?.reset('c')
  expect(await api?.take('c')).toMatchObject({ allowed: true })
})

test('a mutant that puts without its version lets too many through', async () => {
  const unversioned = (store: Store): Partial<Store> => ({
    put: (changes) => store.put(changes.map((change) => ({ ...change, when: {} }))),
  })
  const limits = [1, 2].map(() => rateLimit(newSwapper(unversioned).locks, { limit: 1, per: '1h' }))
  const verdicts = await Promise.all(limits.map((api) => api.take('d')))
  expect(verdicts.filter(({ allowed }) => allowed)).toHaveLength(2)
})

test('several keys at once, and a server that does not tell its time, are refused in words', async () => {
  const { locks } = newSwapper()
  const limits = ['x', 'y'].map((name) => rateLimit(locks, { name, limit: 1, per: '1s' }))
  await expect(takeAll(limits.map((limit) => limit.of('e')))).rejects.toThrow(UnsupportedError)
  const timeless = newSwapper((store) => ({
    get: async (keys) => (await store.get(keys)).map((got) => ({ ...got, serverTimeMs: null })),
  }))
  const api = rateLimit(timeless.locks, { limit: 1, per: '1s', outage: 'allow' })
  await expect(api.take('f')).rejects.toThrow('does not tell its time')
})
