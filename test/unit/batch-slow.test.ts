/** Batches: what a call that is slow, late or never answered does to the others. */
import { describe, expect, test } from 'vitest'
import { batchWorld, keysOf, TIMEOUT } from './batch-world.ts'
import { settled } from './world.ts'

describe('a call that takes long', () => {
  test('does not hold up other keys once it is slow; its own keys wait for it', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    it.ask('b', 'a', 'c')
    await it.clock.advance(49)
    expect(keysOf(it)).toEqual(['a'])
    await it.clock.advance(1)
    expect(keysOf(it)).toEqual(['a', 'b c'])
    await it.calls[1]?.answer('yes', 'yes')
    expect(keysOf(it)).toEqual(['a', 'b c'])
    await it.calls[0]?.answer('yes')
    expect(keysOf(it)).toEqual(['a', 'b c', 'a'])
  })

  test('at most four calls are unanswered at once', async () => {
    const it = batchWorld()
    for (const key of ['a', 'b', 'c', 'd', 'e']) {
      it.ask(key)
      await it.clock.advance(50)
    }
    expect(keysOf(it)).toEqual(['a', 'b', 'c', 'd'])
    await it.calls[2]?.answer('yes')
    expect(keysOf(it)).toEqual(['a', 'b', 'c', 'd', 'e'])
  })

  test('times out as an unknown outcome, and its signal is aborted', async () => {
    const it = batchWorld()
    it.ask('a', 'b')
    await it.clock.advance(TIMEOUT - 1)
    expect(it.told).toEqual([])
    expect(it.calls[0]?.signal?.aborted).toBe(false)
    await it.clock.advance(1)
    expect(it.told).toEqual(['a failed: unknown', 'b failed: unknown'])
    expect(it.calls[0]?.signal?.reason).toMatchObject({ message: 'scripted: enter: no answer within 1000 ms' })
  })

  test('and is answered after that is still heard: it is true, only late', async () => {
    const it = batchWorld()
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    it.ask('b')
    await settled()
    await it.calls[0]?.answer('yes')
    await it.calls[1]?.answer('yes')
    expect(it.told).toEqual(['a failed: unknown', 'a: yes', 'b: yes'])
  })

  test('and fails after that is not told twice', async () => {
    const it = batchWorld()
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    await it.calls[0]?.fail(new Error('late'))
    expect(it.told).toEqual(['a failed: unknown'])
  })

  test('lets its own keys go on once it has timed out', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    expect(keysOf(it)).toEqual(['a', 'a'])
  })

  test('aborts nothing that an answered call has left listening', async () => {
    const it = batchWorld()
    it.ask('a')
    await settled()
    let aborted = false
    it.calls[0]?.signal?.addEventListener('abort', () => {
      aborted = true
    })
    await it.calls[0]?.answer('yes')
    it.ask('b')
    await it.clock.advance(TIMEOUT)
    expect(it.calls[1]?.signal?.aborted).toBe(true)
    expect(aborted).toBe(false)
  })

  test('that had its time while the machine slept is over as soon as anything waits for it', async () => {
    const it = batchWorld()
    let asleepMs = 0
    const { now } = it.clock
    Object.assign(it.clock, { now: () => now() + asleepMs, asleepMs: () => asleepMs })
    it.ask('a')
    await it.clock.advance(100)
    asleepMs = 60_000
    it.ask('a')
    await it.clock.advance(1)
    expect(it.told).toEqual(['a failed: unknown'])
    expect(keysOf(it)).toEqual(['a', 'a'])
  })

  test('a call that is made after a sleep is not late, though the timer of an earlier one stood still in it', async () => {
    const it = batchWorld({ timeoutMs: ([first]) => (first?.key === 'slow' ? 5000 : TIMEOUT) })
    let asleepMs = 0
    const { now } = it.clock
    Object.assign(it.clock, { now: () => now() + asleepMs, asleepMs: () => asleepMs })
    it.ask('slow')
    await it.clock.advance(100)
    // Its timer stands where it would have had its time, in 4.9 s.
    await it.calls[0]?.answer('yes')
    asleepMs = 60_000
    it.ask('a')
    await it.clock.advance(TIMEOUT)
    expect(it.told).toEqual(['slow: yes', 'a failed: unknown'])
  })

  test('a call whose time-out is a fraction ends', async () => {
    const it = batchWorld({ timeoutMs: () => 33.333333333333336 })
    await it.clock.advance(8.2)
    it.ask('a')
    let turns = 0
    const { timer } = it.clock
    // 8.2 + 33.3... - 8.2 is less than 33.3...: code that compares the age waits for a moment that never comes.
    Object.assign(it.clock, {
      timer: (ms: number, fire: () => void) => {
        turns += 1
        if (turns > 100) throw new Error('the same moment, again and again')
        return timer(ms, fire)
      },
    })
    await it.clock.advance(100)
    expect(it.told).toEqual(['a failed: unknown'])
  })
})
