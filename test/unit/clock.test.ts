/** The only door to time: what sleep does to it, and what a clock that is set does not. */
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest'
import { sleepless, systemChance, systemClock } from '../../src/core/clock.ts'

/** A machine that can be awake, asleep, and have its clock set. */
function machine() {
  const time = { monotonic: 1000, wall: 1_700_000_000_000, boot: 50_000 }
  const { now } = sleepless({
    monotonicMs: () => time.monotonic,
    wallMs: () => time.wall,
    // In steps of 10 ms, as Linux has it.
    bootMs: () => Math.floor(time.boot / 10) * 10,
  })
  const startedAt = now()
  const pass = (ms: number, asleep: boolean): void => {
    if (!asleep) time.monotonic += ms
    time.wall += ms
    time.boot += ms
  }
  return {
    /** How much time has passed, as the core sees it. */
    passed: () => now() - startedAt,
    awake: (ms: number) => pass(ms, false),
    asleep: (ms: number) => pass(ms, true),
    set: (ms: number) => {
      time.wall += ms
    },
  }
}

const HOUR = 3_600_000
/** The boot clock's steps, twice: once when it was first read, once now; and once more, to be on the safe side. */
const COARSE = 30

describe('time', () => {
  test('passes while awake', () => {
    const it = machine()
    it.awake(1234.5)
    expect(it.passed()).toBe(1234.5)
  })

  test('counts what a laptop slept, and again what it sleeps later', () => {
    const it = machine()
    let expected = 0
    for (const slept of [HOUR, 60_000, 1000, 8 * HOUR]) {
      it.awake(500)
      it.asleep(slept)
      expected += 500 + slept
      expect(Math.abs(it.passed() - expected)).toBeLessThanOrEqual(COARSE)
    }
  })

  test('never counts less than what was slept, though the boot clock says it in steps', () => {
    for (let ms = 0; ms < 25; ms += 1) {
      const it = machine()
      it.awake(ms)
      it.asleep(1000 + ms / 3)
      expect(it.passed()).toBeGreaterThanOrEqual(1000 + ms + ms / 3)
    }
  })

  test('does not jump when the clock is set forward', () => {
    const it = machine()
    it.awake(500)
    it.set(HOUR)
    expect(it.passed()).toBe(500)
    it.awake(500)
    expect(it.passed()).toBe(1000)
  })

  test('does not go back when the clock is set back', () => {
    const it = machine()
    it.awake(500)
    it.set(-HOUR)
    expect(it.passed()).toBe(500)
    it.awake(500)
    expect(it.passed()).toBe(1000)
  })

  test('counts a sleep also after the clock was set, in either direction, again and again', () => {
    for (const jump of [HOUR, -HOUR]) {
      const it = machine()
      for (let time = 1; time <= 3; time += 1) {
        it.set(jump)
        expect(it.passed() - (time - 1) * 60_000).toBeLessThanOrEqual(COARSE)
        it.asleep(60_000)
        expect(Math.abs(it.passed() - time * 60_000)).toBeLessThanOrEqual(COARSE)
      }
    }
  })

  test('counts a sleep also when the clock was set on waking, as network time does', () => {
    for (const jump of [500, -500, -120_000, HOUR]) {
      const it = machine()
      it.asleep(60_000)
      it.set(jump)
      expect(Math.abs(it.passed() - 60_000)).toBeLessThanOrEqual(COARSE)
    }
  })

  test('never goes back, whatever happens', () => {
    const it = machine()
    let last = it.passed()
    for (let step = 0; step < 500; step += 1) {
      const happens = [
        () => it.awake(37),
        () => it.asleep(73),
        () => it.set(911),
        () => it.set(-617),
        () => it.asleep(5000),
      ]
      happens[(step * 7) % happens.length]?.()
      const now = it.passed()
      expect(now).toBeGreaterThanOrEqual(last)
      last = now
    }
  })

  test('is not fooled by a clock that is slewed: no sleep is made up', () => {
    const it = machine()
    for (let second = 0; second < 10_000; second += 1) {
      it.awake(1000)
      it.set(0.5)
      it.passed()
    }
    expect(it.passed()).toBe(10_000_000)
  })
})

describe('the timers of the system', () => {
  beforeEach(() => {
    vi.useFakeTimers()
  })
  afterEach(() => {
    vi.useRealTimers()
  })

  test('fire once, after their time, unless cancelled', () => {
    let fired = 0
    systemClock.timer(1000, () => {
      fired += 1
    })
    systemClock
      .timer(1000, () => {
        fired += 100
      })
      .cancel()
    vi.advanceTimersByTime(999)
    expect(fired).toBe(0)
    vi.advanceTimersByTime(5000)
    expect(fired).toBe(1)
  })

  test('of a time that is over fire at once', () => {
    let fired = false
    systemClock.timer(-5, () => {
      fired = true
    })
    vi.advanceTimersByTime(1)
    expect(fired).toBe(true)
  })

  test('of more than 24 days, the longest that Node takes, do not fire early', () => {
    let fired = false
    systemClock.timer(100 * 24 * HOUR, () => {
      fired = true
    })
    vi.advanceTimersByTime(99 * 24 * HOUR)
    expect(fired).toBe(false)
    vi.advanceTimersByTime(24 * HOUR)
    expect(fired).toBe(true)
  })
})

describe('chance', () => {
  test('gives ids of 128 bits in hexadecimal, no two alike', () => {
    const ids = Array.from({ length: 10_000 }, () => systemChance.id())
    expect(new Set(ids).size).toBe(ids.length)
    for (const id of ids) expect(/^[0-9a-f]{32}$/.test(id)).toBe(true)
  })

  test('does not rest on Math.random', () => {
    const random = vi.spyOn(Math, 'random').mockReturnValue(0.5)
    const ids = Array.from({ length: 600 }, () => systemChance.id())
    random.mockRestore()
    expect(new Set(ids).size).toBe(ids.length)
  })
})
