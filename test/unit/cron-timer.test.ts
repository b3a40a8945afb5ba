/** The timer of a job: no tick is passed over because a timer fired early, or while the one before was claimed. */
import { afterEach, beforeEach, expect, test } from 'vitest'
import { delegate } from '../../conformance/delegate.ts'
import type { Clock } from '../../src/core/clock.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { cron, type Run } from '../../src/recipes/cron/index.ts'
import { CronWorld, clockTime } from './cron-world.ts'
import { evenChance } from './world.ts'

let world: CronWorld
beforeEach(() => {
  world = new CronWorld()
})
afterEach(() => world.close())

test('a tick is run by a host whose clock is too fast: its timer has fired before the tick was there', async () => {
  const { clock, server } = world
  const rate = 1.0001
  const fast: Clock = {
    ...clock,
    now: () => clock.now() * rate,
    timer: (delayMs, fire) => clock.timer(delayMs / rate, fire),
  }
  const locks = createLocks(memory({ server }), { clock: fast })
  const runs: string[] = []
  cron(locks).add('job', '0 13 * * *', () => runs.push(world.time()))
  await clock.advance('49h')
  await clock.advance('1m')
  const closed = locks.close()
  await clock.advance('10s')
  await closed
  expect(runs).toEqual(['13:00:00', '13:00:00', '13:00:00'])
})

test.each([
  ['while the claim of the one before it is on its way', 1_500],
  ['right before that claim is answered, and is not looked at yet', 985],
])('a tick that comes %s is queued behind it', async (_, delayMs) => {
  const { clock, server } = world
  const engine = memory({ server })
  const { store } = engine
  const put: typeof store.put = async (changes) => {
    await new Promise<void>((resolve) => clock.timer(delayMs, resolve))
    return store.put(changes)
  }
  const slow = delegate(engine, {
    store: { traits: store.traits, get: (keys) => store.get(keys), put, list: store.list },
  })
  // Each tick is looked at 25 ms after it.
  const locks = createLocks(slow, { clock, chance: { ...evenChance(), fraction: () => 0.5 } })
  const runs: string[] = []
  const work = ({ tick }: Run): number => runs.push(clockTime(tick))
  cron(locks).add('job', '0,1 0 13 * * *', { overlap: 'queue' }, work)
  await clock.advance('59m')
  await clock.advance('2m')
  const closed = locks.close()
  await clock.advance('10s')
  await closed
  expect(runs).toEqual(['13:00:00', '13:00:01'])
})

test('a tick is run although the server has forgotten the host before it could claim it', async () => {
  const { clock, server } = world
  const engine = memory({ server })
  const { store } = engine
  let forgotten = 0
  const put: typeof store.put = (changes) => {
    const claims = changes.some(({ when }) => when.holding !== undefined)
    if (!claims || forgotten > 0) return store.put(changes)
    forgotten += 1
    return store.put(changes.map((change) => ({ ...change, when: { ...change.when, holding: 'forgotten' } })))
  }
  const forgetting = { traits: store.traits, get: store.get.bind(store), put, list: store.list.bind(store) }
  const locks = createLocks(delegate(engine, { store: forgetting }), { clock })
  const runs: string[] = []
  cron(locks, { onError: () => {} }).add('job', '0 13 * * *', ({ tick }) => runs.push(clockTime(tick)))
  await clock.advance('61m')
  const closed = locks.close()
  await clock.advance('10s')
  await closed
  expect([forgotten, runs]).toEqual([1, ['13:00:00']])
})
