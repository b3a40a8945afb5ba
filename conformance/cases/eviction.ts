/** Eviction: removing another process's entry, with or without letting it finish. */
import assert from 'node:assert/strict'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Group } from '../case.ts'
import { fencing, fifo, lossBeforeNext, ownTtl, politeEviction, shownEviction, wakes } from '../needs.ts'
import { later } from '../scene.ts'
import { isGone, isHeld, isWaiting, statesOf, tokenOf } from '../standings.ts'

export const eviction: Group = {
  property: 'eviction',
  atOnce: true,
  cases: [
    {
      name: 'evicting now frees the line at once, and the evicted one is told why',
      needs: [fencing, ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const [holder, next] = [scene.claim(key, { ttlMs: 6 * scene.fairTtlMs }), scene.claim(key)]
        const token = tokenOf((await one.enter([holder]))[0])
        await other.enter([next])
        assert.equal(await other.evict(key, token, 'now'), true)
        isHeld((await other.renew([next]))[0])
        isGone((await one.renew([holder]))[0], 'evicted')
        assert.deepEqual(await one.leave([holder]), [false], 'leaving after eviction')
        assert.equal(await other.evict(key, token, 'now'), false, 'evicting it twice')
        isHeld((await other.renew([next]))[0])
        assert.deepEqual(await statesOf(other, key), ['held'])
      },
    },
    {
      name: 'evicting by expiry refuses renewals, and lets the next one in only when the holder must have noticed',
      needs: [fencing, ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const ttlMs = scene.fairTtlMs
        const { holder, next, ...seen } = await scene.promptly(ttlMs, async () => {
          const key = scene.key()
          const [first, second] = [scene.claim(key, { ttlMs }), scene.claim(key)]
          const token = tokenOf((await one.enter([first]))[0])
          await other.enter([second])
          assert.equal(await other.evict(key, token, 'expire'), true)
          const [waiting] = await other.renew([second])
          const [renewed] = await one.renew([first])
          const [entered] = await one.enter([first])
          return { holder: first, next: second, waiting, renewed, entered, states: await statesOf(other, key) }
        })
        isWaiting(seen.waiting)
        isGone(seen.renewed, 'evicted')
        isGone(seen.entered, 'evicted')
        assert.deepEqual(seen.states, ['held', 'waiting'], 'before the ttl of the evicted one is over')
        await scene.gone(other, holder)
        isHeld((await other.renew([next]))[0])
      },
    },
    {
      name: 'a holder that was evicted by expiry is shown as evicted, and the others are not',
      needs: [fencing, ownTtl, shownEviction],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const ttlMs = scene.fairTtlMs
        const shown = await scene.promptly(ttlMs, async () => {
          const [alone, key] = [scene.key('alone'), scene.key()]
          const claims = [scene.claim(alone, { ttlMs }), scene.claim(key, { ttlMs }), scene.claim(key, { ttlMs })]
          const entered = await one.enter(claims)
          const before = await other.inspect(key)
          await other.evict(alone, tokenOf(entered[0]), 'expire')
          await other.evict(key, tokenOf(entered[1]), 'expire')
          return [before, await other.inspect(alone), await other.inspect(key)]
        })
        const marks = shown.map(({ entries }) => entries.map(({ state, evicted }) => [state, evicted === true]))
        assert.deepEqual(marks, [
          [
            ['held', false],
            ['waiting', false],
          ],
          [['held', true]],
          [
            ['held', true],
            ['waiting', false],
          ],
        ])
      },
    },
    {
      name: 'a waiter that is evicted, either way, is out of the line at once: it holds nothing that it would have to stop first',
      needs: [fencing, fifo],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        for (const how of ['now', 'expire'] as const) {
          const key = scene.key(how)
          const [holder, waiter, behind] = [
            scene.claim(key),
            scene.claim(key, { ttlMs: 6 * scene.fairTtlMs }),
            scene.claim(key),
          ]
          await one.enter([holder, waiter, behind])
          const { entries } = await other.inspect(key)
          const token =
            entries[1]?.token ?? scene.doesNotApply('it mints tokens with the grant, so that a waiter cannot be named')
          assert.equal(await other.evict(key, token, how), true)
          isGone((await one.renew([waiter]))[0], 'evicted')
          assert.deepEqual(
            (await other.inspect(key)).entries.map(({ id }) => id),
            [holder.id, behind.id],
            `evicted ${how}`,
          )
          assert.deepEqual(await one.leave([waiter]), [false], 'leaving after eviction')
        }
      },
    },
    {
      name: 'eviction goes by the token: another one, or that of another key, evicts no entry',
      needs: [fencing],
      async run(scene) {
        const engine = await scene.engine()
        const [here, there] = [scene.claim(scene.key('here')), scene.claim(scene.key('there'))]
        // One after the other: entries of different lines that enter together may have the same token.
        const [[standing], [elsewhere]] = [await engine.enter([here]), await engine.enter([there])]
        const [token, other] = [tokenOf(standing), tokenOf(elsewhere)]
        for (const how of ['now', 'expire'] as const) {
          assert.equal(await engine.evict(here.key, other, how), false, 'the token of another key')
          assert.equal(await engine.evict(here.key, token + 1_000_000_000n, how), false, 'a token that no entry has')
          assert.equal(await engine.evict(scene.key('nowhere'), token, how), false, 'a line without entries')
        }
        for (const still of await engine.renew([here, there])) isHeld(still)
      },
    },
    {
      name: 'a holder that is evicted learns of it: its signal aborts and its work is told',
      needs: [fencing],
      async run(scene) {
        const [working, evicting] = await Promise.all([scene.locks({ ttl: 6 * scene.fairTtlMs }), scene.locks()])
        const key = scene.key()
        const work = working.mutex(key).using(async (lease) => {
          assert(lease.token !== null)
          assert.equal(await evicting.evict(key, lease.token, 'expire'), true)
          // It may have been told before we were.
          if (!lease.signal.aborted)
            await new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
          assert.equal(lease.held, false)
          return 'done'
        })
        await assert.rejects(work, (error) => error instanceof LeaseLostError && error.why === 'evicted')
      },
    },
    {
      name: 'a holder that is evicted is told at once, and the next one holds when its work has ended, and not after a ttl',
      needs: [fencing, wakes, lossBeforeNext, politeEviction],
      async run(scene) {
        // Renewals come every 200 s: later than this case may take.
        const [working, others] = await Promise.all([scene.locks({ ttl: '10m' }), scene.locks({ ttl: '10m' })])
        const engine = await scene.engine()
        const key = scene.key()
        const lease = await working.mutex(key).acquire()
        const next = later(others.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        assert(lease.token !== null)
        assert.equal(await others.evict(key, lease.token, 'expire'), true)
        await scene.eventually('it is told', () => lease.signal.aborted)
        assert.equal((lease.signal.reason as LeaseLostError).why, 'evicted')
        assert.deepEqual(await statesOf(engine, key), ['held', 'waiting'], 'while the evicted one still works')
        assert.equal(await lease.release(), false)
        assert.equal((await next).held, true)
        await scene.inLine(engine, key, 1)
      },
    },
    {
      name: 'an evicted holder that leaves frees the line at once, and is answered that it was there',
      needs: [fencing, lossBeforeNext],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const [holder, next] = [scene.claim(key), scene.claim(key)]
        const token = tokenOf((await one.enter([holder]))[0])
        isWaiting((await other.enter([next]))[0])
        assert.equal(await other.evict(key, token, 'expire'), true)
        isWaiting((await other.renew([next]))[0])
        assert.deepEqual(await one.leave([holder]), [true], 'the evicted one leaves')
        isHeld((await other.renew([next]))[0])
      },
    },
    {
      name: 'a waiter that is evicted gives up instead of coming back',
      needs: [fencing, fifo],
      async run(scene) {
        const engine = await scene.engine()
        const [locks, waiting] = await Promise.all([scene.locks(), scene.locks({ ttl: 6 * scene.fairTtlMs })])
        const key = scene.key()
        await locks.mutex(key).acquire()
        const asked = later(waiting.mutex(key).acquire())
        const { entries } = await scene.inLine(engine, key, 2)
        const token =
          entries[1]?.token ?? scene.doesNotApply('it mints tokens with the grant, so that a waiter cannot be named')
        assert.equal(await locks.evict(key, token, 'now'), true)
        await assert.rejects(asked, (error) => error instanceof LeaseLostError && error.why === 'evicted')
        await scene.inLine(engine, key, 1)
      },
    },
  ],
}
