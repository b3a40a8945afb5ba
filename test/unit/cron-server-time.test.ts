/** What a host believes of the server's time: never ahead of it, and near it once a call was quick. */
import { expect, test } from 'vitest'
import { ServerTime } from '../../src/store/server-time.ts'
import { fakeClock } from '../../src/testing.ts'

const SERVER = Date.parse('2026-11-16T12:00:00Z')

test('a slow call says little, a quick one much, and a slow one after it changes nothing', () => {
  const clock = fakeClock()
  const time = new ServerTime(clock)
  const behindMs = (): number => SERVER + clock.now() - time.now()
  /** The server answers `thereMs` after the call was sent; the answer takes the rest. */
  const call = (thereMs: number, backMs: number): void => {
    const sentAt = clock.now()
    clock.stall(thereMs)
    const told = SERVER + clock.now()
    clock.stall(backMs)
    time.heard(told, sentAt)
  }
  call(900, 100)
  expect(behindMs()).toBe(100)
  call(1, 2)
  expect(behindMs()).toBe(2)
  call(10, 900)
  expect(behindMs()).toBe(2)
  time.heard(null, clock.now())
  expect(behindMs(), 'no answer changes nothing').toBe(2)
})

test('a clock of the server that was put back or forward is followed', () => {
  const clock = fakeClock()
  const time = new ServerTime(clock)
  time.heard(SERVER, clock.now())
  time.heard(SERVER - 3_600_000, clock.now())
  expect(time.now()).toBe(SERVER - 3_600_000)
  time.heard(SERVER + 3_600_000, clock.now())
  expect(time.now()).toBe(SERVER + 3_600_000)
})

test('without a time of the server, it is the wall clock of the host', () => {
  const before = Date.now()
  expect(new ServerTime(fakeClock()).now()).toBeGreaterThanOrEqual(before)
})
