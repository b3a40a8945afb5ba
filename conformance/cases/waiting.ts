/** Waiting in line: time-outs, wake-ups, and what becomes of a waiter whose news or answers go astray. */
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { AcquireTimeoutError } from '../../src/core/errors.ts'
import type { Group } from '../case.ts'
import { fifo, outliving, ownTtl, wakes } from '../needs.ts'
import { later } from '../scene.ts'

export const waiting: Group = {
  property: 'waiting',
  atOnce: true,
  cases: [
    {
      name: 'a wait that runs out says who was in the way, and leaves nothing in the line',
      async run(scene) {
        const engine = await scene.engine()
        const [one, other] = await Promise.all([scene.locks({ holder: 'the one in the way' }), scene.locks()])
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        // A wait that the engine never answers, because it is still connecting, would end with an EngineError.
        await (await other.mutex(scene.key()).acquire()).release()
        // Who holds is asked in a quarter of a second, for the message alone. On a busy machine that can be too short.
        for (const wait of [1000, 0]) {
          for (let triesLeft = 5; ; triesLeft -= 1) {
            const error: unknown = await other
              .mutex(key)
              .acquire({ wait })
              .catch((reason: unknown) => reason)
            assert(error instanceof AcquireTimeoutError, String(error))
            assert.equal(error.key, key)
            if (error.holders.length === 0 && triesLeft > 0) continue
            assert.deepEqual(
              error.holders.map(({ holder }) => holder),
              ['the one in the way'],
            )
            break
          }
        }
        await scene.inLine(engine, key, 1)
        assert.equal(lease.held, true)
        await lease.release()
        assert.equal((await other.mutex(key).acquire({ wait: 10_000 })).held, true)
      },
    },
    {
      name: 'a release wakes the next waiter: no waiter waits for a poll',
      needs: [wakes],
      async run(scene) {
        // The waiters' own renewals come every 200 s: later than this case may take.
        const [one, other] = await Promise.all([scene.locks({ ttl: '10m' }), scene.locks({ ttl: '10m' })])
        const engine = await scene.engine()
        const key = scene.key()
        for (let round = 0; round < 10 * scene.rounds; round += 1) {
          const lease = await one.mutex(key).acquire()
          const next = later(other.mutex(key).acquire())
          await scene.inLine(engine, key, 2)
          await lease.release()
          await (await next).release()
        }
      },
    },
    {
      name: 'a release for later wakes the next one when that time is over, and not at a poll, or at the old expiry',
      needs: [wakes, outliving],
      async run(scene) {
        // The waiter's own renewals come every 200 s: later than this case may take.
        const [one, other] = await Promise.all([scene.locks({ ttl: '10m' }), scene.locks({ ttl: '10m' })])
        const engine = await scene.engine()
        const lease = await one.mutex(scene.key()).acquire()
        const next = later(other.mutex(lease.key).acquire())
        await scene.inLine(engine, lease.key, 2)
        assert.equal(await lease.release({ after: scene.fairTtlMs }), true)
        assert.equal((await next).held, true)
      },
    },
    {
      name: 'when the first waiter goes, the next one looks in its place: it is let in as soon as the holder expires',
      needs: [wakes, outliving],
      async run(scene) {
        // As above. Only the first waiter is told when the holder expires; the others wait for the first.
        const locks = (): ReturnType<typeof scene.locks> => scene.locks({ ttl: '10m' })
        const [one, first, next] = await Promise.all([locks(), locks(), locks()])
        const engine = await scene.engine()
        for (const how of ['cancelled', 'evicted'] as const) {
          const lease = await one.mutex(scene.key()).acquire()
          const cancel = new AbortController()
          // On a slow machine it may be let in before it goes.
          const going = first
            .mutex(lease.key)
            .acquire({ signal: cancel.signal })
            .then(
              (early) => early.release(),
              () => undefined,
            )
          await scene.inLine(engine, lease.key, 2)
          const waiting = later(next.mutex(lease.key).acquire())
          await scene.inLine(engine, lease.key, 3)
          assert.equal(await lease.release({ after: scene.fairTtlMs }), true)
          const [, waiter] = (await engine.inspect(lease.key)).entries
          // Where waiters have no token, they cannot be evicted.
          if (how === 'evicted' && waiter?.state === 'waiting' && waiter.token !== null)
            await engine.evict(lease.key, waiter.token, 'expire')
          else cancel.abort()
          await going
          await (await waiting).release()
        }
      },
    },
    {
      name: 'an expiry wakes the next one, or lets it find out by itself',
      needs: [ownTtl],
      async run(scene) {
        const engine = await scene.engine()
        const dead = scene.claim(scene.key(), { ttlMs: scene.shortTtlMs })
        await engine.enter([dead])
        const locks = await scene.locks({ ttl: Math.max(6_000, scene.traits.minTtlMs) })
        const lease = await locks.mutex(dead.key).acquire()
        assert.equal(lease.held, true)
      },
    },
    {
      name: 'a lost wake-up costs time and nothing else: every renewal of a waiter is also its poll',
      async run(scene) {
        const ttl = Math.max(scene.traits.minTtlMs, 1_500)
        const [one, deaf] = await Promise.all([scene.locks(), scene.faulty({ ttl })])
        const engine = await scene.engine()
        deaf.engine.deaf = true
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        const next = later(deaf.locks.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        await lease.release()
        assert.equal((await next).held, true)
      },
    },
    {
      name: 'ending a subscription that was given up does not silence the one that came after it',
      needs: [wakes],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const ttlMs = 600_000
        const [holding, waiting] = [
          scene.claim(scene.key(), { ttlMs }),
          scene.claim(scene.key(), { ttlMs, wait: true }),
        ]
        const heard: string[] = []
        const givenUp = await other.subscribe?.(() => undefined)
        await other.subscribe?.((news) => {
          if ('id' in news) heard.push(news.id)
        })
        await givenUp?.[Symbol.asyncDispose]()
        await one.enter([holding])
        await other.enter([{ ...waiting, key: holding.key }])
        await one.leave([holding])
        await scene.eventually('news of the grant', async () => heard.includes(waiting.id))
      },
    },
    {
      name: 'after a gap in the news every waiter looks for itself',
      needs: [wakes],
      async run(scene) {
        const [one, deaf] = await Promise.all([scene.locks({ ttl: '10m' }), scene.faulty({ ttl: '10m' })])
        const engine = await scene.engine()
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        const next = later(deaf.locks.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        deaf.engine.deaf = true
        await lease.release()
        deaf.engine.deaf = false
        deaf.engine.tell({ gap: true })
        assert.equal((await next).held, true)
      },
    },
    {
      name: 'a grant that is announced before the enter is answered is not lost',
      needs: [wakes],
      async run(scene) {
        const [one, late] = await Promise.all([scene.locks({ ttl: '10m' }), scene.faulty({ ttl: '10m' })])
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        const held = late.engine.next('enter', 'hold reply')
        const next = later(late.locks.mutex(key).acquire())
        await held.reached
        await lease.release()
        // One more trip, so that the news of the grant has had its time.
        await one.inspect(key)
        held.release()
        assert.equal((await next).held, true)
      },
    },
    {
      name: 'an answer "waiting" from before the grant does not take the lease away',
      needs: [wakes],
      async run(scene) {
        const [one, late] = await Promise.all([scene.locks(), scene.faulty({ ttl: '10m' })])
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        const engine = await scene.engine()
        const next = later(late.locks.mutex(key).acquire())
        await scene.inLine(engine, key, 2)
        const held = late.engine.next('renew', 'hold reply')
        late.engine.tell({ gap: true })
        await held.reached
        await lease.release()
        const granted = await next
        held.release()
        await one.inspect(key)
        assert.equal(granted.held, true, 'a late answer took the lease away')
        assert.equal(await granted.release(), true)
      },
    },
    {
      name: 'a waiter that has lost its place comes back, at the back of the line',
      needs: [fifo],
      async run(scene) {
        const engine = await scene.engine()
        const [one, away] = await Promise.all([scene.locks(), scene.faulty({ ttl: 6 * scene.fairTtlMs })])
        const key = scene.key()
        const lease = await one.mutex(key).acquire()
        const served: string[] = []
        const first = later(away.locks.mutex(key).using(() => void served.push('away')))
        const { entries } = await scene.inLine(engine, key, 2)
        const second = later(one.mutex(key).using(() => void served.push('present')))
        await scene.inLine(engine, key, 3)
        // As if it had been asleep for longer than its ttl: its next renewal finds out.
        assert.deepEqual(await engine.leave([{ key, id: entries[1]?.id ?? '' }]), [true])
        away.engine.tell({ gap: true })
        await scene.eventually('the two in line, in the other order', async () => {
          const [, behind, last] = (await engine.inspect(key)).entries
          return behind?.id !== entries[1]?.id && last !== undefined
        })
        await lease.release()
        await Promise.all([first, second])
        assert.deepEqual(served, ['present', 'away'])
      },
    },
    {
      name: 'renewals keep a lease, and a place in line, for longer than the ttl',
      needs: [ownTtl],
      async run(scene) {
        const ttl = Math.max(scene.traits.minTtlMs, 2_000)
        const [engine, locks] = [await scene.engine(), await scene.locks({ ttl })]
        const lease = await locks.mutex(scene.key()).acquire()
        const next = later(locks.mutex(lease.key).acquire())
        const { entries } = await scene.inLine(engine, lease.key, 2)
        await sleep(1.3 * ttl)
        assert.equal(lease.held, true)
        const { entries: after } = await engine.inspect(lease.key)
        assert.deepEqual(
          after.map(({ id, state }) => ({ id, state })),
          entries.map(({ id, state }) => ({ id, state })),
        )
        assert.equal(await lease.release(), true)
        assert.equal((await next).held, true)
      },
    },
  ],
}
