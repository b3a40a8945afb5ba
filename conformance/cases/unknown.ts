/**
 * Unknown outcomes: requests and replies that are lost on the way. The caller cannot tell whether the call was applied,
 * and it must not matter.
 */
import assert from 'node:assert/strict'
import { EngineError } from '../../src/core/errors.ts'
import type { Case, Group } from '../case.ts'
import { ownTtl } from '../needs.ts'

/** Whether the call whose answer is lost was applied. */
const FATES = [
  { fault: 'lose reply', fate: 'applied' },
  { fault: 'lose request', fate: 'not applied' },
] as const

const entering: readonly Case[] = FATES.flatMap(({ fault, fate }) => [
  {
    name: `an enter whose reply was lost (${fate}) is asked again, and is one entry`,
    async run(scene) {
      const [engine, client] = [await scene.engine(), await scene.faulty()]
      const key = scene.key()
      const lost = client.engine.next('enter', fault)
      const lease = await client.locks.mutex(key).acquire()
      await lost.reached
      const { entries } = await engine.inspect(key)
      assert.equal(entries.length, 1, 'entries in the line')
      assert.equal(lease.token, entries[0]?.token ?? null)
      assert.equal(await lease.release(), true)
      await scene.inLine(engine, key, 0)
    },
  },
  {
    name: `an enter whose reply was lost (${fate}) and that is given up is cleaned up`,
    async run(scene) {
      const [engine, client, other] = [await scene.engine(), await scene.faulty(), await scene.locks()]
      const key = scene.key()
      client.engine.next('enter', fault)
      const asked = client.locks.mutex(key).tryAcquire()
      await assert.rejects(asked, (error) => error instanceof EngineError && error.outcome === 'unknown')
      await scene.inLine(engine, key, 0)
      assert.equal((await other.mutex(key).acquire()).held, true)
    },
  },
])

const leaving: readonly Case[] = FATES.map(({ fault, fate }) => ({
  name: `a release whose reply was lost (${fate}) frees the lock all the same, and does not throw`,
  async run(scene) {
    const [engine, client, other] = [await scene.engine(), await scene.faulty(), await scene.locks()]
    const key = scene.key()
    const lease = await client.locks.mutex(key).acquire()
    client.engine.next('leave', fault)
    await lease.release()
    assert.equal(lease.held, false)
    const next = await other.mutex(key).acquire()
    await scene.inLine(engine, key, 1)
    await lease.release()
    assert.equal(next.held, true)
    assert.equal(await next.release(), true)
  },
}))

export const unknown: Group = {
  property: 'unknown outcomes',
  atOnce: true,
  cases: [
    ...entering,
    ...leaving,
    {
      name: 'an enter that arrives after it was given up, and says nothing, is taken out of the line before it expires',
      needs: [ownTtl],
      async run(scene) {
        const ttlMs = Math.max(3_000, scene.traits.minTtlMs)
        const [engine, client] = [await scene.engine(), await scene.faulty({ ttl: ttlMs, callTimeout: 100 })]
        const key = scene.key()
        // Connected and subscribed first: that may take longer than this short time-out.
        await (await client.locks.mutex(scene.key()).acquire()).release()
        const held = client.engine.next('enter', 'hold request, lose reply')
        const left = client.engine.next('leave', 'hold reply')
        await assert.rejects(client.locks.mutex(key).tryAcquire(), EngineError)
        await left.reached
        left.release()
        held.release()
        await held.over
        let leftMs = ttlMs
        await scene.eventually('an empty line', async () => {
          const [entry] = (await engine.inspect(key)).entries
          leftMs = entry?.remainingMs ?? leftMs
          return entry === undefined
        })
        assert(leftMs > ttlMs / 4, `it stood in line until ${leftMs} ms before its end`)
      },
    },
    {
      name: 'a request that arrives twice counts once',
      async run(scene) {
        const [engine, client] = [await scene.engine(), await scene.faulty()]
        const key = scene.key()
        client.engine.next('enter', 'repeat')
        const lease = await client.locks.mutex(key).acquire()
        await scene.inLine(engine, key, 1)
        client.engine.next('leave', 'repeat')
        await lease.release()
        await scene.inLine(engine, key, 0)
      },
    },
    {
      name: 'a renewal whose reply was lost is tried again, and the lease goes on',
      needs: [ownTtl],
      async run(scene) {
        const client = await scene.faulty({ ttl: Math.max(4_000, scene.traits.minTtlMs) })
        const lost = FATES.map(({ fault }) => client.engine.next('renew', fault))
        const lease = await client.locks.mutex(scene.key()).acquire()
        for (const { reached } of lost) await reached
        let last = lease.remainingMs
        await scene.eventually('a renewal that is answered', () => {
          const grown = lease.remainingMs > last
          last = lease.remainingMs
          return grown
        })
        assert.equal(lease.held, true)
        assert.equal(lease.signal.aborted, false)
        assert.equal(await lease.release(), true)
      },
    },
  ],
}
