/** Turns inside one process: first come, first served, and a caller that gives up leaves no trace. */
import { expect, test } from 'vitest'
import { LocalQueue } from '../../src/core/local-queue.ts'
import { countingClock, settled, watched } from './world.ts'

const FOREVER = Number.POSITIVE_INFINITY

test('the turn goes round in the order of asking', async () => {
  const clock = countingClock()
  const queue = new LocalQueue()
  const order: number[] = []
  const round = [1, 2, 3].map(async (name) => {
    expect(await queue.take(clock, FOREVER)).toBe(true)
    order.push(name)
    await settled()
    order.push(name)
    queue.give()
  })
  await Promise.all(round)
  expect(order).toEqual([1, 1, 2, 2, 3, 3])
  expect(await queue.take(clock, 0), 'free again').toBe(true)
})

test('one try does not wait', async () => {
  const clock = countingClock()
  const queue = new LocalQueue()
  expect(await queue.take(clock, 0)).toBe(true)
  expect(await queue.take(clock, 0)).toBe(false)
})

test('a caller whose wait runs out is passed over', async () => {
  const clock = countingClock()
  const queue = new LocalQueue()
  await queue.take(clock, FOREVER)
  const impatient = watched(queue.take(clock, 100))
  const patient = watched(queue.take(clock, FOREVER))
  await clock.advance(100)
  expect(impatient.value).toBe(false)
  queue.give()
  await settled()
  expect(patient.value).toBe(true)
})

test("a caller that cancels is passed over, and hears the signal's own reason", async () => {
  const clock = countingClock()
  const queue = new LocalQueue()
  await queue.take(clock, FOREVER)
  const controller = new AbortController()
  const cancelled = watched(queue.take(clock, FOREVER, controller.signal))
  const patient = watched(queue.take(clock, FOREVER))
  controller.abort('no more')
  queue.give()
  await settled()
  expect(cancelled.error).toBe('no more')
  expect(patient.value).toBe(true)
})

test('a signal that is aborted already takes no turn, even a free one', async () => {
  const clock = countingClock()
  const queue = new LocalQueue()
  await expect(queue.take(clock, FOREVER, AbortSignal.abort('no'))).rejects.toBe('no')
  expect(await queue.take(clock, 0)).toBe(true)
})

test('a caller that waits for a turn keeps the process alive, and nothing is left behind', async () => {
  const clock = countingClock()
  const queue = new LocalQueue()
  await queue.take(clock, FOREVER)
  const waiting = queue.take(clock, 1000)
  expect(clock.alive).toBe(1)
  queue.give()
  expect(await waiting).toBe(true)
  expect({ alive: clock.alive, timers: clock.timers }).toEqual({ alive: 0, timers: 0 })
})
