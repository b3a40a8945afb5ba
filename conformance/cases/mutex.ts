/** What a mutex promises, shown for everything that must behave like one. */
import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import type { Lease } from '../../src/core/lease.ts'
import type { Case, Group } from '../case.ts'
import { lockOf, type MutexLike, mutexes } from '../mutexes.ts'
import { fencing, fifo, ownTtl } from '../needs.ts'
import { later } from '../scene.ts'

export const mutexGroups: readonly Group[] = mutexes.map((like) => ({
  property: `a mutex: ${like.name}`,
  atOnce: true,
  cases: mutexCases(like).map((one) => ({
    ...one,
    name: `${like.name}: ${one.name}`,
    needs: [...like.needs, ...(one.needs ?? [])],
  })),
}))

function mutexCases(like: MutexLike): readonly Case[] {
  return [
    {
      name: 'never two holders at once, and no update is lost, however many ask',
      async run(scene) {
        const { key } = await like.prepare(scene)
        const clients = await scene.times(3, () => scene.locks())
        const each = 12 * scene.rounds
        let inside = 0
        let counter = 0
        const add = async (): Promise<void> => {
          inside += 1
          assert.equal(inside, 1, 'holders at once')
          const seen = counter
          await turn()
          counter = seen + 1
          inside -= 1
        }
        await Promise.all(
          clients.flatMap((locks) => Array.from({ length: each }, () => lockOf(like, locks, key).using(add))),
        )
        assert.equal(counter, 3 * each)
      },
    },
    {
      name: 'the second caller waits until the first releases, and a try is told that it is taken',
      async run(scene) {
        const { key, standing } = await like.prepare(scene)
        const engine = await scene.engine()
        const [first, second] = await Promise.all([scene.locks(), scene.locks()])
        const lease = await lockOf(like, first, key).acquire()
        const other = lockOf(like, second, key)
        assert.equal(await other.tryAcquire(), undefined, 'a try while it is held')
        let granted = false
        const waiting = later(
          other.acquire().then((next) => {
            granted = true
            return next
          }),
        )
        await scene.inLine(engine, key, standing + 2)
        assert.equal(granted, false, 'held twice')
        assert.equal(lease.held, true)
        assert.equal(await lease.release(), true, 'the answer to a release')
        const next = await waiting
        assert.equal(next.held, true)
        assert.equal(lease.held, false, 'a released lease')
        assert.equal(await next.release(), true)
        await scene.inLine(engine, key, standing)
      },
    },
    {
      name: 'waiters are served in the order in which they came, of whatever process',
      needs: [fifo],
      async run(scene) {
        const { key, standing } = await like.prepare(scene)
        const engine = await scene.engine()
        const clients = await scene.times(3, () => scene.locks())
        const [holder] = clients
        assert(holder !== undefined)
        const lease = await lockOf(like, holder, key).acquire()
        const served: number[] = []
        const waiting: Promise<void>[] = []
        for (let place = 0; place < 9; place += 1) {
          const client = clients[(place * 2) % clients.length]
          assert(client !== undefined)
          waiting.push(later(lockOf(like, client, key).using(() => void served.push(place))))
          await scene.inLine(engine, key, standing + place + 2)
        }
        await lease.release()
        await Promise.all(waiting)
        assert.deepEqual(served, [0, 1, 2, 3, 4, 5, 6, 7, 8])
      },
    },
    {
      name: 'each holder has a higher token than the one before, over release, cancellation and an empty line',
      needs: [fencing],
      async run(scene) {
        const { key } = await like.prepare(scene)
        const clients = await scene.times(2, () => scene.locks())
        let last = 0n
        const note = (lease: Lease): void => {
          assert(lease.token !== null && lease.token > last, `token ${lease.token} after ${last}`)
          last = lease.token
        }
        for (let round = 0; round < 5; round += 1) {
          const work = clients.flatMap((locks) => [1, 2, 3].map(() => lockOf(like, locks, key).using(note)))
          const givingUp = clients.map(async (locks) => {
            const lease = await lockOf(like, locks, key).acquire({ signal: AbortSignal.timeout(1) })
            // The cancellation came too late.
            await lease.release()
          })
          await Promise.all([...work, Promise.allSettled(givingUp)])
        }
      },
    },
    {
      name: 'a waiter that gives up makes way for those behind it',
      async run(scene) {
        const { key, standing } = await like.prepare(scene)
        const engine = await scene.engine()
        const [first, second, third] = await scene.times(3, () => scene.locks())
        assert(first !== undefined && second !== undefined && third !== undefined)
        const lease = await lockOf(like, first, key).acquire()
        const cancel = new AbortController()
        const givingUp = later(lockOf(like, second, key).acquire({ signal: cancel.signal }))
        await scene.inLine(engine, key, standing + 2)
        const behind = later(lockOf(like, third, key).acquire())
        await scene.inLine(engine, key, standing + 3)
        const reason = new Error('no longer wanted')
        cancel.abort(reason)
        await assert.rejects(givingUp, (error) => error === reason)
        await scene.inLine(engine, key, standing + 2)
        await lease.release()
        assert.equal((await behind).held, true)
      },
    },
    {
      name: 'a holder that dies is followed by the next in line',
      needs: [ownTtl],
      async run(scene) {
        const { key, standing } = await like.prepare(scene)
        const engine = await scene.engine()
        const dying = await scene.faulty()
        const locks = await scene.locks()
        const lease = await lockOf(like, dying.locks, key, scene.fairTtlMs).acquire()
        dying.engine.cut()
        const next = later(lockOf(like, locks, key).acquire())
        await scene.inLine(engine, key, standing + 2)
        const followed = await next
        assert.equal(lease.held, false, 'the dead holder, asked when the next one holds')
        assert.equal(followed.held, true)
        assert.equal(await followed.release(), true)
      },
    },
    {
      name: 'releasing twice is releasing once',
      async run(scene) {
        const { key } = await like.prepare(scene)
        const [first, second] = await Promise.all([scene.locks(), scene.locks()])
        const lease = await lockOf(like, first, key).acquire()
        assert.equal(await lease.release(), true)
        const next = await lockOf(like, second, key).acquire()
        await lease.release()
        await lease[Symbol.asyncDispose]()
        assert.equal(next.held, true)
        assert.equal(await lockOf(like, first, key).tryAcquire(), undefined, 'the second release freed another holder')
      },
    },
  ]
}
