/**
 * Strangers: programs that take the same key by hand, with SET NX PX. They and Holdfast exclude each other,
 * whichever came first and however either ends. What is at a key and is no lock is said to be so, instead of being
 * waited for.
 */

import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { dice } from '../../conformance/chance.ts'
import { type Claim, type Engine, EngineError, UNLIMITED } from '../../src/engine.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { newClaim } from '../claims.ts'
import { Clockwork } from '../servers/clockwork.ts'
import type { Resp } from '../servers/resp.ts'
import { describeServer } from '../servers/suite.ts'

let keys = 0

function claim(key: string, more: Partial<Claim> = {}): Claim {
  return newClaim(key, { ttlMs: 1005, ...more })
}

await describeServer('Redis and strangers', Clockwork.start, (works) => {
  let engine: Engine
  let stranger: Resp
  let key: string

  beforeAll(async () => {
    engine = await openRedis(works.server.url)
    stranger = await works.server.connect()
  })

  beforeEach(() => {
    key = `key ${++keys}`
  })

  afterAll(async () => {
    await engine[Symbol.asyncDispose]()
    await stranger[Symbol.asyncDispose]()
    await works[Symbol.asyncDispose]()
  })

  const take = async (ms: number): Promise<boolean> =>
    (await stranger.command('SET', `lock:${key}`, 'a secret', 'NX', 'PX', ms)) === 'OK'
  const one = async (wanted: Claim): Promise<string | undefined> => (await engine.enter([wanted]))[0]?.state
  const again = async (wanted: Claim): Promise<string | undefined> => (await engine.renew([wanted]))[0]?.state

  test('a stranger does not get what we hold, and gets it when we have left or expired', async () => {
    const ours = claim(key)
    expect(await one(ours)).toBe('held')
    expect(await take(1000)).toBe(false)
    await engine.leave([ours])
    expect(await take(500)).toBe(true)
    works.clock.advance(510)
    expect(await one(claim(key))).toBe('held')
    works.clock.advance(1010)
    expect(await take(500)).toBe(true)
  })

  test('a stranger does not get what several of ours share, until the last of them is gone', async () => {
    const readers = [claim(key, { limit: UNLIMITED }), claim(key, { limit: UNLIMITED, ttlMs: 2005 })]
    await engine.enter(readers)
    expect(await take(1000)).toBe(false)
    await engine.leave(readers.slice(0, 1))
    expect(await take(1000)).toBe(false)
    works.clock.advance(1990)
    expect(await take(1000)).toBe(false)
    works.clock.advance(20)
    expect(await take(1000)).toBe(true)
  })

  test('we wait in line behind a stranger, and hold in order when it has gone', async () => {
    expect(await take(5000)).toBe(true)
    expect(await one(claim(key, { wait: false }))).toBe('busy')
    const [first, second] = [claim(key), claim(key)]
    expect(await engine.enter([first, second])).toMatchObject([
      { state: 'waiting', ahead: 1 },
      { state: 'waiting', ahead: 2 },
    ])
    expect(await again(second)).toBe('waiting')
    await stranger.command('DEL', `lock:${key}`)
    expect(await one(claim(key, { wait: false })), 'no overtaking').toBe('busy')
    expect(await again(second)).toBe('waiting')
    expect(await again(first)).toBe('held')
    expect(await take(1000)).toBe(false)
  })

  test('a look at the line names the stranger, without its value', async () => {
    await take(5000)
    await engine.enter([claim(key)])
    const { entries } = await engine.inspect(key)
    expect(entries).toMatchObject([
      { state: 'held', holder: 'a program without Holdfast', token: null, remainingMs: 5000 },
      { state: 'waiting', holder: 'test' },
    ])
    expect(JSON.stringify(entries.map(({ holder }) => holder))).not.toContain('secret')
  })

  test('a program that deletes our key ends our holds, and the waiters are next', async () => {
    const [holder, waiter] = [claim(key), claim(key)]
    await engine.enter([holder, waiter])
    await stranger.command('DEL', `lock:${key}`)
    expect(await engine.renew([holder])).toEqual([{ state: 'gone', why: 'unknown' }])
    expect(await again(waiter)).toBe('held')
    const alone = claim(`${key} alone`)
    await engine.enter([alone])
    await stranger.command('DEL', `lock:${key} alone`)
    expect(await again(alone)).toBe('gone')
  })

  test('a program that takes our key from us by force has it: we are told, and wait', async () => {
    const [holder, waiter] = [claim(key), claim(key)]
    await engine.enter([holder, waiter])
    await stranger.command('SET', `lock:${key}`, 'mine now', 'PX', 3000)
    expect(await again(holder)).toBe('gone')
    expect(await again(waiter)).toBe('waiting')
    expect(await stranger.command('GET', `lock:${key}`)).toBe('mine now')
  })

  test('a release never deletes what a stranger holds', async () => {
    const ours = claim(key)
    await engine.enter([ours])
    works.clock.advance(1010)
    expect(await take(5000)).toBe(true)
    expect(await engine.leave([ours])).toEqual([false])
    expect(await stranger.command('GET', `lock:${key}`)).toBe('a secret')
  })

  test.each([
    ['a list', ['RPUSH', 'x'], /'lock:key .*' is a list, not a lock/],
    ['a hash', ['HSET', 'x', '1'], /is a hash, not a lock/],
    ['a string without expiry', ['SET', 'x'], /without expiry/],
    ['a lock of a newer Holdfast', ['SET', 'hf2:whatever'], /newer Holdfast \(format 2\)/],
    ['something that only looks like a lock', ['SET', 'hf1:a:b'], /or is no lock/],
  ])('%s at the key fails that claim at once, and no other', async (_, [command, ...rest], message) => {
    await stranger.command(command as string, `lock:${key}`, ...rest)
    const free = claim(`${key} free`)
    const [failed, held] = await engine.enter([claim(key), free])
    expect(failed).toMatchObject({
      state: 'failed',
      error: { message: expect.stringMatching(message), outcome: 'not-applied', transient: false },
    })
    expect(failed?.state === 'failed' && failed.error instanceof EngineError).toBe(true)
    expect(held).toMatchObject({ state: 'held' })
    expect(await engine.leave([claim(key), free])).toEqual([false, true])
    expect(await again(claim(key))).toBe('gone')
  })

  test.each([
    ['', 'hf1:counter'],
    ['', 'hf1:entries:{lock:a}'],
    ['', 'hf1:'],
    ['h', 'f1:queue:{x}'],
  ])('with the prefix %j, %j would be a key of our own: it is refused, and nothing else', async (prefix, mine) => {
    await using bare = await openRedis(works.server.url, { prefix })
    const [refused, fine] = [claim(mine), claim(`${key} fine`)]
    const [failed, held] = await bare.enter([refused, fine])
    const expected = {
      message: expect.stringContaining(`'${prefix}${mine}' begins like`),
      outcome: 'not-applied',
      transient: false,
    }
    expect(failed).toMatchObject({ state: 'failed', error: expected })
    expect(held).toMatchObject({ state: 'held' })
    expect(await bare.renew([refused, fine])).toMatchObject([{ state: 'gone' }, { state: 'held' }])
    expect(await bare.leave([refused, fine])).toEqual([false, true])
    expect(await bare.evict(mine, 1n, 'now')).toBe(false)
    await expect(bare.inspect(mine)).rejects.toMatchObject(expected)
    await expect(bare.watch?.(mine, () => undefined)).rejects.toMatchObject(expected)
    // The counter is still a counter.
    expect(Number(await stranger.command('GET', 'hf1:counter'))).toBeGreaterThan(0)
  })

  test('with an empty prefix, a key is what it is', async () => {
    await using bare = await openRedis(works.server.url, { prefix: '' })
    const ours = claim(key)
    await bare.enter([ours])
    expect(await stranger.command('EXISTS', key)).toBe(1)
    expect(await stranger.command('SET', key, 'x', 'NX')).toBe(null)
    await bare.leave([ours])
  })

  test('a stranger that makes its key everlasting while we wait is noticed', async () => {
    await take(5000)
    const waiter = claim(key)
    expect(await one(waiter)).toBe('waiting')
    await stranger.command('PERSIST', `lock:${key}`)
    expect(await engine.renew([waiter])).toMatchObject([{ state: 'failed', error: { transient: false } }])
  })

  test('tokens go on rising when the counter is deleted and when the clock is set back', async () => {
    const token = async (): Promise<bigint> => {
      const [standing] = await engine.enter([claim(`${key} ${++keys}`)])
      return standing?.state === 'held' ? (standing.token ?? 0n) : 0n
    }
    const first = await token()
    works.clock.advance(-3_600_000)
    const second = await token()
    works.clock.advance(3_600_000 + 1)
    await stranger.command('DEL', 'hf1:counter')
    const third = await token()
    expect(first > 0n && second > first && third > second).toBe(true)
  })

  test.each([1, 2, 3])(
    'never do a stranger and one of us hold at the same time, and no waiter is left without a holder: seed %i',
    async (seed) => {
      const chance = dice(seed)
      const mine: Claim[] = []
      let taken = 0
      for (let step = 0; step < 1500; step += 1) {
        const roll = chance.below(10)
        if (roll < 4) {
          const limit = chance.pick([1, 1, 2, UNLIMITED])
          const wanted = claim(key, { limit, ttlMs: chance.pick([55, 205]), wait: !chance.oneIn(3) })
          if (['held', 'waiting'].includes((await one(wanted)) ?? '')) mine.push(wanted)
        } else if (roll < 6 && mine.length > 0) await engine.renew([chance.pick(mine)])
        else if (roll < 7 && mine.length > 0) await engine.leave([chance.pick(mine)])
        else if (roll < 8) works.clock.advance(10 * chance.below(chance.oneIn(2) ? 60 : 12))
        else if (roll < 9 && chance.oneIn(3)) await stranger.command('DEL', `lock:${key}`)
        else {
          const { entries } = await engine.inspect(key)
          const got = await take(10 * (1 + chance.below(20)))
          if (got) taken += 1
          expect(got, `step ${step}`).toBe(!entries.some(({ state }) => state === 'held'))
        }
        const { entries } = await engine.inspect(key)
        const holders = entries.filter(({ state }) => state === 'held')
        expect(
          holders.some(({ id }) => id === '') && holders.length > 1,
          `step ${step}: ${JSON.stringify(holders.map(({ id }) => id))}`,
        ).toBe(false)
        expect(entries.length > 0 && holders.length === 0, `step ${step}: an entry waits, and none holds`).toBe(false)
      }
      expect(taken).toBeGreaterThan(10)
    },
  )
})
