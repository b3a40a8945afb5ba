/**
 * One timer for all calls that may stay unanswered: each ends when its time is over, not before, and not if it was
 * answered.
 */
import { expect, test } from 'vitest'
import { VirtualTime } from '../../simulation/redlock/time.ts'
import { CallLimits } from '../../src/clients/shared/call-limits.ts'
import type { Clock } from '../../src/core/clock.ts'

const TIMEOUT_MS = 50

function world(): { readonly time: VirtualTime; readonly clock: Clock; readonly limits: CallLimits; timers(): number } {
  const time = new VirtualTime()
  const clock = time.clock(1)
  let timers = 0
  const counting: Clock = {
    ...clock,
    timer: (delayMs, fire) => {
      timers += 1
      return clock.timer(delayMs, fire)
    },
  }
  return { time, clock, limits: new CallLimits(counting), timers: () => timers }
}

test('each ends when its own time is over, in the order in which they began, and those that were answered do not', () => {
  const { time, limits } = world()
  const ended: string[] = []
  limits.start(TIMEOUT_MS, () => ended.push('first'))
  time.runUntil(20)
  const answered = limits.start(TIMEOUT_MS, () => ended.push('answered'))
  time.runUntil(30)
  limits.start(TIMEOUT_MS, () => ended.push('second'))
  answered.cancel()
  time.runUntil(48)
  expect(ended).toEqual([])
  time.runUntil(52)
  expect(ended).toEqual(['first'])
  time.runUntil(78)
  expect(ended).toEqual(['first'])
  time.runUntil(82)
  expect(ended).toEqual(['first', 'second'])
})

test('what is answered in the moment in which its time is over has been answered', () => {
  const { time, clock, limits } = world()
  let ended = false
  const timer = limits.start(TIMEOUT_MS, () => {
    ended = true
  })
  // After a stall of the process, the timer is the first to be served, and the answer the second.
  clock.timer(TIMEOUT_MS, () => timer.cancel())
  time.runUntil(200)
  expect(ended).toBe(false)
})

test('one that begins when another ends has its whole time', () => {
  const { time, clock, limits } = world()
  const ended: number[] = []
  limits.start(TIMEOUT_MS, () => {
    ended.push(clock.now())
    limits.start(TIMEOUT_MS, () => ended.push(clock.now()))
  })
  time.runUntil(500)
  const [first = 0, second = 0] = ended
  expect(first).toBeGreaterThanOrEqual(TIMEOUT_MS - 1)
  expect(second - first).toBeGreaterThanOrEqual(TIMEOUT_MS - 1)
})

test('a thousand calls that are answered need two timers', () => {
  const { time, limits, timers } = world()
  for (let call = 0; call < 1000; call += 1) {
    const timer = limits.start(TIMEOUT_MS, () => expect.unreachable())
    time.runUntil(time.now + TIMEOUT_MS / 800)
    timer.cancel()
  }
  time.runUntil(1000)
  expect(timers()).toBeLessThanOrEqual(2)
})
