/**
 * The two steps that a recipe can save where the store has them: to enter a free line together with a change of the
 * record beside it, and to leave the line together with another one. Both are made, or neither.
 */
import assert from 'node:assert/strict'
import type { Claim, Engine } from '../../src/core/engine.ts'
import type { Change, Entered, Leaving, Put, Store } from '../../src/core/store.ts'
import type { Case, Group } from '../case.ts'
import { ownTtl, storeHolding, storing } from '../needs.ts'
import { isRefused, isStored, putOne, putting, read, textOf } from '../records.ts'
import { later, type Scene } from '../scene.ts'
import { isHeld, isWaiting, statesOf, tokenOf } from '../standings.ts'

/** A store that has both. */
type EnteringStore = Store & Required<Pick<Store, 'putEntering' | 'putLeaving'>>

async function entering(scene: Scene): Promise<[Engine, EnteringStore]> {
  const [engine, store] = await scene.engineAndStore()
  if (store.putEntering === undefined || store.putLeaving === undefined)
    return scene.doesNotApply('its store cannot enter or leave a line in the step of a change')
  return [engine, store as EnteringStore]
}

async function enterOne(store: EnteringStore, claim: Claim, change: Change): Promise<Entered> {
  const entered = await store.putEntering([{ claim, change }])
  assert.equal(entered.length, 1, 'one answer to one entrance')
  return entered[0] as Entered
}

async function leaveOne(store: EnteringStore, leaving: Leaving): Promise<Put> {
  const puts = await store.putLeaving([leaving])
  assert.equal(puts.length, 1, 'one answer to one leaving')
  return puts[0] as Put
}

const trying = (scene: Scene, key: string, more: Partial<Claim> = {}): Claim =>
  scene.claim(key, { ...more, wait: false })

const cases: readonly Case[] = [
  {
    name: 'entering: a free line is held and the record is stored, and the next one is told of both',
    async run(scene) {
      const [[engine, store], [other, otherStore]] = [await entering(scene), await entering(scene)]
      const key = scene.recordKey()
      const [first, second] = [trying(scene, key), trying(scene, key)]
      const { standing, put } = await enterOne(store, first, putting(key, 'first', { absent: true }))
      isHeld(standing)
      const { version } = isStored(put)
      const { entries } = await other.inspect(key)
      assert.deepEqual(
        entries.map(({ id, state, token }) => [id, state, token]),
        [[first.id, 'held', tokenOf(standing)]],
      )
      assert.deepEqual([(await read(otherStore, key)).version, await textOf(otherStore, key)], [version, 'first'])
      const late = await enterOne(otherStore, second, putting(key, 'second', { absent: true }))
      assert.equal(late.standing.state, 'busy')
      isRefused(late.put, 'holding', 'first')
      await scene.inLine(engine, key, 1)
      isHeld((await engine.renew([first]))[0])
      isStored(await putOne(store, putting(key, 'more', { holding: first.id, version })))
    },
  },
  {
    name: 'entering: where the change is refused, nothing of the claim is in the line',
    async run(scene) {
      const [engine, store] = await entering(scene)
      const key = scene.recordKey()
      const { version } = isStored(await putOne(store, putting(key, 'before', {}, { mark: 7n })))
      const refusals: readonly [Change, 'absent' | 'version' | 'markBelow'][] = [
        [putting(key, 'after', { absent: true }), 'absent'],
        [putting(key, 'after', { version: version + 1n }), 'version'],
        [putting(key, 'after', { markBelow: 7n }), 'markBelow'],
      ]
      for (const [change, by] of refusals) {
        const { standing, put } = await enterOne(store, trying(scene, key), change)
        assert.equal(standing.state, 'busy')
        isRefused(put, by, 'before')
        await scene.inLine(engine, key, 0)
      }
      const { standing, put } = await enterOne(store, trying(scene, key), putting(key, 'after', { version }))
      isHeld(standing)
      assert.equal(isStored(put).mark, 7n)
      assert.equal(await textOf(store, key), 'after')
    },
  },
  {
    name: 'entering: a line with a waiter is not free, and one whose holder has expired is',
    needs: [ownTtl],
    async run(scene) {
      const [engine, store] = await entering(scene)
      const { shortTtlMs: ttlMs } = scene
      const { key, waiter } = await scene.promptly(ttlMs, async () => {
        const entered = scene.recordKey()
        const [holder, next] = [scene.claim(entered, { ttlMs }), scene.claim(entered)]
        isHeld((await engine.enter([holder]))[0])
        isWaiting((await engine.enter([next]))[0])
        isRefused((await enterOne(store, trying(scene, entered), putting(entered, 'early'))).put, 'holding', null)
        assert.equal(await textOf(store, entered), null)
        return { key: entered, waiter: next }
      })
      await engine.leave([waiter])
      await scene.eventually('the holder has expired', async () => {
        const { standing, put } = await enterOne(store, trying(scene, key), putting(key, 'mine'))
        assert.equal(standing.state === 'held', put.state === 'stored')
        return put.state === 'stored'
      })
      assert.equal(await textOf(store, key), 'mine')
    },
  },
  {
    name: 'entering: an entrance that arrives twice is made once, and is answered alike',
    async run(scene) {
      const [engine, store] = await entering(scene)
      const key = scene.recordKey()
      const claim = trying(scene, key)
      const change = putting(key, 'mine', { absent: true })
      const [first, second] = [await enterOne(store, claim, change), await enterOne(store, claim, change)]
      assert.equal(tokenOf(first.standing), tokenOf(second.standing))
      assert.equal(isStored(first.put).version, isStored(second.put).version)
      await scene.inLine(engine, key, 1)
    },
  },
  {
    name: 'entering: of many clients that enter at once one holds, and all are told what it has stored',
    async run(scene) {
      const stores = await scene.times(4, async () => (await entering(scene))[1])
      for (let round = 0; round < 4 * scene.rounds; round += 1) {
        const key = scene.recordKey()
        const claims = stores.flatMap((store) => [0, 1, 2].map(() => ({ store, claim: trying(scene, key) })))
        const entered = await Promise.all(
          claims.map(({ store, claim }) => enterOne(store, claim, putting(key, claim.id, { absent: true }))),
        )
        const winners = claims.filter((_, index) => entered[index]?.standing.state === 'held')
        assert.equal(winners.length, 1, 'how many hold')
        const [winner] = winners
        for (const { put } of entered) if (put.state !== 'stored') isRefused(put, 'holding', winner?.claim.id ?? '')
        assert.equal(await textOf(stores[0] as Store, key), winner?.claim.id)
      }
    },
  },
  {
    name: 'entering and leaving: a full batch is answered in its order, also several of one key',
    async run(scene) {
      const [engine, store] = await entering(scene)
      const count = Math.min(store.traits.batchLimit, 40)
      const keys = Array.from({ length: count }, (_, index) => scene.recordKey(`batch ${index >> 1}`))
      // Every second one is of the key before it.
      for (const [index, key] of keys.entries()) if (index % 2 === 1) keys[index] = keys[index - 1] ?? key
      const claims = keys.map((key) => trying(scene, key))
      const entered = await store.putEntering(
        claims.map((claim, index) => ({ claim, change: putting(claim.key, String(index), { absent: true }) })),
      )
      for (const [index, { standing, put }] of entered.entries()) {
        if (index % 2 === 0) isHeld(standing)
        else isRefused(put, 'holding', String(index - 1))
      }
      const puts = await store.putLeaving(
        claims.map(({ key, id }, index) => {
          const { put } = entered[index - (index % 2)] as Entered
          return { id, change: putting(key, `${index} left`, { version: isStored(put).version }, { ttlMs: 60_000 }) }
        }),
      )
      for (const [index, put] of puts.entries()) {
        if (index % 2 === 0) isStored(put)
        else isRefused(put, 'version', `${index - 1} left`)
      }
      for (const key of new Set(keys)) await scene.inLine(engine, key, 0)
    },
  },
  {
    name: 'leaving: the record is stored, the line is left, and the waiter holds and finds the record',
    async run(scene) {
      const [[engine, store], [next, nextStore]] = [await entering(scene), await entering(scene)]
      const key = scene.recordKey()
      const [claim, waiter] = [trying(scene, key), scene.claim(key)]
      const { version } = isStored((await enterOne(store, claim, putting(key, 'begun', { absent: true }))).put)
      isWaiting((await next.enter([waiter]))[0])
      const leaving = later(leaveOne(store, { id: claim.id, change: putting(key, 'done', { version }) }))
      await scene.eventually('the waiter holds', async () => {
        const [entry] = (await next.inspect(key)).entries
        return entry?.id === waiter.id && entry.state === 'held'
      })
      assert.equal(await textOf(nextStore, key), 'done')
      isStored(await leaving)
      await scene.inLine(engine, key, 1)
      isStored(await putOne(nextStore, putting(key, 'next', { holding: waiter.id })))
    },
  },
  {
    name: 'leaving: an entry whose change is refused stays in the line',
    async run(scene) {
      const [engine, store] = await entering(scene)
      const key = scene.recordKey()
      const claim = trying(scene, key)
      const { version } = isStored((await enterOne(store, claim, putting(key, 'begun', { absent: true }))).put)
      isRefused(
        await leaveOne(store, { id: claim.id, change: putting(key, 'late', { version: version + 1n }) }),
        'version',
        'begun',
      )
      assert.deepEqual(await statesOf(engine, key), ['held'])
      isStored(await leaveOne(store, { id: claim.id, change: putting(key, 'done', { version }) }))
      await scene.inLine(engine, key, 0)
      // The call arrives once more, when another one holds: it changes nothing.
      const other = trying(scene, key)
      isHeld((await engine.enter([other]))[0])
      isRefused(await leaveOne(store, { id: claim.id, change: putting(key, 'done', { version }) }), 'version', 'done')
      assert.deepEqual(await statesOf(engine, key), ['held'])
    },
  },
]

export const storeEnteringGroup: Group = {
  property: 'the store, entering and leaving',
  atOnce: true,
  cases: cases.map(({ needs = [], ...one }) => ({ ...one, needs: [storing, storeHolding, ...needs] })),
}
