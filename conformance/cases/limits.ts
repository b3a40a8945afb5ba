/** The ends that a user sets: of a hold, by `maxHold`, and of a process, by a drain. */
import assert from 'node:assert/strict'
import { once } from 'node:events'
import { EngineError, LeaseLostError } from '../../src/core/errors.ts'
import type { Lease } from '../../src/core/lease.ts'
import type { Group } from '../case.ts'
import { ownTtl } from '../needs.ts'
import { later } from '../scene.ts'
import { statesOf } from '../standings.ts'

const MAX_HOLD_MS = 200
/** For a client that is cut off: how long it waits for an answer. */
const CALL_TIMEOUT_MS = 400
const LONG_GRACE_MS = 3_600_000
const SHORT_GRACE_MS = 50

const refused = (error: unknown): boolean =>
  error instanceof EngineError && !error.transient && error.outcome === 'not-applied'

/** Until the holder is told to end: why. */
async function toldWhy({ signal }: Lease): Promise<string> {
  if (!signal.aborted) await once(signal, 'abort')
  assert(signal.reason instanceof LeaseLostError)
  return signal.reason.why
}

export const limits: Group = {
  property: 'maxHold and drains',
  atOnce: true,
  cases: [
    {
      name: 'at the end of its maxHold the work is told why, and the next one holds when it has ended',
      async run(scene) {
        const [one, other, engine] = await Promise.all([scene.locks(), scene.locks(), scene.engine()])
        const key = scene.key()
        const lease = await one.mutex(key, { maxHold: MAX_HOLD_MS }).acquire()
        const next = later(other.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        assert.equal(await toldWhy(lease), 'maxHold')
        assert.deepEqual(await statesOf(engine, key), ['held', 'waiting'], 'while the work may be ending')
        assert.equal(await lease.release(), false, 'it was held until the release')
        assert.equal((await next).held, true)
      },
    },
    {
      name: 'past its maxHold, work that never ends keeps the next one out for a ttl, and no longer',
      needs: [ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.locks(), scene.locks()])
        const key = scene.key()
        const lease = await one.mutex(key, { ttl: scene.fairTtlMs, maxHold: MAX_HOLD_MS }).acquire()
        const next = await other.mutex(key).acquire()
        assert.deepEqual([await toldWhy(lease), lease.held, next.held], ['maxHold', false, true])
      },
    },
    {
      name: 'a maxHold ends while the server cannot be reached, too, and the next one holds when the ttl is over',
      needs: [ownTtl],
      async run(scene) {
        const [{ engine, locks }, other] = await Promise.all([
          scene.faulty({ callTimeout: CALL_TIMEOUT_MS }),
          scene.locks(),
        ])
        const key = scene.key()
        const lease = await locks.mutex(key, { ttl: scene.fairTtlMs, maxHold: MAX_HOLD_MS }).acquire()
        engine.cut()
        assert.equal(await toldWhy(lease), 'maxHold')
        assert.equal(await lease.release(), false)
        assert.equal((await other.mutex(key).acquire()).held, true)
      },
    },
    {
      name: 'a drain refuses those who wait and ask, and ends when its holders have given back what they hold',
      async run(scene) {
        const [one, other, engine] = await Promise.all([scene.locks(), scene.locks(), scene.engine()])
        const [held, busy] = [scene.key('held'), scene.key('busy')]
        const [lease] = await Promise.all([one.mutex(held).acquire(), other.mutex(busy).acquire()])
        const waiter = later(one.mutex(busy).acquire())
        await scene.inLine(engine, busy, 2)
        const drained = later(one.drain({ grace: LONG_GRACE_MS }))
        await assert.rejects(waiter, refused)
        await assert.rejects(one.mutex(scene.key()).acquire(), refused)
        await scene.inLine(engine, busy, 1)
        assert.equal(lease.held, true, 'a holder goes on')
        assert.equal(await lease.release(), true)
        await drained
        assert.equal((await other.mutex(held).acquire()).held, true)
      },
    },
    {
      name: 'a holder that does not end within the grace of a drain is told, and the next one holds at once',
      async run(scene) {
        const [one, other, engine] = await Promise.all([scene.locks(), scene.locks(), scene.engine()])
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        const next = later(other.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        await one.drain({ grace: SHORT_GRACE_MS })
        assert.equal(await toldWhy(lease), 'closed')
        assert.equal((await next).held, true)
      },
    },
    {
      name: 'a drain ends while the server cannot be reached, too, and the next one holds when the ttl is over',
      needs: [ownTtl],
      async run(scene) {
        const [{ engine, locks }, other] = await Promise.all([
          scene.faulty({ callTimeout: CALL_TIMEOUT_MS }),
          scene.locks(),
        ])
        const key = scene.key()
        const lease = await locks.mutex(key, { ttl: scene.fairTtlMs }).acquire()
        engine.cut()
        await locks.drain({ grace: SHORT_GRACE_MS })
        assert.equal(await toldWhy(lease), 'closed')
        assert.equal((await other.mutex(key).acquire()).held, true)
      },
    },
  ],
}
