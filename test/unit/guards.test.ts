/** The pure rule of guards: what is let through, what is refused, and why two marks and reads that count are needed. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { StaleTokenError } from '../../src/core/errors.ts'
import { type LeaseLike, resourceToken } from '../../src/guards/lease-like.ts'
import { type Access, checkToken, type Marks, NO_MARKS, raiseMarks } from '../../src/guards/marks.ts'
import { inMemory } from './world.ts'

function marksAfter(...accesses: readonly (readonly [Access, bigint])[]): Marks {
  return accesses.reduce((marks, [access, token]) => raiseMarks(marks, token, access), NO_MARKS)
}

function admits(marks: Marks, access: Access, token: bigint): boolean {
  try {
    checkToken('it', token, access, marks)
    return true
  } catch (error) {
    expect(error).toBeInstanceOf(StaleTokenError)
    return false
  }
}

describe('the marks', () => {
  test('let the same token act again, and a higher one replace it for good', () => {
    expect(admits(marksAfter(['write', 5n]), 'write', 5n)).toBe(true)
    expect(admits(marksAfter(['write', 5n], ['write', 6n]), 'write', 5n)).toBe(false)
    expect(admits(marksAfter(['write', 5n], ['write', 6n]), 'read', 5n)).toBe(false)
  })

  test('refuse the write of a holder that has been replaced by a reader', () => {
    expect(admits(marksAfter(['read', 5n], ['read', 6n]), 'write', 5n)).toBe(false)
    expect(admits(marksAfter(['read', 5n], ['read', 6n]), 'write', 6n)).toBe(true)
  })

  test('do not let readers who hold together refuse each other', () => {
    expect(admits(marksAfter(['write', 4n], ['read', 6n]), 'read', 5n)).toBe(true)
    expect(admits(marksAfter(['read', 5n], ['write', 7n]), 'read', 5n)).toBe(false)
  })

  test('are told with both tokens', () => {
    const refusal = (): void => checkToken('order', 3n, 'write', marksAfter(['read', 9n]))
    expect(refusal).toThrow(expect.objectContaining({ resource: 'order', offered: 3n, seen: 9n }))
  })

  test('never go back, and answer the same after an access as before it', () => {
    const accesses = fc.array(fc.tuple(fc.constantFrom<Access>('read', 'write'), fc.bigInt(0n, 9n)), { maxLength: 30 })
    fc.assert(
      fc.property(accesses, (all) => {
        let marks = NO_MARKS
        for (const [access, token] of all) {
          const next = raiseMarks(marks, token, access)
          expect(admits(next, access, token)).toBe(admits(marks, access, token))
          expect(next.seen).toBeGreaterThanOrEqual(marks.seen)
          expect(next.written).toBeGreaterThanOrEqual(marks.written)
          expect(next.seen).toBeGreaterThanOrEqual(next.written)
          marks = next
        }
      }),
    )
  })
})

describe('a guard refuses, with the reason,', () => {
  test('the write of a shared lease, and not its read', async () => {
    const { locks } = inMemory()
    const read = await locks.rw('doc').read.acquire()
    expect(resourceToken(read, 'read')).toEqual({ resource: 'doc', token: read.token })
    expect(() => resourceToken(read, 'write')).toThrow(
      /a write to 'doc' under a shared lease .* whose write is the later one/,
    )
  })

  test('a lease without a token', () => {
    expect(() => resourceToken({ key: 'doc', token: null, shared: false }, 'read')).toThrow(
      /without a token .* engine has no fencing/,
    )
  })

  test('what is no lease, and tokens that no backend could store', () => {
    expect(() => resourceToken({ key: 'doc', token: 5n } as LeaseLike, 'read')).toThrow(TypeError)
    expect(() => resourceToken(undefined as unknown as LeaseLike, 'write')).toThrow(
      'a guard takes a lease, or { key, token, shared }; got undefined',
    )
    expect(() => resourceToken({ key: 'doc', token: 5 as unknown as bigint, shared: false }, 'read')).toThrow('bigint')
    for (const token of [-1n, 2n ** 63n - 1n])
      expect(() => resourceToken({ key: 'doc', token, shared: false }, 'read')).toThrow(RangeError)
    expect(() => resourceToken({ key: 'doc', token: 1n, shared: false }, 'read', '')).toThrow(RangeError)
  })

  test('a resource that is none of several keys; each of the keys has its own token', async () => {
    const { locks } = inMemory()
    const both = await locks.all([locks.mutex('a'), locks.mutex('b')]).acquire()
    expect(resourceToken(both, 'write', 'b').token).toBe(both.tokens.get('b'))
    expect(() => resourceToken(both, 'write', 'c')).toThrow(/'c' is none of them/)
    expect(() => resourceToken(both, 'write')).toThrow(TypeError)
  })
})

/**
 * Eight workers of a mutex read, pause and write back one higher. A pause may outlast the lease: then another worker
 * holds meanwhile.
 */
function lostUpdates(seed: number, rule: 'none' | 'writes only' | 'both'): number {
  const random = chance(seed)
  let value = 0
  let acknowledged = 0
  let marks = NO_MARKS
  const paused: { readonly token: bigint; readonly read: number }[] = []
  const passes = (access: Access, token: bigint): boolean => {
    if (rule === 'none' || (rule === 'writes only' && access === 'read')) return true
    const admitted = token >= (access === 'write' ? marks.seen : marks.written)
    marks = raiseMarks(marks, token, access)
    return admitted
  }
  const write = ({ token, read }: (typeof paused)[number]): void => {
    if (!passes('write', token)) return
    value = read + 1
    acknowledged += 1
  }
  for (let token = 1n; token <= 40n; token += 1n) {
    if (passes('read', token)) paused.push({ token, read: value })
    // The lease expires during the pause of one in four, of eight at most at a time. The others wake at any moment, in
    // any order.
    if (random() < 0.75 || paused.length === 8) write(paused.pop() as (typeof paused)[number])
    while (paused.length > 0 && random() < 0.3)
      write(paused.splice(Math.floor(random() * paused.length), 1)[0] as (typeof paused)[number])
  }
  paused.forEach(write)
  return acknowledged - value
}

/** Mulberry32: a small generator of random numbers that a seed repeats. */
function chance(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

describe('of 200 random schedules of eight workers who read, pause and write back', () => {
  const losing = (rule: Parameters<typeof lostUpdates>[1]): number =>
    Array.from({ length: 200 }, (_, seed) => lostUpdates(seed, rule)).filter((lost) => lost > 0).length

  test('none loses an update with both marks', () => expect(losing('both')).toBe(0))
  test('some do if only writes are guarded', () => expect(losing('writes only')).toBeGreaterThan(0))
  test('most do without a guard', () => expect(losing('none')).toBeGreaterThan(losing('writes only')))
})
