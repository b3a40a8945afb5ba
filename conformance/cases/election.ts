/** Elections: one leader at a time, with a term that grows, and word of every change. */
import assert from 'node:assert/strict'
import type { Leader } from '../../src/primitives/election.ts'
import type { Group } from '../case.ts'
import { actors, fencing, fifo, ownTtl } from '../needs.ts'
import { later } from '../scene.ts'

export const election: Group = {
  property: 'election',
  atOnce: true,
  cases: [
    {
      name: 'one leads at a time, in order, each term higher than the last, and every process can see who',
      needs: [fifo],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const onlooker = await scene.locks()
        assert.equal(await onlooker.election(key).leader(), undefined)
        const led: string[] = []
        const terms: bigint[] = []
        const campaigns: Promise<void>[] = []
        let allInLine = false
        for (const holder of ['ann', 'bob', 'cleo']) {
          const locks = await scene.locks({ holder })
          const campaign = locks.election(key).lead(async (lease) => {
            await scene.eventually('all three in line', () => allInLine)
            led.push(holder)
            if (lease.token !== null) terms.push(lease.token)
            assert.deepEqual(await onlooker.election(key).leader(), { holder, token: lease.token })
          })
          campaigns.push(later(campaign))
          await scene.inLine(engine, key, campaigns.length)
        }
        allInLine = true
        await Promise.all(campaigns)
        assert.deepEqual(led, ['ann', 'bob', 'cleo'])
        for (const [index, term] of terms.entries())
          assert(index === 0 || term > (terms[index - 1] as bigint), `terms ${terms.join(', ')}`)
        await scene.inLine(engine, key, 0)
      },
    },
    {
      name: 'an observer sees who leads, the change, and that there is no leader',
      async run(scene) {
        const key = scene.key()
        const [onlooker, ann, bob] = await Promise.all([
          scene.locks({ ttl: Math.max(3_000, scene.traits.minTtlMs) }),
          scene.locks({ holder: 'ann' }),
          scene.locks({ holder: 'bob' }),
        ])
        const stop = new AbortController()
        const seen: (string | undefined)[] = []
        const observe = async (): Promise<void> => {
          for await (const leader of onlooker.election(key).observe({ signal: stop.signal })) seen.push(leader?.holder)
        }
        const observing = later(observe())
        const sees = (holder: string | undefined): Promise<true> =>
          scene.eventually(`sight of ${holder ?? 'no leader'}`, () => seen.length > 0 && seen.at(-1) === holder)
        await sees(undefined)
        await ann.election(key).lead(() => sees('ann').then(() => {}))
        await sees(undefined)
        await bob.election(key).lead(() => sees('bob').then(() => {}))
        stop.abort()
        await observing
        assert.deepEqual(
          seen.filter((holder) => holder !== undefined),
          ['ann', 'bob'],
        )
      },
    },
    {
      name: 'a leader that loses its term campaigns again, if asked to, and leads with a higher one',
      needs: [fencing, ownTtl],
      async run(scene) {
        const key = scene.key()
        const [leading, evicting] = await Promise.all([scene.locks({ ttl: 6 * scene.fairTtlMs }), scene.locks()])
        const terms: (bigint | null)[] = []
        await leading.election(key).lead({ again: true }, async (lease) => {
          terms.push(lease.token)
          if (terms.length === 2) return
          assert(lease.token !== null)
          // Listened for before: it may be told before the eviction is answered.
          const lost = new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
          await evicting.evict(key, lease.token, 'now')
          await lost
        })
        const [first, second] = terms
        assert(typeof first === 'bigint' && typeof second === 'bigint' && second > first, `terms ${terms.join(', ')}`)
      },
    },
    {
      name: 'a leader that dies is followed by the next in line',
      needs: [ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const [dying, next] = await Promise.all([
          scene.faulty({ ttl: scene.fairTtlMs }),
          scene.locks({ holder: 'next' }),
        ])
        const lost = dying.locks.election(key).lead(async (lease) => {
          dying.engine.cut()
          await new Promise((resolve) => lease.signal.addEventListener('abort', resolve, { once: true }))
        })
        void later(lost)
        await scene.inLine(engine, key, 1)
        await next.election(key).lead(async () => {
          const leader: Leader | undefined = await next.election(key).leader()
          assert.equal(leader?.holder, 'next')
        })
        dying.engine.heal()
        await assert.rejects(lost, /lost/)
      },
    },
    {
      name: 'an observer sees that a dead leader leads no more, though no process says so',
      needs: [ownTtl],
      async run(scene) {
        const key = scene.key()
        const [dying, onlooker] = await Promise.all([
          scene.faulty({ holder: 'dying' }),
          scene.locks({ ttl: scene.fairTtlMs }),
        ])
        await dying.locks.mutex(key, { ttl: scene.fairTtlMs }).acquire()
        dying.engine.cut()
        const seen: (string | undefined)[] = []
        for await (const leader of onlooker.election(key).observe()) {
          seen.push(leader?.holder)
          if (leader === undefined) break
        }
        assert.deepEqual(seen, ['dying', undefined])
      },
    },
    {
      name: 'kill -9 of the leader makes the next process the leader, with a higher term',
      needs: [actors],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        const ttlMs = scene.fairTtlMs
        const [first, second] = await Promise.all([scene.actor({ ttlMs }), scene.actor({ ttlMs })])
        const old = await first.ask('lead', { lease: 'a', key, ttlMs })
        const taking = second.ask('lead', { lease: 'a', key, ttlMs })
        await scene.inLine(engine, key, 2)
        await first.kill()
        const { held, token } = await taking
        assert.equal(held, true)
        if (scene.traits.fencing)
          assert(token !== null && old.token !== null && token > old.token, `term ${token} after ${old.token}`)
        await scene.inLine(engine, key, 1)
      },
    },
  ],
}
