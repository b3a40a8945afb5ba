/**
 * Rate limits: a store that has `take` decides as core/rate.ts does. Each answer says at which time of the server it
 * was decided, so it can be worked out again here, to the last unit, on every engine.
 */
import assert from 'node:assert/strict'
import { draw, type Rate, type RateState, rateOf } from '../../src/core/rate.ts'
import type { Store } from '../../src/core/store.ts'
import type { Draw, Drawn } from '../../src/core/store-take.ts'
import type { Case, Group } from '../case.ts'
import { type Dice, dice } from '../chance.ts'
import { storing } from '../needs.ts'
import { isStored, putOne, putting, read, textOf } from '../records.ts'
import type { Scene } from '../scene.ts'

type Answer = Extract<Drawn, { readonly state: 'drawn' }>

const CLIENTS = 3
const STEPS = 60

/** Quick and slow ones, with intervals that are no whole number of microseconds, and one that is counted by the ms. */
const RATES: readonly Rate[] = [
  rateOf(300_000, 1_000_000, 300),
  rateOf(7, 10_000, 3),
  rateOf(100, 60_000_000, 20),
  rateOf(1, 86_400_000_000, 1),
  rateOf(999_983, 86_400_000_000, 999_983),
]

async function takingStore(scene: Scene): Promise<Required<Pick<Store, 'take'>> & Store> {
  const [, store] = await scene.engineAndStore()
  if (store.take === undefined) scene.doesNotApply('its store leaves draws to get and put')
  return store as Required<Pick<Store, 'take'>> & Store
}

/** Keys that a Cluster has in one slot. */
function keysOf(scene: Scene, count: number): string[] {
  const tag = `{${scene.key('rate')}}`
  return Array.from({ length: count }, (_, index) => scene.recordKeyBelow(tag, `:${index}`))
}

function isDrawn(drawn: Drawn | undefined): Answer {
  assert.equal(drawn?.state, 'drawn', `expected a draw, got ${JSON.stringify(drawn)}`)
  return drawn as Answer
}

function randomDraw(chance: Dice, keys: readonly string[]): Draw {
  const count = chance.oneIn(3) ? 1 + chance.below(keys.length) : 1
  const first = chance.below(keys.length)
  const parts = Array.from({ length: count }, (_, index) => {
    const rate = chance.pick(RATES)
    const most = rate.capacity / rate.tokenUnits
    const cost = chance.oneIn(5) ? 0 : 1 + chance.below(chance.oneIn(4) ? most : Math.min(most, 3))
    return { key: keys[(first + index) % keys.length] as string, rate, cost }
  })
  return { parts, bookUs: chance.oneIn(3) ? chance.below(5_000_000) : 0 }
}

/** The answer of the rule to the same draw, which it remembers. */
function expected(states: Map<string, RateState>, { parts, bookUs }: Draw, nowUs: number): Answer {
  const {
    taken,
    debts,
    states: next,
  } = draw(
    parts.map(({ key, rate, cost }) => ({ state: states.get(key), rate, cost })),
    nowUs,
    bookUs,
  )
  for (const [index, { key, cost }] of parts.entries()) if (taken && cost > 0) states.set(key, next[index] as RateState)
  return { state: 'drawn', taken, debts, nowUs }
}

const cases: readonly Case[] = [
  {
    name: 'draws from rate limits are answered to the unit as the rule says, at the time that the server tells',
    async run(scene) {
      const stores = await scene.times(CLIENTS, () => takingStore(scene))
      for (let round = 0; round < scene.rounds; round += 1) {
        const chance = dice(scene.seed + round)
        const keys = keysOf(scene, 3)
        const states = new Map<string, RateState>()
        for (let step = 0; step < STEPS; step += 1) {
          const draws = Array.from({ length: 1 + chance.below(4) }, () => randomDraw(chance, keys))
          const answers = await chance.pick(stores).take(draws)
          assert.equal(answers.length, draws.length, 'one answer to each draw')
          for (const [index, asked] of draws.entries()) {
            const answer = isDrawn(answers[index])
            const wanted = expected(states, asked, answer.nowUs)
            assert.deepEqual(answer, wanted, `HOLDFAST_SEED=${scene.seed + round}: ${JSON.stringify(asked)}`)
          }
        }
      }
    },
  },
  {
    name: 'a draw that is refused, or only looks, leaves the record as it was',
    async run(scene) {
      const store = await takingStore(scene)
      const [key = '', other = ''] = keysOf(scene, 2)
      const rate = rateOf(1, 86_400_000_000, 1)
      const one = { key, rate, cost: 1 }
      assert(isDrawn((await store.take([{ parts: [one], bookUs: 0 }]))[0]).taken, 'the first is taken')
      const { version } = await read(store, key)
      const refused: Draw = { parts: [{ ...one, key: other }, one], bookUs: 0 }
      const answers = await store.take([refused, { parts: [{ ...one, cost: 0 }], bookUs: 0 }])
      assert.deepEqual(
        answers.map((answer) => isDrawn(answer).taken),
        [false, true],
      )
      assert.equal((await read(store, key)).version, version, 'it was not changed')
      assert.equal((await read(store, other)).version, 0n, 'and nothing was made')
    },
  },
  {
    name: 'clients that draw at once are let through as if they had come one after the other',
    async run(scene) {
      const stores = await scene.times(CLIENTS, () => takingStore(scene))
      const rate = rateOf(2000, 1_000_000, 5)
      const [key = ''] = keysOf(scene, 1)
      const taken: Answer[] = []
      const flood = async (store: (typeof stores)[number]): Promise<void> => {
        for (let call = 0; call < 20 * scene.rounds; call += 1) {
          const answers = await store.take([{ parts: [{ key, rate, cost: 1 }], bookUs: 0 }])
          for (const answer of answers.map(isDrawn)) if (answer.taken) taken.push(answer)
        }
      }
      await Promise.all([...stores, ...stores].map(flood))
      taken.sort((a, b) => a.nowUs - b.nowUs || (a.debts[0] as number) - (b.debts[0] as number))
      let debt = 0
      let atUs = 0
      for (const { nowUs, debts } of taken) {
        debt = Math.max(0, debt - (nowUs - atUs) * rate.stepUnits) + rate.tokenUnits
        atUs = nowUs
        assert.equal(debts[0], debt, 'each draw counts those before it')
        assert(debt <= rate.capacity, `${debt} units are owed, and ${rate.capacity} may be`)
      }
    },
  },
  {
    name: 'a draw from a key under which something else is stored fails, leaves that alone, and fails by itself',
    async run(scene) {
      const store = await takingStore(scene)
      const [key = '', other = ''] = keysOf(scene, 2)
      isStored(await putOne(store, putting(key, 'rate2 of a newer version')))
      const draws = [key, other].map(
        (each): Draw => ({
          parts: [{ key: each, rate: RATES[0] as Rate, cost: 1 }],
          bookUs: 0,
        }),
      )
      const [failed, drawn] = await store.take(draws)
      assert.equal(failed?.state, 'failed')
      assert(isDrawn(drawn).taken)
      assert.equal(await textOf(store, key), 'rate2 of a newer version')
    },
  },
]

export const drawsGroup: Group = {
  property: 'rate limits',
  cases: cases.map((each) => ({ ...each, needs: [storing, ...(each.needs ?? [])] })),
}
