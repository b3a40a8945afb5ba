/** `warnAfter`: one warning for each hold and each wait that is longer than the user expects. */
import { describe, expect, test } from 'vitest'
import type { Logger } from '../../src/core/logging.ts'
import { showEngine } from '../../src/core/show.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { fakeClock } from '../../src/testing.ts'
import { published } from './published.ts'
import { inMemory, settled, watched } from './world.ts'

const limits = { warnAfter: { hold: '5m', wait: '1m' } } as const

describe('a long hold', () => {
  test('is told of once, with its key and its token, as soon as it is too long', async () => {
    using events = published('warning')
    const { clock, locks } = inMemory(limits)
    const lease = await locks.mutex('order:42').acquire()
    await clock.advance(299_999)
    expect(events.all).toEqual([])
    await clock.advance(1)
    const operation = { engine: 'memory', key: 'order:42', weight: 1, limit: 1 }
    const message = "'order:42' has been held for 5m (token 1)"
    expect(events.of('warning')).toEqual([{ engine: 'memory', name: 'long-hold', message, operation }])
    await clock.advance('1h')
    await lease.release()
    expect(events.all.length).toBe(1)
    await locks.close()
  })

  test('is counted from the grant, not from the request', async () => {
    using events = published('warning')
    const { clock, locks } = inMemory({ warnAfter: { hold: '5m' } })
    const first = await locks.mutex('a').acquire()
    const second = watched(locks.mutex('a').acquire())
    await clock.advance('4m')
    await first.release()
    await clock.advance('4m')
    expect(events.all).toEqual([])
    await clock.advance('1m')
    expect(events.of('warning')).toMatchObject([{ name: 'long-hold', message: expect.stringContaining('token 2') }])
    expect(second.state).toBe('resolved')
    await locks.close()
  })

  test('that ended in time is not told of: released, or lost', async () => {
    using events = published('warning', 'loss')
    const { clock, engine, locks } = inMemory(limits)
    const [released] = [await locks.mutex('a').acquire(), await locks.mutex('b').acquire()]
    await released?.release()
    const [entry] = (await locks.inspect('b')).entries
    await engine.evict('b', entry?.token as bigint, 'now')
    await clock.advance('1h')
    expect(events.names).toEqual(['loss'])
    await locks.close()
  })
})

describe('a long wait', () => {
  test('is told of once, whether or not the lock comes later', async () => {
    using events = published('warning')
    const { clock, locks } = inMemory({ warnAfter: { wait: '1m' } })
    const lease = await locks.mutex('a').acquire()
    const waiter = watched(locks.mutex('a').acquire())
    await clock.advance('1m')
    const message = "a caller has waited for 'a' for 1m; holdfast show 'a' tells who holds it"
    expect(events.of('warning')).toMatchObject([{ name: 'long-wait', message, operation: { key: 'a' } }])
    await clock.advance('1m')
    await lease.release()
    await settled()
    expect(waiter.state).toBe('resolved')
    await clock.advance('1h')
    expect(events.all.length).toBe(1)
    await locks.close()
  })

  test('names the URL to look at, without its password', async () => {
    using events = published('warning')
    const clock = fakeClock()
    const engine = showEngine(memory({ clock }), { url: 'redis://user:hunter2@host/1' })
    const locks = createLocks(engine, { clock, warnAfter: { wait: '1m' } })
    await locks.mutex('a').acquire()
    void watched(locks.mutex('a').acquire())
    await clock.advance('1m')
    const message =
      "a caller has waited for 'a' for 1m; holdfast show 'a' --url 'redis://user:***@host/1' tells who holds it"
    expect(events.of('warning')).toMatchObject([{ name: 'long-wait', message }])
    await locks.close()
  })

  test('that ended in time is not told of: granted, refused, or cancelled', async () => {
    using events = published('warning')
    const { clock, locks } = inMemory({ warnAfter: { wait: '1m' } })
    await locks.mutex('a').acquire()
    const controller = new AbortController()
    watched(locks.mutex('a').acquire({ wait: '30s' }))
    watched(locks.mutex('a').acquire({ signal: controller.signal }))
    await clock.advance('31s')
    controller.abort()
    await clock.advance('1h')
    expect(events.all).toEqual([])
    await locks.close()
  })
})

test('an election holds and waits for as long as it takes', async () => {
  using events = published('warning')
  const { clock, locks } = inMemory(limits)
  const leading = watched(
    locks.election('leader').lead(({ signal }) => new Promise((resolve) => (signal.onabort = resolve))),
  )
  const campaigning = watched(locks.election('leader').lead(() => undefined))
  await clock.advance('1h')
  expect(events.all).toEqual([])
  await locks.close()
  await settled()
  expect([leading.state, campaigning.state]).toEqual(['rejected', 'rejected'])
})

test('its own logger is told, and no other', async () => {
  const logger = (): Logger & { readonly lines: unknown[] } => {
    const lines: unknown[] = []
    const silent = (): void => undefined
    return {
      lines,
      debug: silent,
      info: silent,
      error: silent,
      warn: (fields, message) => lines.push([fields, message]),
    }
  }
  const [ours, others] = [logger(), logger()]
  const { clock, locks } = inMemory({ ...limits, logger: ours })
  const bystander = inMemory({ logger: others })
  await locks.mutex('a').acquire()
  await clock.advance('5m')
  const fields = { engine: 'memory', key: 'a', name: 'long-hold' }
  expect(ours.lines).toEqual([[fields, "'a' has been held for 5m (token 1)"]])
  expect(others.lines).toEqual([])
  await Promise.all([locks.close(), bystander.locks.close()])
})

test('all holds share one timer, and it is gone after the locks are closed', async () => {
  const [without, withLimits] = [inMemory(), inMemory(limits)]
  for (const { locks } of [without, withLimits])
    await Promise.all(['a', 'b', 'c', 'd'].map((key) => locks.mutex(key).acquire()))
  expect(withLimits.clock.timers - without.clock.timers).toBe(1)
  await Promise.all([without.locks.close(), withLimits.locks.close()])
  expect(withLimits.clock.timers).toBe(without.clock.timers)
})

test('an acquire that comes after the locks are closed sets no timer', async () => {
  const { clock, locks } = inMemory(limits)
  await locks.mutex('a').acquire()
  await locks.close()
  await expect(locks.mutex('a').acquire()).rejects.toThrow(/closed/)
  expect(clock.timers).toBe(0)
})

test.each([
  [{ warnAfter: '5m' }, /warnAfter must be like \{ hold: '5m', wait: '1m' \}; got 5m/],
  [{ warnAfter: null }, /warnAfter must be like/],
  [{ warnAfter: { hold: 0 } }, /warnAfter\.hold must be more than 0/],
  [{ warnAfter: { wait: 'soon' } }, /warnAfter\.wait must be milliseconds or a string/],
])('%j is refused', (options, message) => {
  expect(() => inMemory(options as never)).toThrow(message)
})
