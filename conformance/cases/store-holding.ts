/**
 * The condition that locks are for: a record is changed only while a certain entry holds the line of the same key. It
 * is checked in the step of the change. A check before that step would let a holder write that was replaced in between.
 */
import assert from 'node:assert/strict'
import type { Locks } from '../../src/locks.ts'
import { RecordStore } from '../../src/store/record-store.ts'
import type { Case, Group } from '../case.ts'
import { ownTtl, storeHolding, storing } from '../needs.ts'
import { isRefused, isStored, putOne, putting, read, removing, textOf } from '../records.ts'
import { later } from '../scene.ts'
import { isHeld, isWaiting, statesOf, tokenOf } from '../standings.ts'

/** Whether the call whose answer is lost was applied. */
const LOST = [
  { fault: 'lose reply', fate: 'applied' },
  { fault: 'lose request', fate: 'not applied' },
] as const

const recordsOf = (locks: Locks): RecordStore<string> => new RecordStore('case', locks, {})

const cases: readonly Case[] = [
  {
    name: 'holding: an entry that holds can put; one that waits, has left or never came cannot',
    async run(scene) {
      const [[engine, store], [next, nextStore]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      const key = scene.recordKey()
      const [first, second, stranger] = [scene.claim(key), scene.claim(key), scene.claim(key)]
      isHeld((await engine.enter([first]))[0])
      isWaiting((await next.enter([second]))[0])
      isRefused(await putOne(nextStore, putting(key, 'waiter', { holding: second.id })), 'holding', null)
      isRefused(await putOne(store, putting(key, 'stranger', { holding: stranger.id })), 'holding', null)
      isStored(await putOne(store, putting(key, 'first', { holding: first.id })))
      await engine.leave([first])
      await scene.eventually('the next one holds', async () => (await statesOf(next, key))[0] === 'held')
      isRefused(await putOne(store, putting(key, 'late', { holding: first.id })), 'holding', 'first')
      isRefused(await putOne(store, removing(key, { holding: first.id })), 'holding', 'first')
      isStored(await putOne(nextStore, putting(key, 'second', { holding: second.id })))
      await next.leave([second])
      isRefused(await putOne(nextStore, putting(key, 'late', { holding: second.id })), 'holding', 'second')
    },
  },
  {
    name: 'holding: readers that hold together can all put, and the writer behind them cannot',
    async run(scene) {
      if (scene.traits.sharing === 'none') scene.doesNotApply('it has no shared locks')
      const [engine, store] = await scene.engineAndStore()
      const key = scene.recordKey()
      const readers = [scene.claim(key, { limit: 2147483647 }), scene.claim(key, { limit: 2147483647 })]
      const writer = scene.claim(key)
      const standings = await engine.enter([...readers, writer])
      isHeld(standings[0])
      isHeld(standings[1])
      for (const { id } of readers) isStored(await putOne(store, putting(key, id, { holding: id })))
      isRefused(await putOne(store, putting(key, 'writer', { holding: writer.id })), 'holding', readers[1]?.id ?? '')
    },
  },
  {
    name: 'holding: a holder whose ttl is over cannot put, though no other has come',
    needs: [ownTtl],
    async run(scene) {
      const [engine, store] = await scene.engineAndStore()
      const key = scene.recordKey()
      const claim = scene.claim(key, { ttlMs: scene.shortTtlMs })
      isHeld((await engine.enter([claim]))[0])
      const change = putting(key, 'mine', { holding: claim.id })
      await scene.eventually('it is refused', async () => (await putOne(store, change)).state === 'refused')
      const { version } = await read(store, key)
      isRefused(await putOne(store, change), 'holding', version === 0n ? null : 'mine')
    },
  },
  {
    name: 'holding: an evicted holder cannot put once the line is free',
    async run(scene) {
      const [[engine, store], other] = [await scene.engineAndStore(), await scene.engine()]
      const key = scene.recordKey()
      const claim = scene.claim(key)
      const token = tokenOf((await engine.enter([claim]))[0])
      isStored(await putOne(store, putting(key, 'before', { holding: claim.id })))
      if (!(await other.evict(key, token, 'now'))) scene.doesNotApply('it evicts no entries of other clients')
      isRefused(await putOne(store, putting(key, 'after', { holding: claim.id })), 'holding', 'before')
    },
  },
  {
    name: 'holding: a change that races with the release never lands on that of the next holder',
    async run(scene) {
      const [[engine, store], [next, nextStore]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      for (let round = 0; round < 8 * scene.rounds; round += 1) {
        const key = scene.recordKey()
        const [first, second] = [scene.claim(key), scene.claim(key)]
        isHeld((await engine.enter([first]))[0])
        await next.enter([second])
        let over = false
        const follow = async (): Promise<void> => {
          await engine.leave([first])
          const change = putting(key, 'second', { holding: second.id })
          await scene.eventually('the next one puts', async () => (await putOne(nextStore, change)).state === 'stored')
        }
        const end = (): void => {
          over = true
        }
        // The holder that leaves goes on putting, several at a time, until the next one has put.
        const linger = async (): Promise<void> => {
          while (!over) await putOne(store, putting(key, 'first', { holding: first.id }))
        }
        await Promise.all([linger(), linger(), linger(), follow().finally(end)])
        assert.equal(await textOf(store, key), 'second', 'the record of the last holder')
        await next.leave([second])
      }
    },
  },
  {
    name: 'holding: a change that was held up on its way until another holds is refused',
    async run(scene) {
      const [client, other] = [await scene.faulty(), await scene.locks()]
      const key = scene.recordKey()
      const [records, others] = [recordsOf(client.locks), recordsOf(other)]
      const first = await client.locks.mutex(key).acquire()
      const heldUp = client.engine.next('put', 'hold request')
      const late = later(records.put(key, 'first', { holding: first }))
      await heldUp.reached
      await first.release()
      const second = await other.mutex(key).acquire()
      assert.equal((await others.put(key, 'second', { holding: second })).state, 'stored')
      heldUp.release()
      const refused = await late
      assert.deepEqual([refused.state, refused.state === 'refused' && refused.by], ['refused', 'holding'])
      assert.equal((await others.get(key)).value, 'second')
    },
  },
  ...LOST.map(
    ({ fault, fate }): Case => ({
      name: `a change whose reply was lost (${fate}) is asked again, and its caller is told that it was made`,
      async run(scene) {
        const [client, other] = [await scene.faulty(), await scene.locks()]
        const key = scene.recordKey()
        const records = recordsOf(client.locks)
        const lease = await client.locks.mutex(key).acquire()
        const lost = client.engine.next('put', fault)
        const put = await records.put(key, 'mine', { holding: lease, absent: true })
        await lost.reached
        const { value, version } = await recordsOf(other).get(key)
        assert.equal(value, 'mine')
        assert.deepEqual([put.state, put.state === 'stored' && put.version], ['stored', version])
        assert.equal((await records.put(key, 'more', { holding: lease, version })).state, 'stored')
      },
    }),
  ),
  {
    name: 'holding and version: all conditions count, and the first that is not met is named',
    async run(scene) {
      const [engine, store] = await scene.engineAndStore()
      const key = scene.recordKey()
      const claim = scene.claim(key)
      isHeld((await engine.enter([claim]))[0])
      const holding = claim.id
      const { version } = isStored(await putOne(store, putting(key, 'a', { holding, absent: true, version: 0n })))
      isRefused(await putOne(store, putting(key, 'b', { holding, absent: true })), 'absent', 'a')
      isRefused(await putOne(store, putting(key, 'b', { holding, version: version + 1n })), 'version', 'a')
      isRefused(await putOne(store, putting(key, 'b', { holding: 'f'.repeat(32), version: 0n })), 'holding', 'a')
      isStored(await putOne(store, putting(key, 'b', { holding, version })))
    },
  },
  {
    name: 'a removal is not overwritten by a holder that had found the record, or had found nothing',
    async run(scene) {
      const [[engine, store], [, other]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      for (const before of ['a value', null]) {
        const key = scene.recordKey()
        const claim = scene.claim(key)
        if (before !== null) isStored(await putOne(other, putting(key, before)))
        isHeld((await engine.enter([claim]))[0])
        const { version } = await read(store, key)
        const removal = isStored(await putOne(other, removing(key)))
        const found = await read(store, key)
        assert.deepEqual([found.value, found.version], [null, removal.version], 'a removal that is remembered')
        const fill = { holding: claim.id, version }
        isRefused(await putOne(store, putting(key, 'stale', fill)), 'version', null)
        const fresh = { holding: claim.id, absent: true, version: removal.version } as const
        isStored(await putOne(store, putting(key, 'fresh', fresh)))
      }
    },
  },
  {
    name: 'a line and the record of its key do not disturb each other',
    async run(scene) {
      const [[engine, store], [other, otherStore]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      const key = scene.recordKey()
      isStored(await putOne(store, putting(key, 'before')))
      const [first, second] = [scene.claim(key), scene.claim(key)]
      isHeld((await engine.enter([first]))[0])
      isWaiting((await other.enter([second]))[0], 1)
      isStored(await putOne(otherStore, putting(key, 'during')))
      assert.deepEqual(await statesOf(engine, key), ['held', 'waiting'])
      isStored(await putOne(otherStore, removing(key)))
      assert.deepEqual(await statesOf(engine, key), ['held', 'waiting'])
      isStored(await putOne(otherStore, putting(key, 'after')))
      await engine.leave([first])
      await other.leave([second])
      await scene.inLine(engine, key, 0)
      assert.equal(await textOf(store, key), 'after')
      const lines = []
      for await (const line of engine.list(key)) lines.push(line.key)
      assert.deepEqual(lines, [], 'a record without entries is no line')
    },
  },
]

export const storeHoldingGroup: Group = {
  property: 'the store and its lines',
  atOnce: true,
  cases: cases.map(({ needs = [], ...one }) => ({ ...one, needs: [storing, storeHolding, ...needs] })),
}
