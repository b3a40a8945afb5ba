/**
 * Wrong arguments: a TypeError or RangeError that says what was expected and what came, before anything is asked of the
 * engine.
 */
import { describe, expect, test } from 'vitest'
import type { Duration } from '../../src/core/duration.ts'
import { UNLIMITED } from '../../src/core/engine.ts'
import { UnsupportedError } from '../../src/core/errors.ts'
import type { LineAcquireOptions } from '../../src/core/lock.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'
import { ScriptedEngine } from './scripted-engine.ts'
import { inMemory, scripted } from './world.ts'

describe('a value that is nearly right', () => {
  test('is told what it means: a ttl in plain numbers is milliseconds', () => {
    const locks = createLocks(memory())
    const told = "ttl: 30 is 30 milliseconds; write '30s' for seconds, or '30ms' if that is meant"
    expect(() => locks.mutex('k', { ttl: 30 })).toThrow(new RangeError(told))
    expect(() => createLocks(memory(), { ttl: 30 })).toThrow(new RangeError(told))
    expect(locks.mutex('k', { ttl: '30ms' }).key).toBe('k')
    expect(locks.mutex('k', { ttl: 100 }).key).toBe('k')
  })

  test('is shown as it was written: a text with quotes', () => {
    const locks = createLocks(memory())
    expect(() => locks.semaphore('gpu', '4' as unknown as number)).toThrow(/; got '4'$/)
  })

  test('is told what signals can be', () => {
    for (const signals of ['yes', 5])
      expect(() => createLocks(memory(), { signals: signals as never })).toThrow(
        /^signals must be true, false, or like \{ grace: '10s' \}; got /,
      )
  })
})

describe('a ttl', () => {
  test('shorter than the engine keeps, or longer than a day, is refused where the lock is created', () => {
    const { locks } = scripted({}, { minTtlMs: 1000 })
    expect(() => locks.mutex('a', { ttl: 999 })).toThrow(
      new RangeError('ttl must be from 1000 ms (scripted) to 24 h; got 999 ms'),
    )
    expect(() => locks.rw('a', { ttl: '25h' })).toThrow(
      new RangeError('ttl must be from 1000 ms (scripted) to 24 h; got 90000000 ms'),
    )
    expect(() => locks.semaphore('a', 2, { ttl: -1 })).toThrow(RangeError)
    expect(() => locks.election('a', { ttl: 'soon' as Duration })).toThrow(TypeError)
    expect(() => locks.mutex('a', { ttl: 1000 })).not.toThrow()
  })

  test('longer than the engine keeps is the longest that it keeps', async () => {
    const { locks, engine } = scripted({ ttl: '1h' }, { maxTtlMs: 20_000 })
    const { read } = locks.rw('of the lock', { ttl: '10m' })
    const asked = [locks.mutex('of all locks'), read, locks.semaphore('short', 2, { ttl: '5s' })]
    const tried = asked.map((lock) => lock.tryAcquire())
    const enter = await engine.next('enter')
    expect(enter.items).toMatchObject([{ ttlMs: 20_000 }, { ttlMs: 20_000 }, { ttlMs: 5_000 }])
    await enter.answer(...asked.map(() => ({ state: 'busy', ahead: null }) as const))
    expect(await Promise.all(tried)).toEqual([undefined, undefined, undefined])
  })

  test('of all locks is looked at when they are created', () => {
    expect(() => createLocks(memory(), { ttl: 1 })).toThrow(RangeError)
    expect(() => createLocks(memory(), { ttl: '1 minute' as Duration })).toThrow(/ttl must be .*got '1 minute'/)
  })
})

describe('options of createLocks', () => {
  test('callTimeout is a duration above 0', () => {
    expect(() => createLocks(memory(), { callTimeout: 'x' as Duration })).toThrow(/callTimeout must be/)
    expect(() => createLocks(memory(), { callTimeout: 0 })).toThrow(RangeError)
  })

  test('holder is a string of at most 512 bytes', () => {
    expect(() => createLocks(memory(), { holder: 7 as unknown as string })).toThrow(/holder must be .*got number/)
    expect(() => createLocks(memory(), { holder: 'x'.repeat(513) })).toThrow(RangeError)
    for (const holder of ['a\0b', '\ud800']) expect(() => createLocks(memory(), { holder })).toThrow(/without NUL/)
    for (const holder of ['a\0b', '\ud800']) expect(() => createLocks(memory(), { holder })).toThrow(/well-formed/)
    expect(createLocks(memory(), { holder: 'api-7' }).holder).toBe('api-7')
    expect(createLocks(memory()).holder, 'host, pid and script, without its path').toMatch(/^[^\s/]+:\d+ [^\s/]+$/)
  })

  test('the first argument is an engine', () => {
    expect(() => createLocks('redis://localhost' as unknown as ReturnType<typeof memory>)).toThrow(TypeError)
    expect(() => createLocks('redis://localhost' as unknown as ReturnType<typeof memory>)).toThrow(/engine/)
  })
})

describe('a semaphore', () => {
  test('has a limit that is a whole number from 1', () => {
    const { locks } = inMemory()
    for (const limit of [0, -1, 1.5, Number.NaN, UNLIMITED + 1]) {
      expect(() => locks.semaphore('a', limit)).toThrow(
        new RangeError(`the limit of a semaphore must be a whole number from 1 to 2147483647; got ${limit}`),
      )
    }
    expect(locks.semaphore('a', 4).limit).toBe(4)
  })

  test('takes weights from 1 to its limit', async () => {
    const { locks, log } = inMemory()
    for (const weight of [0, 5, 1.5, -1, Number.NaN]) {
      const error = new RangeError(`weight must be a whole number from 1 to the limit of 4; got ${weight}`)
      await expect(locks.semaphore('a', 4).acquire({ weight })).rejects.toThrow(error)
      await expect(locks.semaphore('a', 4).tryAcquire({ weight })).rejects.toThrow(error)
      await expect(locks.semaphore('a', 4).using({ weight }, () => 1)).rejects.toThrow(error)
    }
    expect(log).toEqual([])
  })

  test('a weight on a mutex is refused', async () => {
    const { locks } = inMemory()
    await expect(locks.mutex('a').acquire({ weight: 2 } as LineAcquireOptions)).rejects.toThrow(
      new RangeError('weight must be a whole number from 1 to the limit of 1; got 2'),
    )
  })
})

describe('what an engine cannot serve', () => {
  test('is refused where the lock is created, with the names of engines that can', () => {
    const exclusive = createLocks(new ScriptedEngine({ sharing: 'none' }))
    expect(() => exclusive.semaphore('a', 2)).toThrow(UnsupportedError)
    expect(() => exclusive.semaphore('a', 2)).toThrow(/scripted has no semaphores above 1; use memory, sqlite/)
    expect(() => exclusive.rw('a')).toThrow(/scripted has no read locks; use memory, sqlite/)
    expect(() => exclusive.semaphore('a', 1)).not.toThrow()
    const shared = createLocks(new ScriptedEngine({ sharing: 'read-write' }))
    expect(() => shared.semaphore('a', 2)).toThrow(UnsupportedError)
    expect(() => shared.rw('a')).not.toThrow()
  })
})

describe('wait and signal', () => {
  test('a wait that is no duration rejects', async () => {
    const { locks } = inMemory()
    await expect(locks.mutex('a').acquire({ wait: 'soon' as Duration })).rejects.toThrow(/^wait must be .*got 'soon'$/)
    await expect(locks.mutex('a').acquire({ wait: -1 })).rejects.toThrow(RangeError)
    await expect(locks.all([locks.mutex('a')]).acquire({ wait: 'soon' as Duration })).rejects.toThrow(TypeError)
    expect(await locks.mutex('a').tryAcquire(), 'nothing was taken').toBeDefined()
  })

  test('a signal that is none rejects, and says so', async () => {
    const { locks } = inMemory()
    const signal = new AbortController() as unknown as AbortSignal
    await expect(locks.mutex('a').acquire({ signal })).rejects.toThrow(TypeError)
    await expect(locks.mutex('a').acquire({ signal })).rejects.toThrow(/signal must be an AbortSignal/)
  })
})

describe('release and evict', () => {
  test('`after` that is no duration rejects, and the lease is still held', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const wrong = async (): Promise<boolean> => lease.release({ after: 'later' as Duration })
    await expect(wrong()).rejects.toThrow(/^after must be/)
    expect(lease.held).toBe(true)
  })

  test('evict takes the token as a bigint, and one of two ways', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    await expect(locks.evict('a', '1' as unknown as bigint)).rejects.toThrow(/token must be a bigint; got string/)
    await expect(locks.evict('a', 1n, 'later' as 'now')).rejects.toThrow(/'expire' or 'now'; got 'later'/)
    await expect(locks.evict('', 1n)).rejects.toThrow(RangeError)
    await expect(locks.inspect('')).rejects.toThrow(RangeError)
    expect(lease.held).toBe(true)
  })
})
