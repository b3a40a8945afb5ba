/** `locks.sample`: what lines are like, now and then, for gauges. */
import { describe, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Engine } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import { takeSample } from '../../src/core/sample.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { prometheus } from '../../src/prometheus.ts'
import { published } from './published.ts'
import { countingClock, inMemory, type MemoryWorld, settled, TTL, watched } from './world.ts'

interface LookedWorld extends MemoryWorld {
  /** What was looked at: a key, or a prefix and `*`. */
  readonly looks: string[]
  /** What looks fail with. */
  error: EngineError | undefined
  /** The engine does not store since when entries are there. */
  forgetful: boolean
}

/** Locks whose looks are written down. */
function looked(): LookedWorld {
  const clock = countingClock()
  const real = memory({ clock })
  const looks: string[] = []
  const look = (what: string): void => {
    looks.push(what)
    if (world.error !== undefined) throw world.error
  }
  const inspect: Engine['inspect'] = async (key) => {
    look(key)
    const line = await real.inspect(key)
    if (!world.forgetful) return line
    return { ...line, entries: line.entries.map((entry) => ({ ...entry, ageMs: null, heldMs: null })) }
  }
  const list: Engine['list'] = (prefix) => {
    look(`${prefix}*`)
    return real.list(prefix)
  }
  const engine = delegate(real, { inspect, list })
  const locks = createLocks(engine, { clock, ttl: TTL, holder: 'me' })
  const world: LookedWorld = { clock, engine, locks, log: [], looks, error: undefined, forgetful: false }
  return world
}

const unreachable = (transient: boolean): EngineError =>
  new EngineError('memory', 'cut off', { outcome: 'not-applied', transient })

describe('a sample', () => {
  test('says of each line how many hold and wait, and how long the oldest of them has', async () => {
    const { clock, locks } = inMemory()
    await locks.rw('order:1').read.acquire()
    await clock.advance(1000)
    await locks.rw('order:1').read.acquire()
    await clock.advance(1000)
    for (let waiters = 0; waiters < 2; waiters += 1) {
      watched(locks.rw('order:1').write.acquire())
      await clock.advance(500)
    }
    await locks.mutex('other').acquire()
    expect(await takeSample(locks, { keys: [], prefixes: ['order:'], most: 10 })).toEqual({
      lines: [{ key: 'order:1', held: 2, waiting: 2, oldestHoldMs: 3000, oldestWaitMs: 1000, holder: 'me' }],
      unsampled: 0,
    })
    await locks.close()
  })

  test('looks into the lines with the most waiters, and says how many it has left out', async () => {
    const { looks, locks } = looked()
    for (const key of ['a', 'b', 'c', 'd']) await locks.mutex(key).acquire()
    for (const key of ['c', 'd', 'd']) watched(locks.mutex(key).acquire())
    await settled()
    const sample = await takeSample(locks, { keys: [], prefixes: [''], most: 2 })
    expect(looks).toEqual(['*', 'd', 'c'])
    expect(sample).toMatchObject({ lines: [{ key: 'd' }, { key: 'c' }], unsampled: 2 })
    await locks.close()
  })

  test('of keys lists nothing; what is in several ranges is looked at once; free lines are not in it', async () => {
    const { looks, locks } = looked()
    for (const key of ['a:1', 'a:2']) await locks.mutex(key).acquire()
    const keys = ['a:1', 'free', 'a:1']
    const keysOnly = await takeSample(locks, { keys, prefixes: [], most: 1 })
    expect(looks.splice(0)).toEqual(['a:1', 'free'])
    expect(keysOnly.lines.map(({ key }) => key)).toEqual(['a:1'])
    const both = await takeSample(locks, { keys, prefixes: ['a:', ''], most: 1 })
    expect(looks).toEqual(['a:*', '*', 'a:1', 'free', 'a:2'])
    expect(both).toMatchObject({ lines: [{ key: 'a:1' }, { key: 'a:2' }], unsampled: 0 })
    await locks.close()
  })
})

describe('sampling', () => {
  test('looks at once, and then every so often, until its signal aborts; then it says that it is over', async () => {
    using events = published('sample')
    const { clock, locks, looks } = looked()
    await locks.mutex('a').acquire()
    const ending = new AbortController()
    const sampling = watched(locks.sample({ keys: ['a'], every: '10s', signal: ending.signal }))
    await clock.advance('25s')
    expect(looks).toEqual(['a', 'a', 'a'])
    const lines = [{ key: 'a', held: 1, waiting: 0, oldestWaitMs: null, holder: 'me' }]
    expect(events.of('sample').map(({ lines }) => lines[0]?.oldestHoldMs)).toEqual([0, 10_000, 20_000])
    expect(events.of('sample')[0]).toMatchObject({ engine: 'memory', lines, unsampled: 0, tookMs: 0 })
    expect(sampling.state).toBe('pending')
    ending.abort()
    await settled()
    expect(sampling.state).toBe('resolved')
    expect(events.of('sample').at(-1)).toMatchObject({ lines: [], over: true })
    expect(new Set(events.of('sample').map(({ sampler }) => sampler)).size).toBe(1)
    await clock.advance('1h')
    expect(looks.length).toBe(3)
    await locks.close()
  })

  test('counts from when it first saw an entry, where the engine does not store since when', async () => {
    using events = published('sample')
    const world = looked()
    world.forgetful = true
    const { clock, locks } = world
    const lease = await locks.mutex('a').acquire()
    const waiter = watched(locks.mutex('a').acquire())
    await settled()
    void locks.sample({ keys: ['a'], every: '10s' })
    await clock.advance('15s')
    world.error = unreachable(true)
    await clock.advance('10s')
    world.error = undefined
    await clock.advance('10s')
    await lease.release()
    await clock.advance('20s')
    expect(waiter.state).toBe('resolved')
    const found = events.of('sample').map(({ lines: [line] }) => [line?.oldestHoldMs, line?.oldestWaitMs])
    expect(found).toEqual([
      [0, 0],
      [10_000, 10_000],
      [undefined, undefined],
      [30_000, 30_000],
      [0, null],
      [10_000, null],
    ])
    await locks.close()
  })

  test('ends with the locks, and leaves no timer', async () => {
    const { clock, locks } = inMemory()
    const sampling = watched(locks.sample({ prefixes: [''] }))
    await settled()
    await locks.close()
    await settled()
    expect([sampling.state, clock.timers, clock.alive]).toEqual(['resolved', 0, 0])
  })

  test('goes on after a look that failed, and says that it failed', async () => {
    using events = published('sample')
    const world = looked()
    world.error = unreachable(true)
    const sampling = watched(world.locks.sample({ prefixes: ['a'], every: '10s' }))
    await world.clock.advance('5s')
    expect(events.of('sample')).toMatchObject([{ lines: [], error: world.error }])
    world.error = undefined
    await world.clock.advance('10s')
    expect(events.of('sample')[1]).toMatchObject({ lines: [] })
    expect(events.of('sample')[1]).not.toHaveProperty('error')
    expect(sampling.state).toBe('pending')
    await world.locks.close()
  })

  test('rejects with an error that will not go away', async () => {
    const world = looked()
    world.error = unreachable(false)
    await expect(world.locks.sample({ keys: ['a'] })).rejects.toBe(world.error)
    await world.locks.close()
  })

  test.each([
    [{}, /sample takes keys or prefixes/],
    [{ prefix: 'order:' }, /unknown option 'prefix' in sample\(\)/],
    [{ prefixes: 'order:' }, /keys and prefixes must be arrays/],
    [{ keys: [''] }, /a key must not be empty/],
    [{ prefixes: [''], most: 0 }, /most must be a whole number from 1; got 0/],
    [{ prefixes: [''], every: '10ms' }, /every must be at least 1000 ms; got 10 ms/],
  ])('with %j is refused', async (options, message) => {
    const { locks } = inMemory()
    await expect(locks.sample(options as never)).rejects.toThrow(message)
    await locks.close()
  })
})

describe('the gauges', () => {
  test('are by class, follow the last sample, and are zero when the lines are gone or the sampling is over', async () => {
    using metrics = prometheus()
    const gauges = (): readonly string[] =>
      [
        ...metrics
          .text()
          .matchAll(/^holdfast_line_(\w+)\{holdfast_engine="memory"(?:,holdfast_class="order:\*")?\} (.*)$/gm),
      ].map(([, name, value]) => `${name} ${value}`)
    const world = looked()
    const { clock, locks } = world
    const ending = new AbortController()
    const [one, other] = [await locks.mutex('order:1').acquire(), await locks.mutex('order:2').acquire()]
    for (const key of ['order:1', 'order:2', 'order:2']) watched(locks.mutex(key).acquire({ wait: '21s' }))
    await clock.advance('20s')
    void locks.sample({ prefixes: ['order:'], every: '10s', most: 100, signal: ending.signal })
    await settled()
    await settled()
    const first = ['busy 2', 'held 2', 'waiting 3', 'longest 2', 'oldest_hold_seconds 20', 'oldest_wait_seconds 20']
    expect(gauges()).toEqual([...first, 'unsampled 0'])
    world.error = unreachable(true)
    await clock.advance('10s')
    expect(gauges(), 'after a sample that failed').toEqual([...first, 'unsampled 0'])
    world.error = undefined
    await one.release()
    await clock.advance('10s')
    const later = ['busy 1', 'held 1', 'waiting 0', 'longest 0', 'oldest_hold_seconds 40', 'oldest_wait_seconds 0']
    expect(gauges()).toEqual([...later, 'unsampled 0'])
    ending.abort()
    await settled()
    const none = [...later, 'unsampled 0'].map((line) => line.replace(/ .*/, ' 0'))
    expect(gauges()).toEqual(none)
    expect(metrics.text()).toContain(
      'holdfast_sample_duration_seconds_count{holdfast_engine="memory",holdfast_outcome="failed"} 1',
    )
    await other.release()
    await locks.close()
  })
})
