/** Keys: what may be one, and their one order. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { checkKey, compareKeys } from '../../src/core/keys.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { createLocks } from '../../src/locks.ts'

test('a holder that a server would refuse for ever is refused where the locks are created', () => {
  const named = (holder: unknown) => () => createLocks(memory(), { holder: holder as string })
  for (const holder of ['', 'web-1', '🔒'.repeat(128)]) expect(named(holder)).not.toThrow()
  expect(named('web\0one')).toThrow(new RangeError('holder must be well-formed Unicode without NUL: "web\\u0000one"'))
  expect(named('\ud800')).toThrow(RangeError)
  expect(named('x'.repeat(513))).toThrow(new RangeError('holder must have at most 512 bytes of UTF-8; got 513'))
  expect(named(7)).toThrow(new TypeError('holder must be a string; got number'))
})

describe('a key', () => {
  test('is 1 to 512 bytes of well-formed UTF-8 without NUL', () => {
    for (const key of [
      'a',
      ' ',
      'a b',
      'á',
      '🔒',
      'a/b',
      'a}b',
      '{}x',
      '\n',
      'x'.repeat(512),
      'é'.repeat(256),
      '🔒'.repeat(128),
    ]) {
      expect(() => checkKey(key), key).not.toThrow()
    }
  })

  test('that is none is refused, with what was expected and what came', () => {
    const refused: [unknown, unknown][] = [
      ['', new RangeError('a key must not be empty')],
      ['a\0b', new RangeError('a key must not contain NUL: "a\\u0000b"')],
      ['\ud800', new RangeError('a key must be well-formed Unicode: "\\ud800"')],
      ['x'.repeat(513), new RangeError('a key must have at most 512 bytes of UTF-8; got 513')],
      ['é'.repeat(257), new RangeError('a key must have at most 512 bytes of UTF-8; got 514')],
      [7, new TypeError('a key must be a string; got number')],
      [undefined, new TypeError('a key must be a string; got undefined')],
      [Symbol('a'), new TypeError('a key must be a string; got symbol')],
    ]
    for (const [key, error] of refused) expect(() => checkKey(key as string)).toThrow(error as Error)
  })

  test('is refused where the lock is created, not where it is used', () => {
    const locks = createLocks(memory())
    expect(() => locks.mutex('')).toThrow(RangeError)
    expect(() => locks.rw('')).toThrow(RangeError)
    expect(() => locks.semaphore('', 2)).toThrow(RangeError)
    expect(() => locks.election('')).toThrow(RangeError)
  })
})

describe('the order of keys', () => {
  test('is that of their bytes', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.string({ unit: 'binary' }), (a, b) => {
        expect(Math.sign(compareKeys(a, b))).toBe(Math.sign(Buffer.compare(Buffer.from(a), Buffer.from(b))))
      }),
    )
  })

  test('differs from that of JavaScript beyond U+FFFF', () => {
    const [fullWidth, lock] = ['\uff5e', '🔒']
    expect(lock < fullWidth).toBe(true)
    expect(compareKeys(lock, fullWidth)).toBeGreaterThan(0)
  })
})
