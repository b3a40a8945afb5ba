/** When waiters look again: less and less often for a stranger, and in time although the machine has slept. */
import { expect, test } from 'vitest'
import { UnhandledErrors } from '../../conformance/unhandled-errors.ts'
import { systemChance } from '../../src/core/clock.ts'
import { RetrySignals } from '../../src/engines/redlock/listen.ts'
import type { RefusalSummary } from '../../src/engines/redlock/quorum-decision.ts'
import { RecheckTimer } from '../../src/engines/shared/recheck-timer.ts'
import { fakeClock } from '../../src/testing.ts'

const WAITER = { key: 'key', id: 'id', ttlMs: 30_000 }

test('behind a stranger, Redlock looks less and less often', async () => {
  const clock = fakeClock()
  const summary = { split: false, stranger: true, next: true, recheckMs: 30_000 } as RefusalSummary
  let looks = 0
  const signals = new RetrySignals({
    servers: 5,
    clock,
    chance: systemChance,
    deaf: () => false,
    isOurs: () => true,
    retry: () => {
      looks += 1
      signals.schedule(WAITER, summary)
    },
  })
  signals.schedule(WAITER, summary)
  await clock.advance(10_000)
  expect(looks).toBeGreaterThan(10)
  expect(looks).toBeLessThan(60)
})

test('after the machine has slept, a new waiter is rechecked in time, though a timer from before is late', async () => {
  const timers = fakeClock()
  let asleepMs = 0
  const clock = { ...timers, now: () => timers.now() + asleepMs, asleepMs: () => asleepMs }
  const looked: string[] = []
  const rechecks = new RecheckTimer(
    clock,
    () => false,
    (_, id) => looked.push(id),
  )
  rechecks.schedule({ ...WAITER, id: 'before', recheckMs: 30_000, place: 'first' })
  asleepMs = 3_600_000
  rechecks.schedule({ ...WAITER, id: 'after', recheckMs: 20, place: 'first' })
  await timers.advance(100)
  expect(looked).toContain('after')
})

test('the signal of a slow server for an entry that has left is forgotten with it', async () => {
  const clock = fakeClock()
  const retried: string[] = []
  let left = false
  const signals = new RetrySignals({
    servers: 3,
    clock,
    chance: systemChance,
    deaf: () => false,
    isOurs: () => !left,
    retry: (_, id) => retried.push(id),
  })
  const summary = { split: false, stranger: false, next: true, recheckMs: 30_000 } as RefusalSummary
  const signal = (server: number): void => signals.received(server, 'id key', (serverKey) => serverKey)
  signals.schedule(WAITER, summary)
  signal(0)
  signal(1)
  expect(retried).toEqual(['id'])
  left = true
  signals.forget('id')
  signal(2)
  await clock.advance(60_000)
  expect({ retried, size: signals.size }).toEqual({ retried: ['id'], size: 0 })
})

test('a waiter that is forgotten while a call is under way is not brought back by the answer, which is older', async () => {
  const clock = fakeClock()
  const looked: string[] = []
  const rechecks = new RecheckTimer(
    clock,
    () => false,
    (_, id) => looked.push(id),
  )
  let answer = (): void => undefined
  const answered = new Promise<void>((resolve) => {
    answer = resolve
  })
  const call = rechecks.during(
    answered.then(() => {
      for (const id of ['left', 'stays']) rechecks.schedule({ ...WAITER, id, recheckMs: 20, place: 'first' })
    }),
  )
  rechecks.forget('left')
  answer()
  await call
  expect(rechecks.size).toBe(1)
  await clock.advance(100)
  expect(looked).toEqual(['stays'])
  const failed = rechecks.during(Promise.reject(new Error('lost')))
  rechecks.forget('stays')
  await expect(failed).rejects.toThrow('lost')
  expect(rechecks.size).toBe(0)
})

test('what goes unhandled while two cases are played is told to both', async () => {
  using errors = new UnhandledErrors()
  const { mark } = errors
  errors.write('unhandled')
  await expect(errors.ask(mark)).rejects.toThrow('unhandled')
  await expect(errors.ask(mark)).rejects.toThrow('unhandled')
  await errors.ask(errors.mark)
})
