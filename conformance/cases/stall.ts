/** Time that misbehaves: an event loop that stalls, and a wall clock that jumps. */
import assert from 'node:assert/strict'
import { LeaseLostError } from '../../src/core/errors.ts'
import type { Case, Group } from '../case.ts'
import { actors, ownTtl, yielding } from '../needs.ts'
import { isBusy, isHeld } from '../standings.ts'

const HOUR_MS = 3_600_000

/** Block this process: no timer fires, no answer arrives. */
function stall(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

const jumps: readonly Case[] = [HOUR_MS, -HOUR_MS].flatMap((ms) => [
  {
    name: `a wall clock that jumps an hour ${ms > 0 ? 'ahead' : 'back'} does not end a lease, and does not prolong one`,
    needs: [ownTtl],
    async run(scene) {
      const [engine, client] = [await scene.engine(), await scene.faulty()]
      const lease = await client.locks.mutex(scene.key()).acquire()
      const cut = await client.locks.mutex(scene.key(), { ttl: scene.fairTtlMs }).acquire()
      const now = Date.now
      Date.now = () => now() + ms
      try {
        assert.equal(lease.held, true, 'right after the jump')
        await engine.inspect(lease.key)
        assert.equal(lease.held, true, 'a little later')
        client.engine.cut()
        await scene.eventually('the end of the lease that is cut off', () => !cut.held)
        await scene.inLine(engine, cut.key, 0)
        assert.equal(lease.held, true, 'the lease with the longer ttl')
        isBusy((await engine.enter([scene.claim(lease.key, { wait: false })]))[0])
      } finally {
        Date.now = now
      }
    },
  },
  {
    name: `a process whose wall clock is an hour ${ms > 0 ? 'ahead' : 'behind'} neither takes a lock that is held nor waits longer for one that is free`,
    needs: [actors],
    async run(scene) {
      const [engine, locks] = [await scene.engine(), await scene.locks()]
      const actor = await scene.actor()
      await actor.ask('jump', { ms })
      const lease = await locks.mutex(scene.key()).acquire()
      assert.equal(await actor.ask('tryAcquire', { lease: 'a', lock: { kind: 'mutex', key: lease.key } }), undefined)
      assert.equal(lease.held, true)
      const waiting = actor.ask('acquire', { lease: 'b', lock: { kind: 'mutex', key: lease.key } })
      await scene.inLine(engine, lease.key, 2)
      isBusy((await engine.enter([scene.claim(lease.key, { wait: false })]))[0])
      assert.equal(await lease.release(), true)
      const { held } = await waiting
      assert.equal(held, true)
      isBusy((await engine.enter([scene.claim(lease.key, { wait: false })]))[0])
    },
  },
])

/** Far more than a loop that lets the event loop turn needs for it. */
const BUSY_MS = 1_500

export const stalls: Group = {
  property: 'stalls and clocks',
  cases: [
    {
      name: 'a loop of locks that are free lets the event loop turn: timers fire, and other leases are renewed',
      needs: [yielding],
      async run(scene) {
        const locks = await scene.locks()
        const lock = locks.mutex(scene.key())
        let fired = false
        const timer = setTimeout(() => {
          fired = true
        }, 10)
        for (const until = performance.now() + BUSY_MS; !fired && performance.now() < until; )
          await lock.using(() => undefined)
        clearTimeout(timer)
        assert(fired, `a timer of 10 ms has not fired in ${BUSY_MS} ms`)
      },
    },
    {
      name: 'after a stall the very first look tells the truth: held, remaining time, signal, assertion',
      needs: [ownTtl],
      async run(scene) {
        const locks = await scene.locks({ ttl: scene.fairTtlMs })
        const lease = await locks.mutex(scene.key()).acquire()
        const follower = AbortSignal.any([lease.signal])
        assert.equal(lease.held, true)
        stall(1.2 * scene.fairTtlMs)
        assert.equal(lease.signal.aborted, true, 'the signal')
        assert.equal(follower.aborted, true, 'a signal made from it')
        assert.equal(lease.held, false, 'held')
        assert.equal(lease.remainingMs, 0, 'remaining time')
        assert.throws(() => lease.assertHeld(), LeaseLostError)
        assert.throws(() => lease.signal.throwIfAborted(), LeaseLostError)
      },
    },
    {
      name: 'work that stalled for longer than its ttl is told so, even if it succeeded',
      needs: [ownTtl],
      async run(scene) {
        const locks = await scene.locks({ ttl: scene.fairTtlMs })
        const work = locks.mutex(scene.key()).using(() => {
          stall(1.2 * scene.fairTtlMs)
          return 'done'
        })
        await assert.rejects(work, LeaseLostError)
      },
    },
    ...jumps,
    {
      name: 'after its own stall a client goes on: what it held is lost, what it asks for anew is had',
      needs: [ownTtl],
      async run(scene) {
        const [engine, locks] = [await scene.engine(), await scene.locks({ ttl: scene.fairTtlMs })]
        const key = scene.key()
        const lost = await locks.mutex(key).acquire()
        stall(1.2 * scene.fairTtlMs)
        assert.equal(await lost.release(), false)
        const claim = scene.claim(key)
        isHeld((await engine.enter([claim]))[0])
        await engine.leave([claim])
        assert.equal((await locks.mutex(key, { ttl: scene.longTtlMs }).acquire()).held, true)
      },
    },
  ],
}
