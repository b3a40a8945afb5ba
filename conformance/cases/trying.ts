/** A try: hold at once, or be as if one had never asked. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Group } from '../case.ts'
import { ownTtl, semaphores } from '../needs.ts'
import { isBusy, isHeld, statesOf } from '../standings.ts'

export const trying: Group = {
  property: 'trying',
  atOnce: true,
  cases: [
    {
      name: 'a try that is refused leaves no trace',
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const [holder, hasty] = [scene.claim(key), scene.claim(key, { wait: false })]
        await one.enter([holder])
        isBusy((await other.enter([hasty]))[0])
        const { entries } = await one.inspect(key)
        assert.deepEqual(
          entries.map(({ id }) => id),
          [holder.id],
        )
        assert.deepEqual(await other.leave([hasty]), [false], 'leaving after a try')
        await one.leave([holder])
        assert.deepEqual(await statesOf(one, key), [], 'the line after the holder has gone')
      },
    },
    {
      name: 'a try does not overtake waiters',
      needs: [semaphores],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const [small, big] = [scene.claim(key, { limit: 3 }), scene.claim(key, { limit: 3, weight: 3 })]
        await engine.enter([small, big])
        isBusy((await engine.enter([scene.claim(key, { limit: 3, wait: false })]))[0])
        assert.deepEqual(await statesOf(engine, key), ['held', 'waiting'])
      },
    },
    {
      name: 'a try that succeeds holds like any other',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const claim = scene.claim(scene.key(), { wait: false, ttlMs: scene.fairTtlMs })
        isHeld((await one.enter([claim]))[0], claim.ttlMs)
        isBusy((await other.enter([scene.claim(claim.key, { wait: false })]))[0])
        await scene.gone(other, claim)
        isHeld((await other.enter([scene.claim(claim.key, { wait: false })]))[0])
      },
    },
    {
      name: 'a thousand tries at once give one lease, and the next try after its release another',
      async run(scene) {
        const clients = await scene.times(4, () => scene.locks())
        const key = scene.key()
        const tries = await Promise.all(
          clients.flatMap((locks) => Array.from({ length: 250 }, () => locks.mutex(key).tryAcquire())),
        )
        const [lease, ...more] = tries.filter((one) => one !== undefined)
        assert(lease !== undefined, 'no try got it')
        assert.equal(more.length, 0, 'more than one got it')
        assert.equal(await lease.release(), true)
        await sleep(0)
        const [next] = clients
        assert.notEqual(await next?.mutex(key).tryAcquire(), undefined)
      },
    },
  ],
}
