/** Several locks as one: all or nothing, and never a circle. */
import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Group } from '../case.ts'
import { dice } from '../chance.ts'
import { fencing, ownTtl } from '../needs.ts'
import { later } from '../scene.ts'

export const together: Group = {
  property: 'all at once',
  atOnce: true,
  cases: [
    {
      name: 'many callers that want overlapping keys in any order all get them in turn: none deadlocks, none meets another',
      async run(scene) {
        const clients = await scene.times(3, () => scene.locks())
        const engine = await scene.engine()
        const keys = Array.from({ length: 5 }, (_, index) => scene.key(`all ${index}`))
        const inside = new Set<string>()
        const chance = dice(scene.seed)
        const work = async (): Promise<void> => {
          const locks = chance.pick(clients)
          const wanted = keys.filter(() => chance.oneIn(2)).toSorted(() => chance.below(3) - 1)
          if (wanted.length === 0) return
          await locks.all(wanted.map((key) => locks.mutex(key))).using(async (lease) => {
            assert.deepEqual([...lease.tokens.keys()].toSorted(), wanted.toSorted())
            for (const key of wanted) {
              assert(!inside.has(key), `${key} was held twice`)
              inside.add(key)
            }
            await turn()
            for (const key of wanted) inside.delete(key)
          })
        }
        await Promise.all(Array.from({ length: 60 * scene.rounds }, work))
        for (const key of keys) await scene.inLine(engine, key, 0)
      },
    },
    {
      name: 'all or nothing: a try that finds one of them taken keeps none of them',
      async run(scene) {
        const [one, other] = await Promise.all([scene.locks(), scene.locks()])
        const engine = await scene.engine()
        const keys = ['a', 'b', 'c'].map((label) => scene.key(label))
        const [, middle] = keys
        assert(middle !== undefined)
        const lease = await one.mutex(middle).acquire()
        const all = other.all(keys.map((key) => other.mutex(key)))
        assert.equal(await all.tryAcquire(), undefined)
        await assert.rejects(all.acquire({ wait: 30 }))
        for (const key of keys) await scene.inLine(engine, key, key === middle ? 1 : 0)
        await lease.release()
        const held = await all.acquire()
        assert.equal(held.held, true)
        assert.equal(await held.release(), true)
      },
    },
    {
      name: 'losing one part while waiting for the next gives back everything',
      needs: [fencing, ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.locks(), scene.locks({ ttl: 6 * scene.fairTtlMs })])
        const engine = await scene.engine()
        const [first, second] = [scene.key('1'), scene.key('2')]
        const lease = await one.mutex(second).acquire()
        const asked = later(other.all([other.mutex(first), other.mutex(second)]).acquire())
        await scene.inLine(engine, second, 2)
        const { entries } = await scene.inLine(engine, first, 1)
        const [part] = entries
        assert(part?.token !== null && part?.token !== undefined)
        assert.equal(await one.evict(first, part.token, 'now'), true)
        await assert.rejects(asked, LeaseLostError)
        await scene.inLine(engine, second, 1)
        await scene.inLine(engine, first, 0)
        assert.equal(lease.held, true)
      },
    },
  ],
}
