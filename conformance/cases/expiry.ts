/** Expiry, in the engine's word: each entry by its own ttl, on the engine's clock, and never undone. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Group } from '../case.ts'
import { fifo, outliving, ownTtl } from '../needs.ts'
import { entryOf, isBusy, isGone, isHeld, isWaiting, statesOf } from '../standings.ts'

export const expiry: Group = {
  property: 'expiry',
  atOnce: true,
  cases: [
    {
      name: 'who does not renew is gone, and the next in line holds',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const ttlMs = scene.fairTtlMs
        const [dead, next] = await scene.promptly(ttlMs, async () => {
          const key = scene.key()
          const [first, second] = [scene.claim(key, { ttlMs }), scene.claim(key)]
          isHeld((await one.enter([first]))[0], ttlMs)
          isWaiting((await other.enter([second]))[0], 1)
          return [first, second] as const
        })
        await scene.gone(other, dead)
        isHeld((await other.renew([next]))[0], next.ttlMs)
        isGone((await one.renew([dead]))[0], 'expired')
      },
    },
    {
      name: 'takeover: the release of the old holder changes nothing, that of the new one frees the line',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const [old, next, third] = [scene.claim(key, { ttlMs: scene.fairTtlMs }), scene.claim(key), scene.claim(key)]
        isHeld((await one.enter([old]))[0])
        await other.enter([next, third])
        await scene.gone(other, old)
        assert.deepEqual(await one.leave([old]), [false], 'the answer to the old holder')
        const [held, waiting] = await other.renew([next, third])
        isHeld(held)
        isWaiting(waiting)
        assert.deepEqual(await other.leave([next]), [true], 'the answer to the new holder')
        isHeld((await other.renew([third]))[0])
      },
    },
    {
      name: 'a renewal never brings back what has expired, however often it is tried',
      needs: [ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const claim = scene.claim(scene.key(), { ttlMs: scene.shortTtlMs })
        isHeld((await engine.enter([claim]))[0])
        await scene.gone(engine, claim)
        for (let attempt = 0; attempt < 3; attempt += 1) isGone((await engine.renew([claim]))[0], 'expired')
        assert.deepEqual(await statesOf(engine, claim.key), [])
      },
    },
    {
      name: 'a late renewal of the old holder does not take the lock from the new one',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const old = scene.claim(key, { ttlMs: scene.shortTtlMs })
        isHeld((await one.enter([old]))[0])
        await scene.gone(other, old)
        const next = scene.claim(key)
        isHeld((await other.enter([next]))[0])
        isGone((await one.renew([old]))[0], 'expired')
        isHeld((await other.renew([next]))[0])
        assert.deepEqual(await statesOf(other, key), ['held'])
      },
    },
    {
      name: 'a renewal never outlives a release, also when both are on their way at once',
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        for (let round = 0; round < 20 * scene.rounds; round += 1) {
          const claim = scene.claim(scene.key())
          isHeld((await one.enter([claim]))[0])
          await Promise.all(
            round % 2 === 0 ? [one.renew([claim]), one.leave([claim])] : [one.leave([claim]), one.renew([claim])],
          )
          isGone((await one.renew([claim]))[0], 'unknown')
          assert.deepEqual(await statesOf(other, claim.key), [], 'an entry is left in line')
        }
      },
    },
    {
      name: 'a renewal sets the expiry anew, to the ttl that it names',
      needs: [ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const ttlMs = scene.fairTtlMs
        const claim = await scene.promptly(ttlMs, async () => {
          const entered = scene.claim(scene.key(), { ttlMs })
          isHeld((await engine.enter([entered]))[0], ttlMs)
          const longer = { ...entered, ttlMs: scene.longTtlMs }
          const { heldForMs } = isHeld((await engine.renew([longer]))[0], longer.ttlMs)
          assert(heldForMs > ttlMs, `held for ${heldForMs} ms after a renewal for ${longer.ttlMs} ms`)
          return entered
        })
        await sleep(1.2 * ttlMs)
        isHeld((await engine.renew([claim]))[0], claim.ttlMs)
        await scene.gone(engine, claim)
      },
    },
    {
      name: 'entering again with the same id renews and takes no second place',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const ttlMs = scene.fairTtlMs
        const key = await scene.promptly(ttlMs, async () => {
          const entered = scene.key()
          const [holder, waiter] = [scene.claim(entered, { ttlMs }), scene.claim(entered, { ttlMs })]
          await one.enter([holder])
          await other.enter([waiter])
          const [heldOn] = await one.enter([{ ...holder, ttlMs: scene.longTtlMs }])
          const [waitsOn] = await other.enter([{ ...waiter, ttlMs: scene.longTtlMs }])
          const { heldForMs } = isHeld(heldOn)
          assert(heldForMs > ttlMs, `held for ${heldForMs} ms only`)
          isWaiting(waitsOn, 1)
          return entered
        })
        await sleep(1.2 * ttlMs)
        assert.deepEqual(await statesOf(one, key), ['held', 'waiting'])
      },
    },
    {
      name: 'a grant does not change when the entry expires: only its owner does',
      needs: [ownTtl, fifo],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const [holder, waiter] = [scene.claim(key), scene.claim(key, { ttlMs: 20 * scene.shortTtlMs })]
        await engine.enter([holder, waiter])
        await sleep(20)
        const before = entryOf(await engine.inspect(key), waiter)
        assert.equal(before.state, 'waiting')
        await engine.leave([holder])
        const after = entryOf(await engine.inspect(key), waiter)
        assert.equal(after.state, 'held')
        assert(
          after.remainingMs <= before.remainingMs,
          `${before.remainingMs} ms left before the grant, ${after.remainingMs} ms after it`,
        )
      },
    },
    {
      name: 'several dead waiters of one age delay the line by one ttl, not by one each',
      needs: [ownTtl, fifo],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const holder = scene.claim(key)
        const dead = Array.from({ length: 5 }, () => scene.claim(key, { ttlMs: scene.shortTtlMs }))
        const alive = scene.claim(key)
        await one.enter([holder])
        await other.enter(dead)
        await one.enter([alive])
        await one.leave([holder])
        const [first] = dead
        assert(first !== undefined)
        await scene.gone(one, first)
        assert.deepEqual(await statesOf(one, key), ['held'], 'when the first of them has expired, all have')
        isHeld((await one.renew([alive]))[0])
      },
    },
    {
      name: 'an entry lives by its own ttl, not by that of the next one in line',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const patient = scene.claim(key)
        const hasty = scene.claim(key, { ttlMs: scene.shortTtlMs })
        isHeld((await one.enter([patient]))[0])
        isWaiting((await other.enter([hasty]))[0])
        await scene.gone(one, hasty)
        await other.enter([scene.claim(key, { ttlMs: scene.shortTtlMs, wait: false })])
        isHeld((await one.renew([patient]))[0], patient.ttlMs)
      },
    },
    {
      name: 'a key that is released for later stays busy until then, and no longer',
      needs: [ownTtl],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks()]
        const afterMs = scene.fairTtlMs
        const { key, standing } = await scene.promptly(afterMs, async () => {
          const lease = await locks.mutex(scene.key()).acquire()
          assert.equal(await lease.release({ after: afterMs }), true)
          assert.equal(lease.held, false)
          const [tried] = await engine.enter([scene.claim(lease.key, { wait: false })])
          return { key: lease.key, standing: tried }
        })
        isBusy(standing)
        await scene.inLine(engine, key, 0)
        isHeld((await engine.enter([scene.claim(key, { wait: false })]))[0])
      },
    },
    {
      name: 'what the engine cannot keep busy for so long is free when its ttl is over, though its process goes on',
      needs: [outliving],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks({ ttl: 2 * scene.fairTtlMs })]
        // Another lease of the same ttl is kept alive.
        await locks.mutex(scene.key('other')).acquire()
        const lease = await locks.mutex(scene.key()).acquire()
        const agreed = await lease.release({ after: '24h' })
        if (agreed) await engine.evict(lease.key, lease.token ?? 0n, 'now')
        await scene.inLine(engine, lease.key, 0)
      },
    },
    {
      name: 'what is released for later is not cut short by a renewal from before that comes late',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        for (const limit of scene.traits.sharing === 'none' ? [1] : [1, 2]) {
          const ttlMs = scene.fairTtlMs
          const key = await scene.promptly(ttlMs, async () => {
            const entered = scene.key()
            const claims = Array.from({ length: limit }, () => scene.claim(entered, { limit, ttlMs }))
            for (const standing of await one.enter(claims)) isHeld(standing)
            for (const claim of claims) {
              isHeld((await one.renew([{ ...claim, ttlMs: scene.longTtlMs, outlives: true }]))[0])
              isHeld((await one.renew([claim]))[0])
            }
            return entered
          })
          await sleep(1.2 * ttlMs)
          isBusy((await other.enter([scene.claim(key, { limit, wait: false })]))[0])
        }
      },
    },
    {
      name: 'what has expired is not seen any more, also when no call has changed the line since',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const claim = scene.claim(scene.key(), { ttlMs: scene.shortTtlMs })
        await one.enter([claim])
        await sleep(1.5 * scene.shortTtlMs)
        for await (const { key } of other.list(claim.key)) assert.fail(`${key} is listed`)
        assert.deepEqual(await statesOf(other, claim.key), [])
        assert.deepEqual(await one.leave([claim]), [false], 'leaving after it has expired')
      },
    },
  ],
}
