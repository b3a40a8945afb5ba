/**
 * One timer for all calls that may stay unanswered: each ends when its time is over, not before, and not if it was
 * answered.
 */
import { expect, test } from 'vitest'
import { Time } from '../../simulation/redlock/time.ts'
import type { Clock } from '../../src/core/clock.ts'
import { Patience } from '../../src/engines/redlock/patience.ts'

const TIMEOUT_MS = 50

function world(): { readonly time: Time; readonly clock: Clock; readonly patience: Patience; timers(): number } {
  const time = new Time()
  const clock = time.clock(1)
  let timers = 0
  const counting: Clock = {
    ...clock,
    timer: (delayMs, fire) => {
      timers += 1
      return clock.timer(delayMs, fire)
    },
  }
  return { time, clock, patience: new Patience(counting, TIMEOUT_MS), timers: () => timers }
}

test('each ends when its own time is over, in the order in which they began, and those that were answered do not', () => {
  const { time, patience } = world()
  const ended: string[] = []
  patience.wait(() => ended.push('first'))
  time.runUntil(20)
  const answered = patience.wait(() => ended.push('answered'))
  time.runUntil(30)
  patience.wait(() => ended.push('second'))
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
  const { time, clock, patience } = world()
  let ended = false
  const timer = patience.wait(() => {
    ended = true
  })
  // After a stall of the process, the timer is the first to be served, and the answer the second.
  clock.timer(TIMEOUT_MS, () => timer.cancel())
  time.runUntil(200)
  expect(ended).toBe(false)
})

test('one that begins when another ends has its whole time', () => {
  const { time, clock, patience } = world()
  const ended: number[] = []
  patience.wait(() => {
    ended.push(clock.now())
    patience.wait(() => ended.push(clock.now()))
  })
  time.runUntil(500)
  const [first = 0, second = 0] = ended
  expect(first).toBeGreaterThanOrEqual(TIMEOUT_MS - 1)
  expect(second - first).toBeGreaterThanOrEqual(TIMEOUT_MS - 1)
})

test('a thousand calls that are answered need two timers', () => {
  const { time, patience, timers } = world()
  for (let call = 0; call < 1000; call += 1) {
    const timer = patience.wait(() => expect.unreachable())
    time.runUntil(time.now + TIMEOUT_MS / 800)
    timer.cancel()
  }
  time.runUntil(1000)
  expect(timers()).toBeLessThanOrEqual(2)
})
