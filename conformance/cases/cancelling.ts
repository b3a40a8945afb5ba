/** Cancelling: a caller that no longer wants the lock is out of the line at once, and never gets it by accident. */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { setImmediate as turn } from 'node:timers/promises'
import type { Claim } from '../../src/core/engine.ts'
import type { Group } from '../case.ts'
import { dice } from '../chance.ts'
import { ownTtl, wakes } from '../needs.ts'
import { later } from '../scene.ts'
import { isHeld } from '../standings.ts'

export const cancelling: Group = {
  property: 'cancelling',
  atOnce: true,
  cases: [
    {
      name: 'a signal that is aborted already: nothing is asked, and the reason is the caller\u2019s own',
      async run(scene) {
        const [locks, engine] = [await scene.locks(), await scene.engine()]
        const key = scene.key()
        const reason = { anything: 'may be a reason' }
        const signal = AbortSignal.abort(reason)
        await assert.rejects(locks.mutex(key).acquire({ signal }), (error) => error === reason)
        await assert.rejects(locks.mutex(key).tryAcquire({ signal }), (error) => error === reason)
        await scene.inLine(engine, key, 0)
      },
    },
    {
      name: 'a cancellation that races with the grant: the lock is had or given back, never lost',
      async run(scene) {
        const [one, other] = await Promise.all([scene.locks(), scene.locks()])
        const engine = await scene.engine()
        const key = scene.key()
        const chance = dice(scene.seed)
        let granted = 0
        const rounds = 60 * scene.rounds
        for (let round = 0; round < rounds; round += 1) {
          const lease = await one.mutex(key).acquire()
          const cancel = new AbortController()
          const racing = later(other.mutex(key).acquire({ signal: cancel.signal }))
          await scene.inLine(engine, key, 2)
          const releasing = lease.release()
          for (let turns = chance.below(6); turns > 0; turns -= 1) await turn()
          cancel.abort(new Error('raced'))
          await releasing
          try {
            const won = await racing
            granted += 1
            assert.equal(won.held, true)
            await won.release()
          } catch (error) {
            assert.match(String(error), /raced/, `seed ${scene.seed}, round ${round}`)
          }
        }
        await scene.inLine(engine, key, 0)
        assert(granted < rounds, 'no cancellation came in time: nothing raced')
      },
    },
    {
      name: 'a waiter that is cancelled while its enter is on the way: what arrives is given back',
      async run(scene) {
        const [one, late] = await Promise.all([scene.locks(), scene.faulty()])
        const engine = await scene.engine()
        for (const fault of ['hold request', 'hold reply'] as const) {
          const key = scene.key(fault)
          const held = late.engine.next('enter', fault)
          const cancel = new AbortController()
          const asked = later(late.locks.mutex(key).acquire({ signal: cancel.signal }))
          await held.reached
          cancel.abort(new Error('too late'))
          await assert.rejects(asked, /too late/)
          held.release()
          await scene.inLine(engine, key, 0)
          assert.equal((await one.mutex(key).acquire()).held, true)
        }
      },
    },
    {
      name: 'a waiter that leaves while its renewal is on the way is not heard of again',
      needs: [wakes, ownTtl],
      async run(scene) {
        const [holding, waiting] = await Promise.all([scene.engine(), scene.engine()])
        const heard = new Set<string>()
        await waiting.subscribe?.((news) => {
          if ('id' in news) heard.add(news.id)
        })
        const enter = async (count: number, ttlMs: number): Promise<readonly Claim[]> => {
          const claims = Array.from({ length: count }, () => scene.claim(scene.key()))
          await holding.enter(claims.map(({ key }) => scene.claim(key, { ttlMs })))
          await waiting.enter(claims)
          return claims
        }
        // Before their holders can expire: until then there is no news of these waiters.
        const left = await scene.promptly(scene.fairTtlMs / 2, async () => {
          const waiters = await enter(12, scene.fairTtlMs)
          const groups = [0, 4, 8].map((from) => waiters.slice(from, from + 4))
          await Promise.all(groups.flatMap((group) => [waiting.renew(group), waiting.leave(group)]))
          for (const { id } of waiters) heard.delete(id)
          return waiters
        })
        // Its holder expires after all of the others.
        const [last] = await enter(1, scene.fairTtlMs + 100)
        await scene.eventually('news of a waiter whose holder has expired', () => heard.has((last as Claim).id))
        assert.deepEqual(
          left.filter(({ id }) => heard.has(id)),
          [],
        )
      },
    },
    {
      name: 'a caller whose signal aborts during its work still releases',
      async run(scene) {
        const [locks, engine] = [await scene.locks(), await scene.engine()]
        const key = scene.key()
        const cancel = new AbortController()
        const work = locks.mutex(key).using({ signal: cancel.signal }, async () => {
          cancel.abort(new Error('stop'))
          throw new Error('stopped')
        })
        await assert.rejects(work, /stopped/)
        isHeld((await engine.enter([scene.claim(key)]))[0])
      },
    },
    {
      name: 'one signal cancels many waiters of many keys, and keeps no listener of them',
      async run(scene) {
        const [one, other] = await Promise.all([scene.locks(), scene.locks()])
        const engine = await scene.engine()
        const keys = Array.from({ length: 10 }, (_, index) => scene.key(`many ${index}`))
        await Promise.all(keys.map((key) => one.mutex(key).acquire()))
        const cancel = new AbortController()
        const asked = keys.flatMap((key) =>
          Array.from({ length: 5 }, () => other.mutex(key).acquire({ signal: cancel.signal })),
        )
        const settled = Promise.allSettled(asked)
        for (const key of keys) await scene.inLine(engine, key, 6)
        cancel.abort(new Error('all of you'))
        for (const result of await settled) assert.equal(result.status, 'rejected')
        for (const key of keys) await scene.inLine(engine, key, 1)
        assert.equal(getEventListeners(cancel.signal, 'abort').length, 0)
      },
    },
  ],
}
