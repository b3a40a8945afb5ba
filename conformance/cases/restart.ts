/**
 * A server that goes away and comes back. What lines survive it is the engine's word; that no client hangs or crashes,
 * and that no two hold, is promised by all.
 */
import assert from 'node:assert/strict'
import type { Case, Group } from '../case.ts'
import { fencing, type Need, restart, storing } from '../needs.ts'
import { isStored, putOne, putting, read, removing, toText } from '../records.ts'
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
      // A waiter is refused when its server has been away for a ttl, and MySQL takes seconds to start.
      const [one, other] = await Promise.all([scene.locks({ ttl: '3s' }), scene.locks({ ttl: '30s' })])
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

const recordCases: readonly Case[] = (['cleanly', 'killed'] as const).map((how) => ({
  name: `records survive a restart of the server (${how}), and versions go on`,
  needs: [restart, keepsLines, storing],
  limitMs: 40_000,
  async run(scene) {
    const [, store] = await scene.engineAndStore()
    const [key, gone] = [scene.recordKey('kept'), scene.recordKey('gone')]
    const mark = 7n
    const { version } = isStored(await putOne(store, putting(key, 'kept', {}, { mark, ttlMs: scene.longTtlMs })))
    const before = isStored(await putOne(store, removing(gone)))
    await scene.world.restart?.(how)
    const found = await scene.eventually('the server answers', () => read(store, key).catch(() => undefined))
    assert.deepEqual([toText(found), found.version, found.mark], ['kept', version, mark])
    for (const [record, last] of [[key, version] as const, [gone, before.version] as const]) {
      const put = isStored(await putOne(store, putting(record, 'new')))
      assert(put.version > last, `version ${put.version} after ${last}`)
    }
  },
}))

export const restarts: Group = { property: 'restart of the server', cases: [...cases, ...recordCases] }
