/** The reference engine, where the conformance suite does not look: what it keeps, whom it tells, and evictions. */
import { describe, expect, test } from 'vitest'
import type { Claim, Engine, News } from '../../src/core/engine.ts'
import { type Change, type Store, type Stored, TOMBSTONE_MS } from '../../src/core/store.ts'
import { MemoryServer, memory } from '../../src/engines/memory/index.ts'
import { type CountingClock, countingClock, settled } from './world.ts'

interface World {
  readonly clock: CountingClock
  readonly server: MemoryServer
  readonly engine: Engine
  readonly news: News[]
}

async function world(): Promise<World> {
  const clock = countingClock()
  const server = new MemoryServer({ clock })
  const engine = memory({ server })
  const news: News[] = []
  await engine.subscribe?.((each) => news.push(each))
  return { clock, server, engine, news }
}

const claim = (id: string, more: Partial<Claim> = {}): Claim => ({
  key: 'a',
  id,
  holder: id,
  weight: 1,
  limit: 1,
  ttlMs: 1000,
  wait: true,
  ...more,
})

const states = async (engine: Engine): Promise<string[]> =>
  (await engine.inspect('a')).entries.map(({ id, state }) => `${id} ${state}`)

test('a holder that is renewed for less time than it had, to outlive its owner, makes way when that is over', async () => {
  const { clock, engine, news } = await world()
  const [holder, next] = [claim('x', { ttlMs: 60_000 }), claim('y', { ttlMs: 60_000 })]
  await engine.enter([holder, next])
  await engine.renew([{ ...holder, ttlMs: 1000, outlives: true }])
  await clock.advance(1000)
  expect(news).toMatchObject([{ id: 'y', standing: { state: 'held' } }])
})

describe('an eviction', () => {
  test('`expire` of a holder refuses its renewals, and frees the line when its time is over', async () => {
    const { clock, engine, news } = await world()
    await engine.enter([claim('x'), claim('y', { ttlMs: 10_000 })])
    expect(await engine.evict('a', 1n, 'expire')).toBe(true)
    expect(await engine.renew([claim('x')])).toEqual([{ state: 'gone', why: 'evicted' }])
    expect(await states(engine)).toEqual(['x held', 'y waiting'])
    await clock.advance(1000)
    expect(await states(engine)).toEqual(['y held'])
    expect(news).toMatchObject([
      { id: 'x', standing: { state: 'gone', why: 'evicted' } },
      { id: 'y', standing: { state: 'held', token: 2n } },
    ])
  })

  test('`expire` of a holder that then leaves frees the line at once', async () => {
    const { engine } = await world()
    await engine.enter([claim('x'), claim('y')])
    await engine.evict('a', 1n, 'expire')
    expect(await engine.leave([claim('x')])).toEqual([true])
    expect(await states(engine)).toEqual(['y held'])
  })

  test('`now` of a holder frees the line at once, and tells both', async () => {
    const { engine, news } = await world()
    await engine.enter([claim('x'), claim('y')])
    expect(await engine.evict('a', 1n, 'now')).toBe(true)
    await settled()
    expect(await states(engine)).toEqual(['y held'])
    expect(news.map((each) => ('id' in each ? `${each.id} ${each.standing?.state}` : 'gap')).toSorted()).toEqual([
      'x gone',
      'y held',
    ])
    expect(await engine.renew([claim('x')]), 'and the reason is remembered').toEqual([
      { state: 'gone', why: 'evicted' },
    ])
    expect(await engine.enter([claim('x')])).toEqual([{ state: 'gone', why: 'evicted' }])
    expect(await engine.leave([claim('x')])).toEqual([false])
  })

  test('of a waiter, in either way, keeps it from ever being let in', async () => {
    for (const how of ['expire', 'now'] as const) {
      const { engine } = await world()
      await engine.enter([claim('x'), claim('y'), claim('z')])
      expect(await engine.evict('a', 2n, how)).toBe(true)
      await engine.leave([claim('x')])
      expect(await states(engine), how).toEqual(['z held'])
    }
  })

  test('of an unknown entry is false', async () => {
    const { engine } = await world()
    await engine.enter([claim('x')])
    expect(await engine.evict('a', 99n, 'now')).toBe(false)
    expect(await engine.evict('b', 1n, 'now')).toBe(false)
    expect(await engine.evict('a', 1n, 'now')).toBe(true)
    expect(await engine.evict('a', 1n, 'now'), 'twice').toBe(false)
  })
})

describe('expiry', () => {
  test('grants nothing to a waiter that has expired too', async () => {
    const { clock, engine, news } = await world()
    await engine.enter([claim('x'), claim('y', { ttlMs: 1500 }), claim('z', { ttlMs: 9000 })])
    clock.stall(2000)
    expect(await states(engine)).toEqual(['z held'])
    await settled()
    expect(news).toMatchObject([{ id: 'z' }])
  })

  test('of a dead process with many waiters delays the line by one ttl, not by one for each', async () => {
    const { clock, engine } = await world()
    await engine.enter(Array.from({ length: 20 }, (_, index) => claim(`dead${index}`)))
    await engine.enter([claim('alive', { ttlMs: 60_000 })])
    await clock.advance(1000)
    expect(await states(engine)).toEqual(['alive held'])
  })

  test('of a waiter settles the line: readers behind a dead writer are let in', async () => {
    const { clock, engine } = await world()
    const read = { limit: 2147483647, ttlMs: 9000 }
    await engine.enter([claim('r1', read), claim('w'), claim('r2', read)])
    expect(await states(engine)).toEqual(['r1 held', 'w waiting', 'r2 waiting'])
    await clock.advance(1000)
    expect(await states(engine)).toEqual(['r1 held', 'r2 held'])
  })

  test('a grant does not move it', async () => {
    const { clock, engine } = await world()
    await engine.enter([claim('x', { ttlMs: 600 }), claim('y')])
    await clock.advance(600)
    expect((await engine.inspect('a')).entries[0]?.remainingMs).toBe(400)
  })

  test('is final: a renewal brings nothing back', async () => {
    const { clock, engine } = await world()
    await engine.enter([claim('x')])
    await clock.advance(1000)
    expect(await engine.renew([claim('x')])).toEqual([{ state: 'gone', why: 'unknown' }])
  })
})

describe('what is kept', () => {
  test('nothing, when all entries have left, expired or been evicted', async () => {
    const { clock, server, engine } = await world()
    for (let cycle = 0; cycle < 50; cycle += 1) {
      await engine.enter([claim(`x${cycle}`), claim(`y${cycle}`), claim(`t${cycle}`, { wait: false })])
      await engine.leave([claim(`y${cycle}`), claim(`x${cycle}`)])
    }
    expect(server.size).toBe(0)
    const [standing] = await engine.enter([claim('x')])
    await engine.evict('a', standing?.state === 'held' ? (standing.token as bigint) : 0n, 'now')
    await clock.advance(1000)
    await engine.inspect('a')
    expect(server.size).toBe(0)
    expect(clock.timers).toBe(0)
  })

  test('a timer only while a waiter or a watcher would hear of it', async () => {
    const { clock, engine } = await world()
    await engine.enter([claim('x')])
    expect(clock.timers).toBe(0)
    await engine.enter([claim('y')])
    expect(clock.timers).toBe(1)
    await engine.leave([claim('y')])
    expect(clock.timers).toBe(0)
  })

  test('tokens go on, whatever leaves', async () => {
    const { engine } = await world()
    const tokens: bigint[] = []
    for (let cycle = 0; cycle < 5; cycle += 1) {
      const [standing] = await engine.enter([claim(`x${cycle}`)])
      if (standing?.state === 'held') tokens.push(standing.token as bigint)
      await engine.leave([claim(`x${cycle}`)])
    }
    expect(tokens).toEqual([1n, 2n, 3n, 4n, 5n])
  })
})

describe('observers', () => {
  test('are told of every change, also of an expiry that no waiter waits for, until they stop', async () => {
    const { clock, engine } = await world()
    let told = 0
    const watching = await engine.watch?.('a', () => {
      told += 1
    })
    const heard = async (): Promise<boolean> => {
      await settled()
      const before = told
      told = 0
      return before > 0
    }
    await engine.enter([claim('x')])
    expect(await heard(), 'entered').toBe(true)
    await clock.advance(1000)
    expect(await heard(), 'expired').toBe(true)
    await engine.enter([claim('b', { key: 'b' })])
    expect(await heard(), 'another key').toBe(false)
    await watching?.[Symbol.asyncDispose]()
    await engine.enter([claim('y')])
    expect(await heard(), 'stopped').toBe(false)
    expect(clock.timers).toBe(0)
  })
})

describe('records', () => {
  const removal: Change = { key: 'a', value: null, ttlMs: null, when: {} }
  const stored = async ({ store }: Engine): Promise<Stored | undefined> => {
    const [got] = await (store as Store).get(['a'])
    return got?.state === 'read' ? got.stored : undefined
  }

  test('a removal leaves nothing behind where the line is empty, and is remembered for a day where it is not', async () => {
    const { clock, server, engine } = await world()
    const store = engine.store as Store
    await store.put([{ ...removal, value: Buffer.from('x') }])
    await store.put([removal])
    expect(server.size).toBe(0)
    await engine.enter([claim('x', { ttlMs: 2 * TOMBSTONE_MS })])
    const [put] = await store.put([removal])
    clock.stall(TOMBSTONE_MS - 1)
    expect(await stored(engine)).toMatchObject({ value: null, version: put?.state === 'stored' ? put.version : -1n })
    clock.stall(1)
    expect(await stored(engine)).toMatchObject({ value: null, version: 0n })
  })

  test('what was put, and what was read, is not changed by changing the bytes', async () => {
    const { engine } = await world()
    const bytes = Buffer.from('x')
    await engine.store?.put([{ ...removal, value: bytes }])
    bytes[0] = 0
    const read = (await stored(engine))?.value
    expect(Buffer.from(read ?? []).toString()).toBe('x')
    read?.fill(0)
    expect(Buffer.from((await stored(engine))?.value ?? []).toString()).toBe('x')
  })

  test('the server tells a time that follows its clock', async () => {
    const { clock, engine } = await world()
    const time = async (): Promise<number> => {
      const [got] = await (engine.store as Store).get(['a'])
      return got?.state === 'read' ? (got.serverTimeMs ?? 0) : 0
    }
    const before = await time()
    clock.stall(60_000)
    expect((await time()) - before).toBe(60_000)
  })
})

test('listing many lines lets the event loop turn', async () => {
  const { clock, server, engine } = await world()
  for (let line = 0; line < 100; line += 1) await engine.enter([claim(String(line), { key: `k${line}` })])
  let turned = false
  setImmediate(() => setImmediate(() => (turned = true)))
  const listed: string[] = []
  for await (const { key } of memory({ server }).list('')) {
    listed.push(key)
    // Each line takes a while.
    clock.stall(1)
  }
  expect(listed).toHaveLength(100)
  expect(turned).toBe(true)
})
