/**
 * A server that goes away and comes back. What lines survive it is the engine's word; that no client hangs or crashes,
 * and that no two hold, is promised by all.
 */
import assert from 'node:assert/strict'
import type { Case, Group } from '../case.ts'
import { fencing, type Need, restart } from '../needs.ts'
import { later } from '../scene.ts'
import { freshToken } from './tokens.ts'

const keepsLines: Need = ({ world }) => world.restartKeepsLines === true || 'its lines do not survive a restart'

const cases: readonly Case[] = (['cleanly', 'killed'] as const).flatMap((how) => [
  {
    name: `after a restart of the server (${how}) tokens are higher than before it`,
    needs: [fencing, restart],
    limitMs: 40_000,
    async run(scene) {
      const key = scene.key()
      const before = await freshToken(scene, key)
      await scene.world.restart?.(how)
      const after = await freshToken(scene, key)
      assert(after > before, `token ${after} after ${before}`)
    },
  },
  {
    name: `clients go on after a restart of the server (${how}): new locks are had, waiters are served`,
    needs: [restart],
    limitMs: 40_000,
    async run(scene) {
      const [one, other] = await Promise.all([scene.locks({ ttl: '3s' }), scene.locks({ ttl: '3s' })])
      const key = scene.key()
      const lease = await one.mutex(key).acquire()
      const waiting = later(other.mutex(key).acquire())
      await scene.inLine(one.engine, key, 2)
      await scene.world.restart?.(how)
      assert.equal((await one.mutex(scene.key('new')).acquire()).held, true)
      await lease.release()
      assert.equal((await waiting).held, true)
    },
  },
  {
    name: `a lease survives a restart of the server (${how}) that is shorter than its ttl`,
    needs: [restart, keepsLines],
    limitMs: 40_000,
    async run(scene) {
      const [one, other] = await Promise.all([scene.locks(), scene.locks()])
      const key = scene.key()
      const lease = await one.mutex(key).acquire()
      await scene.world.restart?.(how)
      assert.equal(await other.mutex(key).tryAcquire(), undefined, 'another client got it')
      assert.equal(lease.held, true)
      assert.equal(await lease.release(), true)
    },
  },
])

export const restarts: Group = { property: 'restart of the server', cases }
