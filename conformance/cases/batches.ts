/** Batches: applied in the order of the array, answered in the order of the array, each item for itself. */
import assert from 'node:assert/strict'
import type { Group } from '../case.ts'
import { fencing, fifo } from '../needs.ts'
import { isBusy, isGone, isHeld, isWaiting, statesOf, tokenOf } from '../standings.ts'

export const batches: Group = {
  property: 'batches',
  atOnce: true,
  cases: [
    {
      name: 'two claims of one key in one batch: the first holds, the second waits',
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const [first, second] = [scene.claim(key), scene.claim(key)]
        const [held, waiting] = await engine.enter([first, second])
        isHeld(held)
        isWaiting(waiting, 1)
        assert.deepEqual(await engine.leave([first]), [true])
        isHeld((await engine.renew([second]))[0])
      },
    },
    {
      name: 'two claims of one key in one batch have different tokens',
      needs: [fencing, fifo],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const [first, second] = [scene.claim(key), scene.claim(key)]
        const token = tokenOf((await engine.enter([first, second]))[0])
        await engine.leave([first])
        assert(tokenOf((await engine.renew([second]))[0]) > token)
      },
    },
    {
      name: 'one id twice in one batch is one entry',
      async run(scene) {
        const engine = await scene.engine()
        const claim = scene.claim(scene.key())
        const [once, twice] = await engine.enter([claim, claim])
        isHeld(once)
        isHeld(twice)
        assert.deepEqual(await statesOf(engine, claim.key), ['held'])
        assert.deepEqual(await engine.leave([claim, claim]), [true, false])
      },
    },
    {
      name: 'answers come in the order of the questions, whatever each of them is',
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const taken = scene.claim(scene.key('taken'))
        await other.enter([taken])
        const free = scene.claim(scene.key('free'))
        const waits = scene.claim(taken.key)
        const never = scene.claim(scene.key('never'))
        const [held, busy, waiting, again] = await one.enter([
          free,
          scene.claim(taken.key, { wait: false }),
          waits,
          free,
        ])
        isHeld(held)
        isBusy(busy)
        isWaiting(waiting)
        isHeld(again)
        const [lost, stillWaiting, stillHeld] = await one.renew([never, waits, free])
        isGone(lost, 'unknown')
        isWaiting(stillWaiting)
        isHeld(stillHeld)
        assert.deepEqual(await one.leave([never, free, waits, free]), [false, true, true, false])
        isHeld((await other.renew([taken]))[0])
      },
    },
    {
      name: 'a full batch of enters, renewals and leaves is answered in full',
      async run(scene) {
        const engine = await scene.engine()
        const keys = Array.from({ length: 10 }, (_, index) => scene.key(`full ${index}`))
        const claims = Array.from({ length: scene.traits.batchLimit }, (_, index) =>
          scene.claim(keys[index % 10] as string),
        )
        const states = (await engine.enter(claims)).map(({ state }) => state)
        assert.deepEqual(
          states,
          claims.map((_, index) => (index < 10 ? 'held' : 'waiting')),
        )
        assert.deepEqual(
          (await engine.renew(claims)).map(({ state }) => state),
          states,
        )
        assert.deepEqual(await engine.leave(claims), Array(claims.length).fill(true))
        for (const key of keys) assert.deepEqual(await statesOf(engine, key), [])
      },
    },
  ],
}
