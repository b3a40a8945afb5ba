/**
 * Optimistic changes: when it tries again, when it gives up, and what it says then. The clock and chance are ours; the
 * store is a variable.
 */
import { describe, expect, test, vi } from 'vitest'
import type { Clock } from '../../src/core/clock.ts'
import { ConflictError } from '../../src/core/errors.ts'
import { fakeClock } from '../../src/testing.ts'
import { type OptimisticOptions, type OptimisticResult, tryOptimistically } from '../../src/transactions/optimistic.ts'

/** A counter that another writer raises `rivals` times, each time between our read and our write. */
function contested(rivals: number): { options: OptimisticOptions<number>; value(): number } {
  let value = 0
  let left = rivals
  return {
    value: () => value,
    options: {
      target: 'the counter',
      read: async () => value,
      change: (before) => {
        if (left > 0) {
          left -= 1
          value += 100
        }
        return before + 1
      },
      write: async (after, before) => {
        if (value !== before) return false
        value = after
        return true
      },
    },
  }
}

async function run(options: OptimisticOptions<number>, fraction = 0.5): Promise<OptimisticResult<number>> {
  const clock = fakeClock()
  const done = tryOptimistically({ ...options, clock, chance: { fraction: () => fraction, id: () => '' } })
  // Rejections are the caller's to see; this only keeps the clock going until there is one.
  let settled = false
  void done.then(
    () => (settled = true),
    () => (settled = true),
  )
  while (!settled) await clock.advance(1)
  return await done
}

describe('an optimistic change', () => {
  test('is written at the first try if no other writer is in the way', async () => {
    const { options, value } = contested(0)
    expect(await run(options)).toEqual({ state: 'written', before: 0, after: 1, tries: 1 })
    expect(value()).toBe(1)
  })

  test('reads again after others were faster, and loses none of their changes', async () => {
    const { options, value } = contested(3)
    expect(await run(options)).toEqual({ state: 'written', before: 300, after: 301, tries: 4 })
    expect(value()).toBe(301)
  })

  test('gives up after as many retries as were allowed, writes nothing, and says how often it tried', async () => {
    const { options, value } = contested(100)
    const error = await run({ ...options, retries: 2 }).catch((caught: unknown) => caught)
    expect(error).toBeInstanceOf(ConflictError)
    expect(error).toMatchObject({ code: 'CONFLICT', target: 'the counter', tries: 3 })
    expect(String(error)).toBe('ConflictError: gave up changing the counter after 3 tries: others changed it each time')
    expect(value() % 100).toBe(0)
  })

  test('leaves what it was told to leave, and changes nothing where nothing is', async () => {
    const write = vi.fn(async () => true)
    expect(await run({ read: async () => 1, change: () => undefined, write })).toEqual({
      state: 'unchanged',
      before: 1,
      tries: 1,
    })
    expect(await run({ read: async () => undefined, change: (before) => before, write })).toEqual({
      state: 'missing',
      tries: 1,
    })
    expect(write).not.toHaveBeenCalled()
  })

  test('waits for a random time that doubles, up to a tenth of a second', async () => {
    const pauses: number[] = []
    const clock = fakeClock()
    const timer: Clock['timer'] = (delayMs, fire) => {
      pauses.push(delayMs)
      return clock.timer(0, fire)
    }
    const options = {
      ...contested(100).options,
      clock: { ...clock, timer },
      chance: { fraction: () => 0.5, id: () => '' },
      retries: 8,
    }
    const done = tryOptimistically(options).catch(() => undefined)
    await clock.advance(1000)
    await done
    expect(pauses).toEqual([1, 2, 4, 8, 16, 32, 50, 50])
  })

  test('ends between two tries when its signal aborts, with the reason of the signal', async () => {
    const clock = fakeClock()
    const over = new AbortController()
    const { options } = contested(100)
    const read = vi.fn(options.read)
    const done = tryOptimistically({
      ...options,
      read,
      clock,
      signal: over.signal,
      chance: { fraction: () => 0.5, id: () => '' },
    })
    await clock.advance(0)
    const reason = new Error('the client went away')
    over.abort(reason)
    await expect(done).rejects.toBe(reason)
    expect(read).toHaveBeenCalledTimes(1)
  })

  test('refuses a number of retries that is none', async () => {
    for (const retries of [-1, 0.5, Number.NaN])
      await expect(run({ ...contested(0).options, retries })).rejects.toThrow(RangeError)
  })
})
