/** The heartbeat: one timer for everything, and one batch for what is due together. */
import { describe, expect, test } from 'vitest'
import { type Scheduled, TimerQueue } from '../../src/core/timer-queue.ts'
import { held } from './scripted-engine.ts'
import { BEAT, type CountingClock, countingClock, inMemory, scripted, settled, TTL, watched } from './world.ts'

interface Item extends Scheduled {
  readonly name: string
}

function world(): { clock: CountingClock; heartbeat: TimerQueue<Item>; handled: string[] } {
  const clock = countingClock()
  const handled: string[] = []
  return {
    clock,
    handled,
    heartbeat: new TimerQueue<Item>(clock, ({ name }) => handled.push(`${name} at ${clock.now()}`)),
  }
}

const item = (name: string, slackMs = 0): Item => ({ name, slackMs, at: 0, slot: -1 })

describe('one timer', () => {
  test('handles each item at its time', async () => {
    const { clock, heartbeat, handled } = world()
    for (const at of [30, 10, 20]) heartbeat.put(item(`due ${at}`), at, clock.now())
    expect(clock.timers).toBe(1)
    await clock.advance(100)
    expect(handled).toEqual(['due 10 at 10', 'due 20 at 20', 'due 30 at 30'])
    expect(clock.timers).toBe(0)
  })

  test('forgets what was removed, and follows what was moved', async () => {
    const { clock, heartbeat, handled } = world()
    const [removed, later, earlier] = [item('removed'), item('later'), item('earlier')]
    heartbeat.put(removed, 10, clock.now())
    heartbeat.put(later, 10, clock.now())
    heartbeat.put(earlier, 50, clock.now())
    heartbeat.remove(removed)
    heartbeat.put(later, 40, clock.now())
    heartbeat.put(earlier, 5, clock.now())
    await clock.advance(100)
    expect(handled).toEqual(['earlier at 5', 'later at 40'])
  })

  test('handles early what may be early, when it beats for another', async () => {
    const { clock, heartbeat, handled } = world()
    heartbeat.put(item('first'), 10, clock.now())
    heartbeat.put(item('near', 5), 14, clock.now())
    heartbeat.put(item('far', 5), 16, clock.now())
    await clock.advance(100)
    expect(handled).toEqual(['first at 10', 'near at 10', 'far at 16'])
  })

  test('that fires a little early is set again, and nothing is handled before its time', async () => {
    const clock = countingClock()
    const handled: number[] = []
    // As Node's timers do, by a fraction of a millisecond.
    const early = {
      ...clock,
      now: clock.now,
      timer: (ms: number, fire: () => void) => clock.timer(ms > 1 ? ms - 0.5 : ms, fire),
    }
    new TimerQueue<Item>(early, () => handled.push(clock.now())).put(item('a'), 10, clock.now())
    await clock.advance(100)
    expect(handled).toEqual([10])
  })

  test.each([-500, 0, 1, 500])(
    'that slept until %i ms after its time is set again for whatever is put next',
    async (overdueMs) => {
      const clock = countingClock()
      let asleepMs = 0
      // As Node's timers do: they stand still while the machine sleeps, and our clock goes on.
      const sleepy = { ...clock, now: () => clock.now() + asleepMs, asleepMs: () => asleepMs }
      const handled: string[] = []
      const heartbeat = new TimerQueue<Item>(sleepy, ({ name }) => handled.push(`${name} at ${sleepy.now()}`))
      heartbeat.put(item('before'), 10_000, sleepy.now())
      await clock.advance(1000)
      asleepMs = 9000 + overdueMs
      const wokenAt = sleepy.now()
      heartbeat.put(item('after'), wokenAt + 20, wokenAt)
      await clock.advance(600)
      expect(handled.toSorted()).toEqual([`after at ${wokenAt + 20}`, `before at ${Math.max(10_000, wokenAt)}`])
    },
  )

  test('stopped, it handles nothing more and leaves no timer', async () => {
    const { clock, heartbeat, handled } = world()
    heartbeat.put(item('a'), 10, clock.now())
    heartbeat.stop()
    await clock.advance(100)
    expect(handled).toEqual([])
    expect(clock.timers).toBe(0)
  })
})

describe('renewals', () => {
  test('of a thousand leases of one ttl, taken at different times, soon are one batch per beat, with one timer', async () => {
    const { clock, locks, log } = inMemory()
    for (let taken = 0; taken < 1000; taken += 50) {
      await Promise.all(Array.from({ length: 50 }, (_, index) => locks.mutex(`k${taken + index}`).acquire()))
      await clock.advance(BEAT / 30)
    }
    await clock.advance(TTL)
    const before = log.length
    await clock.advance(3 * BEAT)
    const renewals = log.slice(before).filter((call) => call.startsWith('renew'))
    expect(renewals.map((call) => call.split(' ').length - 1)).toEqual([1000, 1000, 1000])
    expect(clock.timers, 'the heartbeat, and the watch over calls').toBeLessThanOrEqual(2)
  })

  test('come for each lease at a third of its own ttl', async () => {
    const { engine, clock, locks } = scripted()
    watched(locks.mutex('brief', { ttl: 3000 }).acquire())
    watched(locks.mutex('long', { ttl: 300_000 }).acquire())
    await (await engine.next('enter')).answer(held(1n, 3000), held(2n, 300_000))
    await clock.advance(999)
    expect(await engine.unseen()).toEqual([])
    for (let beat = 0; beat < 5; beat += 1) {
      await clock.advance(1000)
      const renewal = await engine.next('renew')
      expect(renewal.keys).toEqual(['brief'])
      await renewal.answer(held(1n, 3000))
    }
  })

  test('go on for as long as the lease is held', async () => {
    const { clock, locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    await clock.advance('2h')
    expect(lease.held).toBe(true)
    expect(lease.remainingMs).toBeGreaterThan(TTL / 2)
    expect(await lease.release()).toBe(true)
  })

  test('are also how a waiter stays in line: it is there after many ttls', async () => {
    const { clock, locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const waiter = watched(locks.mutex('a').acquire())
    await clock.advance('2h')
    expect((await locks.inspect('a')).entries.map(({ state }) => state)).toEqual(['held', 'waiting'])
    await lease.release()
    await settled()
    expect(waiter.value.held).toBe(true)
  })

  test('are tried again after a pause that is short against the ttl, and never a hot loop', async () => {
    for (const [ttl, pauseMs] of [
      ['30ms', 5],
      [1000, 100],
      [30_000, 1000],
      [3_600_000, 1000],
    ] as const) {
      const { engine, clock, locks } = scripted({ ttl })
      watched(locks.mutex('a').acquire())
      await (await engine.next('enter')).fail(new Error('down'))
      await clock.advance(pauseMs - 1)
      expect(await engine.unseen()).toEqual([])
      await clock.advance(1)
      expect(await engine.unseen()).toEqual(['enter a'])
    }
  })
})
