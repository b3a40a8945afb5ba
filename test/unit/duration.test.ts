/** Durations: what is understood, what is refused and how, and how they are written. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Duration, formatDuration, parseDuration } from '../../src/core/duration.ts'

describe('a duration', () => {
  test('is a number of milliseconds, or a number with its unit', () => {
    const understood: [Duration, number][] = [
      [0, 0],
      [1500, 1500],
      [0.5, 0.5],
      ['0ms', 0],
      ['250ms', 250],
      ['30s', 30_000],
      ['0.5s', 500],
      ['5m', 300_000],
      ['1h', 3_600_000],
      ['1.5h', 5_400_000],
    ]
    for (const [duration, ms] of understood) expect(parseDuration(duration, 'ttl')).toBe(ms)
  })

  test('that is no duration is a TypeError that says what was expected and what came', () => {
    for (const wrong of ['30', '30 s', '-5s', '1e3s', 's', '', '5d', 'Infinitys', '30S', null, undefined, {}, 5n]) {
      const error = caught(() => parseDuration(wrong as Duration, 'ttl'))
      expect(error).toBeInstanceOf(TypeError)
      expect(error).toMatchObject({
        message: expect.stringMatching(/^ttl must be milliseconds or a string like '250ms', '30s', '5m' or '1h'; got /),
      })
    }
    expect(caught(() => parseDuration('5d' as Duration, 'wait'))).toMatchObject({
      message: expect.stringMatching(/^wait .*got '5d'$/),
    })
  })

  test('that is a number out of range is a RangeError that says so', () => {
    for (const wrong of [-1, Number.NaN, Number.POSITIVE_INFINITY]) {
      expect(caught(() => parseDuration(wrong, 'wait'))).toEqual(
        new RangeError(`wait must be a finite number of milliseconds, 0 or more; got ${wrong}`),
      )
    }
  })
})

describe('written', () => {
  test('in the largest unit that fits, with at most one decimal', () => {
    const written: [number, string][] = [
      [0, '0ms'],
      [250, '250ms'],
      [1000, '1s'],
      [1500, '1.5s'],
      [90_000, '1.5m'],
      [3_600_000, '1h'],
      [5_400_000, '1.5h'],
    ]
    for (const [ms, text] of written) expect(formatDuration(ms)).toBe(text)
  })

  test('rounding carries into the next unit', () => {
    expect([999.6, 59_960, 3_599_000].map(formatDuration)).toEqual(['1s', '1m', '1h'])
  })

  test('and read again, it is the same to within its last digit', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 100 * 3_600_000 }), (ms) => {
        const again = parseDuration(formatDuration(ms) as Duration, 'ttl')
        expect(Math.abs(again - ms)).toBeLessThanOrEqual(Math.max(0.5, ms * 0.05))
      }),
    )
  })
})

function caught(act: () => unknown): unknown {
  try {
    act()
  } catch (error) {
    return error
  }
  throw new Error('nothing was thrown')
}
