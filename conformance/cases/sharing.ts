/** Sharing: readers, weights, limits, and what a departure in the middle of a line does. */
import assert from 'node:assert/strict'
import { setImmediate as turn } from 'node:timers/promises'
import { type Claim, UNLIMITED } from '../../src/core/engine.ts'
import type { Case, Group } from '../case.ts'
import { fencing, fifo, ownTtl, readers, semaphores } from '../needs.ts'
import { later, type Scene } from '../scene.ts'
import { isBusy, isHeld, isWaiting, statesOf } from '../standings.ts'

/**
 * A reader holds, a writer waits behind it, and two readers behind that: what happens to the readers when the writer
 * goes?
 */
async function readerWriterReaders(
  scene: Scene,
  writerTtlMs = scene.longTtlMs,
): Promise<readonly [Claim, Claim, Claim, Claim]> {
  const key = scene.key()
  const read = { limit: UNLIMITED }
  return [
    scene.claim(key, read),
    scene.claim(key, { ttlMs: writerTtlMs }),
    scene.claim(key, read),
    scene.claim(key, read),
  ]
}

const departures: readonly Case[] = [
  {
    name: 'a cancelled writer between readers lets the readers behind it in',
    needs: [fifo, readers],
    async run(scene) {
      const [one, other] = await Promise.all([scene.engine(), scene.engine()])
      const [reader, writer, second, third] = await readerWriterReaders(scene)
      await one.enter([reader])
      await other.enter([writer])
      await one.enter([second, third])
      assert.deepEqual(await statesOf(one, reader.key), ['held', 'waiting', 'waiting', 'waiting'])
      assert.deepEqual(await other.leave([writer]), [true])
      for (const standing of await one.renew([reader, second, third])) isHeld(standing)
    },
  },
  {
    name: 'a writer that expires between readers lets the readers behind it in',
    needs: [fifo, readers, ownTtl],
    async run(scene) {
      const [one, other] = await Promise.all([scene.engine(), scene.engine()])
      const [reader, writer, second, third] = await readerWriterReaders(scene, scene.shortTtlMs)
      await one.enter([reader])
      await other.enter([writer])
      await one.enter([second, third])
      await scene.gone(one, writer)
      for (const standing of await one.renew([reader, second, third])) isHeld(standing)
    },
  },
  {
    name: 'a writer that is evicted between readers lets the readers behind it in',
    needs: [fifo, readers, fencing],
    async run(scene) {
      const [one, other] = await Promise.all([scene.engine(), scene.engine()])
      const [reader, writer, second, third] = await readerWriterReaders(scene, 6 * scene.fairTtlMs)
      await one.enter([reader])
      await other.enter([writer])
      await one.enter([second, third])
      const { entries } = await one.inspect(reader.key)
      const token =
        entries[1]?.token ?? scene.doesNotApply('it mints tokens with the grant, so that a waiter cannot be named')
      assert.equal(await one.evict(reader.key, token, 'now'), true)
      for (const standing of await one.renew([reader, second, third])) isHeld(standing)
    },
  },
  {
    name: 'readers behind a cancelled writer are woken, not left to their next renewal',
    needs: [readers],
    async run(scene) {
      const engine = await scene.engine()
      const [first, second] = await Promise.all([scene.locks({ ttl: '10m' }), scene.locks({ ttl: '10m' })])
      const key = scene.key()
      await first.rw(key).read.acquire()
      const cancel = new AbortController()
      const writing = later(second.rw(key).write.acquire({ signal: cancel.signal }))
      await scene.inLine(engine, key, 2)
      const reading = later(Promise.all([first.rw(key).read.acquire(), second.rw(key).read.acquire()]))
      await scene.inLine(engine, key, 4)
      cancel.abort(new Error('enough'))
      await assert.rejects(writing, /enough/)
      for (const lease of await reading) assert.equal(lease.held, true)
    },
  },
]

const weights: readonly Case[] = [
  {
    name: 'a semaphore holds weights up to its limit, and the next one waits for as much as it needs',
    needs: [fifo, semaphores],
    async run(scene) {
      const engine = await scene.engine()
      const key = scene.key()
      const [two, three, big, one] = [2, 3, 4, 1].map((weight) => scene.claim(key, { weight, limit: 5 })) as [
        Claim,
        Claim,
        Claim,
        Claim,
      ]
      const [first, second, third, fourth] = await engine.enter([two, three, big, one])
      isHeld(first)
      isHeld(second)
      isWaiting(third, 2)
      isWaiting(fourth, 3)
      await engine.leave([two])
      isWaiting((await engine.renew([big]))[0])
      await engine.leave([three])
      const [nowHeld, beside] = await engine.renew([big, one])
      isHeld(nowHeld)
      isHeld(beside)
    },
  },
  {
    name: 'entries that disagree on the limit get the stricter of the two',
    needs: [fifo, semaphores],
    async run(scene) {
      const engine = await scene.engine()
      const key = scene.key()
      const [wide, narrow, wideAgain] = [4, 2, 4].map((limit) => scene.claim(key, { limit })) as [Claim, Claim, Claim]
      const [first, second, third] = await engine.enter([wide, narrow, wideAgain])
      isHeld(first)
      isHeld(second)
      isWaiting(third, 2)
      await engine.leave([narrow])
      isHeld((await engine.renew([wideAgain]))[0])
      const writer = scene.claim(key)
      isWaiting((await engine.enter([writer]))[0])
      await engine.leave([wide])
      isWaiting((await engine.renew([writer]))[0])
      await engine.leave([wideAgain])
      isHeld((await engine.renew([writer]))[0])
    },
  },
  {
    name: 'the largest weights and limits are counted, not wrapped around',
    needs: [fifo, semaphores],
    async run(scene) {
      const engine = await scene.engine()
      const key = scene.key()
      const whole = { weight: UNLIMITED, limit: UNLIMITED }
      const [everything, again, little] = [
        scene.claim(key, whole),
        scene.claim(key, whole),
        scene.claim(key, { limit: UNLIMITED }),
      ]
      isHeld((await engine.enter([everything]))[0])
      const [second, third] = await engine.enter([again, little])
      isWaiting(second)
      isWaiting(third)
      await engine.leave([everything])
      const [held, waiting] = await engine.renew([again, little])
      isHeld(held)
      isWaiting(waiting)
    },
  },
  {
    name: 'a semaphore is never overdrawn and never left idle by many clients with many weights',
    needs: [semaphores],
    async run(scene) {
      const clients = await scene.times(3, () => scene.locks())
      const key = scene.key()
      let taken = 0
      let most = 0
      const use = async (weight: number): Promise<void> => {
        taken += weight
        most = Math.max(most, taken)
        await turn()
        taken -= weight
      }
      const weightsAsked = Array.from({ length: 30 * scene.rounds }, (_, index) => 1 + (index % 4))
      await Promise.all(
        clients.flatMap((locks) =>
          weightsAsked.map((weight) => locks.semaphore(key, 5).using({ weight }, () => use(weight))),
        ),
      )
      assert(most <= 5, `${most} of 5 were taken at once`)
      assert(most > 1, 'nothing was shared')
      assert.equal(taken, 0)
    },
  },
]

export const sharing: Group = {
  property: 'sharing',
  atOnce: true,
  cases: [
    {
      name: 'readers hold together, a writer alone',
      needs: [readers],
      async run(scene) {
        const [one, other] = await Promise.all([scene.locks(), scene.locks()])
        const engine = await scene.engine()
        const key = scene.key()
        const leases = await Promise.all([
          one.rw(key).read.acquire(),
          one.rw(key).read.acquire(),
          other.rw(key).read.acquire(),
        ])
        assert.deepEqual(await statesOf(engine, key), ['held', 'held', 'held'])
        assert.equal(await other.rw(key).write.tryAcquire(), undefined, 'a writer beside readers')
        const writing = later(other.rw(key).write.acquire())
        await scene.inLine(engine, key, 4)
        for (const lease of leases) {
          assert.equal(lease.held, true)
          await lease.release()
        }
        const writer = await writing
        isBusy((await engine.enter([scene.claim(key, { limit: UNLIMITED, wait: false })]))[0])
        assert.equal(await one.rw(key).write.tryAcquire(), undefined, 'a writer beside a writer')
        await writer.release()
      },
    },
    {
      name: 'each reader has a token of its own, higher than those before it',
      needs: [readers, fencing],
      async run(scene) {
        const engine = await scene.engine()
        const key = scene.key()
        await engine.enter(Array.from({ length: 3 }, () => scene.claim(key, { limit: UNLIMITED })))
        const { entries } = await engine.inspect(key)
        const [first, second, third] = entries.map(({ token }) => token ?? -1n)
        assert(first !== undefined && second !== undefined && third !== undefined)
        assert(0n <= first && first < second && second < third, `${first}, ${second}, ${third}`)
      },
    },
    ...departures,
    ...weights,
  ],
}
