/** What a Redlock can be made of, and what its URL says. */
import { expect, test } from 'vitest'
import { openRedlock } from '../../src/engines/redlock/index.ts'
import { createLocks } from '../../src/locks.ts'
import { RecordStore } from '../../src/store/record-store.ts'

test.each([
  ['redlock://a,b', /odd number of servers, 3 or more; got 2/],
  ['redlock://a', /got 1/],
  ['redlock://a,b,c,d', /got 4/],
  ['redlock://a,b,a', /there twice/],
  ['redlock://a,b,c?timeout=soon', /timeout must be milliseconds or a string like '250ms'.*; got 'soon'/],
  ['redlock://a,b,c?timeout=0', /timeout must be a whole number of milliseconds, 1 or more; got 0/],
  ['redlock://a,b,c?replicas=2', /unknown option 'replicas'/],
  ['redlock://a,b,c?nonsense=2', /unknown option 'nonsense'/],
  ['redlock://a,b,c?prefix=hf1:x', /must not begin with 'hf1:'/],
])('%s is refused', async (url, why) => {
  await expect(openRedlock(url)).rejects.toThrow(why)
})

test.each(['20', '20ms'])(
  'a URL names servers, a prefix, and a time-out, which bounds the ttl: %s',
  async (timeout) => {
    const hosts = '127.0.0.1:1,127.0.0.1:2,127.0.0.1:3'
    const engine = await openRedlock(`redlock://:secret@${hosts}/1?timeout=${timeout}&prefix=p:`)
    expect(engine.name).toBe('redlock')
    expect(engine.traits).toMatchObject({ order: 'none', fencing: true, sharing: 'none', minTtlMs: 80 })
    await engine[Symbol.asyncDispose]()
  },
)

test('it has no store, and says what to give instead: servers that know nothing of each other keep no record', async () => {
  await using locks = createLocks(await openRedlock('redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3'))
  expect(() => new RecordStore('once', locks, {})).toThrow(
    /^redlock has no store for the records of once\(\): give it the option store, which takes locks on an engine/,
  )
})
