/**
 * Fencing tokens never go back for a key: not after a release, an expiry, an eviction, a crash or a restart, and not
 * when the key was not used for a while. A guard at the resource relies on nothing else.
 */
import assert from 'node:assert/strict'
import type { Claim, Engine } from '../../src/core/engine.ts'
import type { Group } from '../case.ts'
import { actors, fencing, ownTtl } from '../needs.ts'
import type { Scene } from '../scene.ts'
import { isHeld, tokenOf } from '../standings.ts'

/** Enter, and have the token, which must be higher than `after`. */
async function nextToken(engine: Engine, claim: Claim, after: bigint): Promise<bigint> {
  const [standing] = await engine.enter([claim])
  const token = tokenOf(standing)
  assert(token > after, `token ${token} after ${after}`)
  return token
}

/** Acquire the key from a new client, release it, and have the token. */
export async function freshToken(scene: Scene, key: string): Promise<bigint> {
  const locks = await scene.locks()
  const lease = await locks.mutex(key).acquire()
  assert(lease.token !== null)
  await lease.release()
  return lease.token
}

export const tokens: Group = {
  property: 'tokens',
  atOnce: true,
  cases: [
    {
      name: 'a token is higher than every earlier one of its key: after release, expiry and eviction, and when the line was empty',
      needs: [fencing, ownTtl],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const released = scene.claim(key)
        let last = await nextToken(one, released, 0n)
        await one.leave([released])
        const expiring = scene.claim(key, { ttlMs: scene.fairTtlMs })
        last = await nextToken(other, expiring, last)
        await scene.gone(one, expiring)
        const evicted = scene.claim(key, { ttlMs: scene.fairTtlMs })
        last = await nextToken(one, evicted, last)
        assert.equal(await other.evict(key, last, 'now'), true)
        last = await nextToken(other, scene.claim(key), last)
      },
    },
    {
      name: 'renewing and entering again do not change the token',
      needs: [fencing],
      async run(scene) {
        const engine = await scene.engine()
        const claim = scene.claim(scene.key())
        const token = await nextToken(engine, claim, 0n)
        const [renewed] = await engine.renew([claim])
        assert.equal(tokenOf(renewed), token, 'after a renewal')
        const [again] = await engine.enter([claim])
        assert.equal(tokenOf(again), token, 'after entering again')
        const [entry] = (await engine.inspect(claim.key)).entries
        assert.equal(entry?.token, token, 'as others see it')
      },
    },
    {
      name: 'the token that a waiter is granted with is its own, and higher than that of the holder before it',
      needs: [fencing],
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const key = scene.key()
        const [holder, waiter] = [scene.claim(key), scene.claim(key)]
        const token = await nextToken(one, holder, 0n)
        await other.enter([waiter])
        const between = await nextToken(one, scene.claim(scene.key('elsewhere')), 0n)
        assert(between > 0n)
        await one.leave([holder])
        const [granted] = await other.renew([waiter])
        assert(tokenOf(granted) > token, `granted with ${tokenOf(granted)} after ${token}`)
        await other.leave([waiter])
        await nextToken(one, scene.claim(key), tokenOf(granted))
      },
    },
    {
      name: 'tokens go on when every client has gone and new ones come',
      needs: [fencing],
      async run(scene) {
        const key = scene.key()
        let last = 0n
        for (let round = 0; round < 4; round += 1) {
          const engine = await scene.world.engine()
          const claim = scene.claim(key)
          last = await nextToken(engine, claim, last)
          isHeld((await engine.renew([claim]))[0])
          await engine.leave([claim])
          await engine[Symbol.asyncDispose]()
        }
      },
    },
    {
      name: 'after kill -9 of a holder the next one has a higher token',
      needs: [fencing, actors],
      async run(scene) {
        const key = scene.key()
        const actor = await scene.actor({ ttlMs: scene.fairTtlMs })
        const { token } = await actor.ask('acquire', { lease: 'a', lock: { kind: 'mutex', key } })
        await actor.kill()
        const next = await freshToken(scene, key)
        assert(token !== null && next > token, `token ${next} after ${token}`)
      },
    },
  ],
}
