/**
 * The store: records beside the lines, changed under conditions that are checked in the step of the change. Who may
 * change what, and what is answered, is here; store-holding.ts is about the condition that locks are for.
 */
import assert from 'node:assert/strict'
import type { Case, Group } from '../case.ts'
import { type Need, storing } from '../needs.ts'
import { isRead, isRefused, isStored, putOne, putting, read, removing, textOf, toText } from '../records.ts'
import { StoreTrace } from '../store-trace.ts'

/** How far the clocks of servers that are set may be apart from ours. */
const DAY_MS = 24 * 3_600_000

const reading: readonly Case[] = [
  {
    name: 'what is put is read by every client, byte for byte, up to the largest value',
    async run(scene) {
      const [[, store], [, other]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      const { valueLimitBytes } = store.traits
      const values = [
        Buffer.alloc(0),
        Buffer.from([0]),
        Buffer.from(Array.from({ length: 256 }, (_, byte) => byte)),
        Buffer.from('\\ \' " {} \u{1f512}'),
        Buffer.alloc(valueLimitBytes, 0xff),
      ]
      for (const value of values) {
        const key = scene.recordKey()
        isStored(await putOne(store, { key, value, ttlMs: null, when: {} }))
        const stored = await read(other, key)
        assert.equal(stored.key, key)
        assert(
          stored.value !== null && Buffer.compare(stored.value, value) === 0,
          `${value.length} bytes are read back`,
        )
      }
    },
  },
  {
    name: 'keys that look alike have records of their own',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const base = scene.recordKey('like')
      const endings = ['', 'a', 'A', 'a ', '\u00e1', 'a\u0301', 'a/b', 'a}b', '{}x', "a'b", 'a%', 'a_', 'a:b', 'a\\b']
      const keys = endings.map((ending) => scene.recordKeyBelow(base, ending))
      for (const key of keys) isStored(await putOne(store, putting(key, `of ${key}`)))
      const got = await store.get(keys)
      assert.deepEqual(
        got.map((one) => toText(isRead(one))),
        keys.map((key) => `of ${key}`),
      )
    },
  },
  {
    name: 'what was never put is nothing: no value, version 0, mark 0',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const key = scene.recordKey()
      assert.deepEqual(await read(store, key), { key, value: null, version: 0n, mark: 0n, livesForMs: null })
    },
  },
  {
    name: 'a listing names what is stored under a prefix, and nothing that was removed or has expired',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const kept = scene.recordKey('listed')
      const [expired, removed] = [scene.recordKeyBelow(kept, ':expired'), scene.recordKeyBelow(kept, ':removed')]
      const other = scene.recordKey('other')
      for (const key of [kept, removed, other]) isStored(await putOne(store, putting(key, 'four')))
      isStored(await putOne(store, putting(expired, 'four', {}, { ttlMs: scene.shortTtlMs })))
      isStored(await putOne(store, removing(removed)))
      await scene.eventually('the record has expired', async () => (await read(store, expired)).value === null)
      const listed = []
      for await (const { key, bytes, version } of store.list(kept))
        listed.push({ key, bytes, isNumbered: version > 0n })
      assert.deepEqual(listed, [{ key: kept, bytes: 4, isNumbered: true }])
    },
  },
  {
    name: 'all answers tell the time of the server, also those about what was never put, or none does',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const [key, other] = [scene.recordKey(), scene.recordKey('never put')]
      const before = await store.get([other, key])
      const put = isStored(await putOne(store, putting(key, 'a')))
      const refused = isRefused(await putOne(store, putting(key, 'b', { absent: true })), 'absent', 'a')
      const nowhere = isRefused(await putOne(store, putting(other, 'b', { version: 1n })), 'version', null)
      const after = await store.get([key, other])
      const times = [...before, put, refused, nowhere, ...after].map((answer) =>
        answer.state === 'failed' ? Number.NaN : answer.serverTimeMs,
      )
      if (times.every((time) => time === null)) return
      for (const time of times)
        assert(Math.abs((time ?? Number.NaN) - Date.now()) < DAY_MS, `${time} is a time of day, in ms since 1970`)
    },
  },
]

const conditions: readonly Case[] = [
  {
    name: 'absent: of many clients that put at once one is stored, and the others are told what it has stored',
    async run(scene) {
      const clients = await scene.times(4, () => scene.engineAndStore())
      for (let round = 0; round < 5 * scene.rounds; round += 1) {
        const key = scene.recordKey()
        const puts = await Promise.all(
          clients.flatMap(([, store], client) =>
            [0, 1, 2].map((nth) => putOne(store, putting(key, `${client} ${nth}`, { absent: true }))),
          ),
        )
        const [, store] = clients[0] as (typeof clients)[number]
        const text = await textOf(store, key)
        assert.equal(puts.filter(({ state }) => state === 'stored').length, 1, 'how many were stored')
        for (const put of puts) if (put.state !== 'stored') isRefused(put, 'absent', text)
      }
    },
  },
  {
    name: 'version: a change is made only if no other came in between, and is told of the other',
    async run(scene) {
      const [[, store], [, other]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      const key = scene.recordKey()
      const first = isStored(await putOne(store, putting(key, 'first', { version: 0n })))
      const second = isStored(await putOne(other, putting(key, 'second', { version: first.version })))
      const refused = isRefused(
        await putOne(store, putting(key, 'late', { version: first.version })),
        'version',
        'second',
      )
      assert.equal(refused.stored.version, second.version, 'the version that a refused change is told')
      isRefused(await putOne(store, removing(key, { version: first.version })), 'version', 'second')
      isRefused(await putOne(store, putting(key, 'fresh', { version: 0n })), 'version', 'second')
      isStored(await putOne(store, putting(key, 'third', { version: refused.stored.version })))
      assert.equal(await textOf(other, key), 'third')
    },
  },
  {
    name: 'each change has a higher version than all before it, also after a removal and after an expiry',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const key = scene.recordKey()
      const { shortTtlMs: ttlMs } = scene
      const versions = [isStored(await putOne(store, putting(key, 'a'))).version]
      const next = async (change: ReturnType<typeof putting>): Promise<void> => {
        const { version } = isStored(await putOne(store, change))
        assert(version > (versions.at(-1) as bigint), `version ${version} after ${versions.join(', ')}`)
        versions.push(version)
      }
      await next(putting(key, 'a'))
      await next(removing(key))
      await next(removing(key))
      await next(putting(key, 'b', {}, { ttlMs }))
      await scene.eventually('the record has expired', async () => (await read(store, key)).value === null)
      await next(putting(key, 'c'))
      assert.equal((await read(store, key)).version, versions.at(-1))
    },
  },
  {
    name: 'mark: only a change with a higher one is made, and a change without one keeps it',
    async run(scene) {
      const [[, store], [, other]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      const key = scene.recordKey()
      const mark = 1_800_000_000_000n
      const high = 2n ** 53n - 1n
      assert.equal(isStored(await putOne(store, putting(key, 'tick', { markBelow: mark }, { mark }))).mark, mark)
      const refused = isRefused(
        await putOne(other, putting(key, 'again', { markBelow: mark }, { mark })),
        'markBelow',
        'tick',
      )
      assert.equal(refused.stored.mark, mark)
      isRefused(
        await putOne(other, putting(key, 'old', { markBelow: mark - 1n }, { mark: mark - 1n })),
        'markBelow',
        'tick',
      )
      assert.equal(isStored(await putOne(store, putting(key, 'plain'))).mark, mark, 'a change without a mark')
      assert.equal(isStored(await putOne(store, putting(key, 'low', {}, { mark: 1n }))).mark, mark, 'a lower mark')
      assert.equal((await read(other, key)).mark, mark)
      isStored(await putOne(other, putting(key, 'high', { markBelow: high }, { mark: high })))
      assert.equal((await read(store, key)).mark, high)
      isStored(await putOne(store, removing(key)))
      assert.equal((await read(store, key)).mark, 0n, 'a removal takes the mark with it')
    },
  },
  {
    name: 'a refused change changes nothing: neither value nor version, mark or expiry',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const key = scene.recordKey()
      isStored(await putOne(store, putting(key, 'kept', {}, { mark: 5n })))
      const before = await read(store, key)
      const change = { mark: 9n, ttlMs: scene.longTtlMs }
      isRefused(await putOne(store, putting(key, 'no', { absent: true }, change)), 'absent', 'kept')
      isRefused(await putOne(store, putting(key, 'no', { version: before.version + 1n }, change)), 'version', 'kept')
      isRefused(await putOne(store, putting(key, 'no', { markBelow: 5n }, change)), 'markBelow', 'kept')
      isRefused(await putOne(store, removing(key, { absent: true })), 'absent', 'kept')
      // The first one that is not met is named.
      isRefused(await putOne(store, putting(key, 'no', { markBelow: 1n, version: 0n, absent: true })), 'absent', 'kept')
      isRefused(await putOne(store, putting(key, 'no', { markBelow: 1n, version: 0n })), 'version', 'kept')
      assert.deepEqual(await read(store, key), before)
    },
  },
  {
    name: 'a full batch is answered in its order, each change by itself, also several of one key',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const { batchLimit } = store.traits
      const keys = Array.from({ length: Math.ceil(batchLimit / 2) }, () => scene.recordKey())
      const changes = keys
        .flatMap((key) => [putting(key, `of ${key}`, { absent: true }), putting(key, 'late', { absent: true })])
        .slice(0, batchLimit)
      const puts = await store.put(changes)
      assert.equal(puts.length, changes.length)
      for (const [index, put] of puts.entries()) {
        const { key } = changes[index] as (typeof changes)[number]
        if (index % 2 === 0) isStored(put)
        else isRefused(put, 'absent', `of ${key}`)
      }
      const got = await store.get(keys)
      assert.deepEqual(
        got.map((one) => toText(isRead(one))),
        keys.map((key) => `of ${key}`),
      )
    },
  },
]

const expiring: readonly Case[] = [
  {
    name: 'a record is there until its ttl is over, and is nothing from then on',
    async run(scene) {
      const [[, store], [, other]] = [await scene.engineAndStore(), await scene.engineAndStore()]
      const key = scene.recordKey()
      const { fairTtlMs: ttlMs } = scene
      const { version, livesForMs } = await scene.promptly(ttlMs / 2, async () => {
        isStored(await putOne(store, putting(key, 'short', {}, { ttlMs })))
        const stored = await read(other, key)
        assert.equal(toText(stored), 'short')
        return stored
      })
      assert(livesForMs !== null && livesForMs > 0 && livesForMs <= ttlMs, `lives for ${livesForMs} of ${ttlMs} ms`)
      const startedAt = performance.now()
      await scene.eventually('the record has expired', async () => (await read(other, key)).value === null)
      assert(performance.now() - startedAt > ttlMs / 4, 'it was there for most of its ttl')
      const found = await read(store, key)
      assert.deepEqual([found.version, found.mark, found.livesForMs], [0n, 0n, null])
      isRefused(await putOne(store, putting(key, 'late', { version })), 'version', null)
      isStored(await putOne(store, putting(key, 'new', { absent: true, version: 0n })))
    },
  },
  {
    name: 'a change sets the expiry anew, or takes it away',
    async run(scene) {
      const [, store] = await scene.engineAndStore()
      const [kept, longer, watch] = [scene.recordKey('kept'), scene.recordKey('longer'), scene.recordKey('watch')]
      await scene.promptly(scene.fairTtlMs / 2, async () => {
        const ttlMs = scene.fairTtlMs
        for (const key of [kept, longer]) isStored(await putOne(store, putting(key, 'short', {}, { ttlMs })))
        isStored(await putOne(store, putting(kept, 'kept')))
        isStored(await putOne(store, putting(longer, 'longer', {}, { ttlMs: scene.longTtlMs })))
        isStored(await putOne(store, putting(watch, 'watch', {}, { ttlMs: 2 * ttlMs })))
      })
      await scene.eventually('a longer ttl is over', async () => (await read(store, watch)).value === null)
      const [one, other] = [await read(store, kept), await read(store, longer)]
      assert.deepEqual([toText(one), one.livesForMs], ['kept', null])
      assert.equal(toText(other), 'longer')
    },
  },
]

const traces: readonly Case[] = [
  {
    name: 'random calls of a store are answered as the memory engine answers them',
    limitMs: 60_000,
    async run(scene) {
      for (let round = 0; round < scene.rounds; round += 1) {
        const running = [0, 1, 2].map((trace) => StoreTrace.run(scene, scene.seed + 3 * round + trace))
        for (const trace of await Promise.allSettled(running)) if (trace.status === 'rejected') throw trace.reason
      }
    },
  },
]

const needs: readonly Need[] = [storing]

export const storeGroup: Group = {
  property: 'the store',
  atOnce: true,
  cases: [...traces, ...expiring, ...reading, ...conditions].map((one) => ({ ...one, needs })),
}
