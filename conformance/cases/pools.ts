/** Stock: a store that has `hold` decides as core/pool-rule.ts does, and at no instant holds more than there is. */
import assert from 'node:assert/strict'
import type { Store } from '../../src/core/store.ts'
import type { PoolAnswer, PoolStep } from '../../src/core/store-hold.ts'
import { fakeClock, MemoryServer, memory } from '../../src/testing.ts'
import type { Case, Group } from '../case.ts'
import { storing } from '../needs.ts'
import { PoolTrace, stepOf, timeless } from '../pool-trace.ts'
import type { Scene } from '../scene.ts'

type HoldingStore = Required<Pick<Store, 'hold'>> & Store

const CLIENTS = 3
const CALLS = 60
/** What a trace counts in ticks lives for longer than the case takes. */
const TRACE_TIMES = 1000
const SHORT_MS = 150
const LONG_MS = 600_000

async function holdingStore(scene: Scene): Promise<HoldingStore> {
  const [, store] = await scene.engineAndStore()
  if (store.hold === undefined) scene.doesNotApply('its store leaves stock to get and put')
  return store as HoldingStore
}

/** The answers to steps of one call, in portions that the store takes. */
async function answersOf(store: HoldingStore, steps: readonly PoolStep[]): Promise<readonly PoolAnswer[]> {
  const answers: PoolAnswer[] = []
  const { batchLimit } = store.traits
  for (let from = 0; from < steps.length; from += batchLimit)
    answers.push(...(await store.hold(steps.slice(from, from + batchLimit))))
  assert.equal(answers.length, steps.length, 'one answer to each step')
  return answers
}

async function ask(store: HoldingStore, step: PoolStep): Promise<PoolAnswer> {
  const [answer] = await answersOf(store, [step])
  return answer as PoolAnswer
}

function lived(step: PoolStep): PoolStep {
  return { ...step, ms: step.ms * TRACE_TIMES, wantMs: step.wantMs > 0 ? 60_000 : 0 }
}

async function set(store: HoldingStore, key: string, stock: number): Promise<void> {
  const lines = [{ item: 'A', quantity: stock }]
  assert.equal((await ask(store, stepOf(key, 'set', { id: '\tset', lines, ms: LONG_MS }))).state, 'changed')
}

const cases: readonly Case[] = [
  {
    name: 'steps on pools are answered as the rule says',
    async run(scene) {
      const stores = await scene.times(CLIENTS, () => holdingStore(scene))
      for (let round = 0; round < scene.rounds; round += 1) {
        const reference = memory({ server: new MemoryServer({ clock: fakeClock() }) }).store as HoldingStore
        const trace = new PoolTrace(scene.seed + round, [scene.key('stock one'), scene.key('stock two')])
        for (let call = 0; call < CALLS; call += 1) {
          const next = trace.next()
          if (typeof next === 'number') continue
          const steps = next.map(lived)
          const store = stores[call % stores.length] as HoldingStore
          const [expected, found] = [await answersOf(reference, steps), await answersOf(store, steps)]
          const told = `HOLDFAST_SEED=${scene.seed + round}, call ${call}: ${JSON.stringify(steps)}`
          assert.deepEqual(found.map(timeless), expected.map(timeless), told)
        }
      }
    },
  },
  {
    name: 'a hold that has lapsed is there for others, and cannot be confirmed; one that was extended lives',
    async run(scene) {
      const store = await holdingStore(scene)
      const key = scene.key('lapsing')
      await set(store, key, 3)
      const lines = [{ item: 'A', quantity: 1 }]
      for (const id of ['lapses', 'is extended'])
        assert.equal((await ask(store, stepOf(key, 'reserve', { id, lines, ms: SHORT_MS }))).state, 'held')
      const extended = await ask(store, stepOf(key, 'extend', { id: 'is extended', ms: LONG_MS }))
      assert(extended.state === 'held' && extended.livesForMs > SHORT_MS, 'it lives for longer')
      const two = stepOf(key, 'reserve', { id: 'two', lines: [{ item: 'A', quantity: 2 }], ms: LONG_MS })
      await scene.eventually('the units of the hold are there', async () => (await ask(store, two)).state === 'held')
      const outcomes = await answersOf(store, [
        stepOf(key, 'confirm', { id: 'lapses', ms: LONG_MS }),
        stepOf(key, 'find', { id: 'lapses' }),
        stepOf(key, 'extend', { id: 'lapses', ms: LONG_MS }),
        stepOf(key, 'confirm', { id: 'lapses', lines, ms: LONG_MS, flag: true }),
        stepOf(key, 'confirm', { id: 'is extended', ms: LONG_MS }),
      ])
      assert.deepEqual(
        outcomes.map(({ state }) => state),
        ['lapsed', 'lapsed', 'lapsed', 'lapsed', 'sold'],
      )
    },
  },
  {
    name: 'clients that reserve at once get no more than there is, and each id counts once',
    async run(scene) {
      const stores = await scene.times(CLIENTS, () => holdingStore(scene))
      const [first] = stores as [HoldingStore]
      const key = scene.key('at once')
      const [buyers, stock] = [20 * scene.rounds, 7]
      await set(first, key, stock)
      const lines = [{ item: 'A', quantity: 1 }]
      const reserving = async (store: HoldingStore, client: number): Promise<string[]> => {
        const held: string[] = []
        for (let buyer = 0; buyer < buyers; buyer += 1) {
          const id = `buyer ${(buyer + 3 * client) % buyers}`
          const { state } = await ask(store, stepOf(key, 'reserve', { id, lines, ms: LONG_MS }))
          if (state === 'held') held.push(id)
        }
        return held
      }
      // All of them ask for all buyers, each in an order of its own: five of six are retries.
      const held = (await Promise.all([...stores, ...stores].map(reserving))).flat()
      assert.equal(new Set(held).size, stock, 'as many buyers hold a unit as there are')
      const confirms = [...held, ...held].map((id) => stepOf(key, 'confirm', { id, ms: LONG_MS }))
      const sold = await Promise.all(stores.map((store) => answersOf(store, confirms)))
      assert(
        sold.flat().every(({ state }) => state === 'sold'),
        'and buys it',
      )
      const view = await ask(first, stepOf(key, 'show', { id: '' }))
      assert.deepEqual(view, {
        state: 'pool',
        items: [{ item: 'A', stock, sold: stock, held: 0 }],
        holds: 0,
        nextMs: null,
      })
    },
  },
]

export const poolsGroup: Group = {
  property: 'stock',
  cases: cases.map((each) => ({ ...each, needs: [storing, ...(each.needs ?? [])] })),
}
