/** Looking at lines and evicting from them, through the door. */
import { describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { LineSummary } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import { createLocks } from '../../src/locks.ts'
import { inMemory, scripted, settled, TTL, watched } from './world.ts'

async function listed(lines: AsyncIterable<LineSummary>): Promise<LineSummary[]> {
  const all: LineSummary[] = []
  for await (const line of lines) all.push(line)
  return all
}

describe('looking', () => {
  test('at a line shows who holds and who waits, in order', async () => {
    const { clock, locks } = inMemory()
    await locks.semaphore('gpu', 2).acquire({ weight: 2 })
    watched(locks.semaphore('gpu', 2).acquire())
    await clock.advance(1000)
    const { entries } = await locks.inspect('gpu')
    expect(entries).toMatchObject([
      {
        holder: 'me',
        state: 'held',
        token: 1n,
        weight: 2,
        limit: 2,
        ttlMs: TTL,
        remainingMs: TTL - 1000,
        ageMs: 1000,
        heldMs: 1000,
      },
      {
        holder: 'me',
        state: 'waiting',
        token: 2n,
        weight: 1,
        limit: 2,
        ttlMs: TTL,
        remainingMs: TTL - 1000,
        ageMs: 1000,
        heldMs: null,
      },
    ])
    expect((await locks.inspect('unused')).entries).toEqual([])
  })

  test('at all lines shows those with entries, by prefix', async () => {
    const { locks } = inMemory()
    for (const key of ['order:1', 'order:2', 'user:1']) await locks.mutex(key).acquire()
    watched(locks.mutex('order:2').acquire())
    await settled()
    expect(await listed(locks.list('order:'))).toEqual([
      { key: 'order:1', held: 1, waiting: 0 },
      { key: 'order:2', held: 1, waiting: 1 },
    ])
    expect(await listed(locks.list())).toHaveLength(3)
  })

  test('at all lines takes as long as it takes while the engine gets on, and fails when it does not', async () => {
    const { clock, engine } = inMemory()
    const line = { key: 'found', held: 1, waiting: 0 }
    const slow = delegate(engine, {
      async *list(_prefix, onProgress) {
        for (let page = 0; page < 100; page += 1) {
          await new Promise<void>((resolve) => clock.timer(900, resolve))
          onProgress?.()
        }
        yield line
        await new Promise(() => undefined)
      },
    })
    const lines = createLocks(slow, { clock, callTimeout: '1s' }).list()
    const first = watched(lines.next())
    await clock.advance(90_000)
    expect(first.value).toEqual({ value: line, done: false })
    const second = watched(lines.next())
    await clock.advance(1000)
    expect(second.error).toBeInstanceOf(EngineError)
  })
})

describe('evicting', () => {
  test('lets the holder learn of it before the next one is let in, unless told otherwise', async () => {
    const { clock, locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const next = watched(locks.mutex('a').acquire())
    await settled()
    expect(await locks.evict('a', lease.token as bigint)).toBe(true)
    let lostAt = Number.NaN
    lease.signal.addEventListener('abort', () => {
      lostAt = clock.now()
      expect(next.state).toBe('pending')
    })
    await clock.advance(TTL)
    expect(lostAt).toBeLessThan(TTL)
    expect(lease.signal.reason).toMatchObject({ why: 'evicted' })
    expect(next.state).toBe('resolved')
  })

  test('`now` lets the next one in at once, and the holder hears of it', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const next = watched(locks.mutex('a').acquire())
    await settled()
    expect(await locks.evict('a', lease.token as bigint, 'now')).toBe(true)
    await settled()
    expect(next.value.token).toBe(2n)
    expect(lease.held).toBe(false)
    expect(await locks.evict('a', 99n)).toBe(false)
  })
})

describe('an engine that does not answer', () => {
  test('is not waited for longer than a call may take, whatever is asked of it', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 2000 })
    const never = (): Promise<never> => new Promise(() => {})
    Object.assign(engine, { inspecting: never, evict: never })
    const asked = [locks.inspect('a'), locks.evict('a', 1n), locks.election('a').leader()].map((each) =>
      watched<unknown>(each),
    )
    await clock.advance(2000)
    expect(asked.map(({ state }) => state)).toEqual(['rejected', 'rejected', 'rejected'])
    for (const { error } of asked) {
      expect(error).toBeInstanceOf(EngineError)
      expect(error).toMatchObject({ outcome: 'unknown' })
    }
  })

  test('does not keep a listing from ending', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 2000 })
    engine.list = async function* () {
      yield { key: 'a', held: 1, waiting: 0 }
      await new Promise(() => {})
    }
    const lines = watched(listed(locks.list()))
    await clock.advance(2000)
    expect(lines.error).toBeInstanceOf(EngineError)
  })

  test('does not keep an observer of elections from ending', async () => {
    const { engine, clock, locks } = scripted({ callTimeout: 2000 })
    engine.inspecting = () => new Promise(() => {})
    const controller = new AbortController()
    const next = watched(locks.election('a').observe({ signal: controller.signal }).next())
    await settled()
    controller.abort()
    await clock.advance(2000)
    expect(next.state).not.toBe('pending')
  })
})
