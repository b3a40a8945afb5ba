/** First come, first served, at the level of the contract and with as many as a line takes. */
import assert from 'node:assert/strict'
import { UNLIMITED } from '../../src/core/engine.ts'
import { LineFullError } from '../../src/core/errors.ts'
import type { Group } from '../case.ts'
import { fencing, fifo, readers, semaphores } from '../needs.ts'
import { later } from '../scene.ts'
import { isHeld, isWaiting, statesOf } from '../standings.ts'

const MANY = 10_000

export const order: Group = {
  property: 'order',
  cases: [
    {
      name: 'a line stands in the order in which its entries came, whatever they ask for',
      needs: [fifo, semaphores],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const claims = [1, 3, 1, UNLIMITED, 2, 1, UNLIMITED].map((limit) => scene.claim(key, { limit }))
        for (const [place, claim] of claims.entries()) await (place % 2 === 0 ? one : other).enter([claim])
        const { entries } = await one.inspect(key)
        assert.deepEqual(
          entries.map(({ id }) => id),
          claims.map(({ id }) => id),
        )
        assert.deepEqual(await statesOf(other, key), ['held', ...Array<string>(6).fill('waiting')])
      },
    },
    {
      name: 'tokens ascend in the order of the line, also for entries that still wait',
      needs: [fifo, fencing],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        await engine.enter(Array.from({ length: 10 }, () => scene.claim(key)))
        const { entries } = await engine.inspect(key)
        assert.equal(entries.length, 10)
        const tokens = entries.map(({ token }) => token).filter((token) => token !== null)
        assert(tokens.length >= 1, 'the holder has a token')
        for (const [place, token] of tokens.entries())
          assert(place === 0 || token > (tokens[place - 1] as bigint), `tokens ${tokens.join(', ')}`)
      },
    },
    {
      name: 'no entry overtakes: a reader that came after a waiting writer waits, though it could hold',
      needs: [fifo, readers],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const [reader, writer, late] = [
          scene.claim(key, { limit: UNLIMITED }),
          scene.claim(key),
          scene.claim(key, { limit: UNLIMITED }),
        ]
        isHeld((await engine.enter([reader]))[0])
        isWaiting((await engine.enter([writer]))[0], 1)
        isWaiting((await engine.enter([late]))[0], 2)
        await engine.leave([reader])
        const [wrote, read] = await engine.renew([writer, late])
        isHeld(wrote)
        isWaiting(read)
      },
    },
    {
      name: `${MANY} waiters, or as many as the line takes, are served in order, and one more is refused`,
      needs: [fifo],
      limitMs: 60_000,
      async run(scene) {
        const engine = await scene.engine()
        const [locks, other] = await Promise.all([scene.locks(), scene.locks()])
        const count = Math.min(scene.traits.lineBound, MANY)
        const mutex = locks.mutex(scene.key())
        const lease = await mutex.acquire()
        const served: number[] = []
        const serve = async (place: number): Promise<void> => {
          const next = await mutex.acquire()
          served.push(place)
          await next.release()
        }
        const waiting = later(scene.times(count - 1, serve))
        await scene.eventually(`${count} in line`, async () => {
          for await (const { held, waiting: behind } of engine.list(mutex.key)) return held + behind === count
          return false
        })
        if (count === scene.traits.lineBound) await assert.rejects(other.mutex(mutex.key).acquire(), LineFullError)
        await lease.release()
        await waiting
        assert.equal(served.length, count - 1)
        assert(
          served.every((place, index) => place === index),
          'they were not served in the order in which they came',
        )
      },
    },
    {
      name: 'a claim too many fails alone: the others of its batch are served',
      needs: [
        ({ traits }) => traits.lineBound <= MANY || `its line takes ${traits.lineBound} entries, too many to fill`,
      ],
      limitMs: 60_000,
      async run(scene) {
        const engine = await scene.engine()
        const { lineBound, batchLimit } = scene.traits
        const key = scene.key('full')
        for (let size = 0; size < lineBound; size += batchLimit) {
          await engine.enter(Array.from({ length: Math.min(batchLimit, lineBound - size) }, () => scene.claim(key)))
        }
        const [before, tooMany, after] = await engine.enter([
          scene.claim(scene.key('a')),
          scene.claim(key),
          scene.claim(scene.key('b')),
        ])
        isHeld(before)
        isHeld(after)
        assert.equal(tooMany?.state, 'failed', 'one more than the line takes')
        assert(tooMany.error instanceof LineFullError, String(tooMany.error))
      },
    },
  ],
}
