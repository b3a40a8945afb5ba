/** Answers that are none of our scripts' are refused, and never taken for a grant. */
import { expect, test } from 'vitest'
import { RedisNames } from '../../src/clients/redis/names.ts'
import type { Claim } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import { leaveAnswersOf, readMessages, StandingReader } from '../../src/engines/redis/codec.ts'

const claim: Claim = { key: 'k', id: 'a', holder: 'h', weight: 1, limit: 1, ttlMs: 1000, wait: true }
const names = new RedisNames({ cluster: false, keyPrefix: '' }, 'lock:')

const reader = new StandingReader(names, {
  waiting: () => undefined,
  notWaiting: () => false,
  grantUnheard: () => undefined,
  endless: () => undefined,
})

function refusal(read: () => unknown): unknown {
  try {
    return { read: read() }
  } catch (error) {
    return error
  }
}

const STRANGE = [
  null,
  undefined,
  0,
  '',
  '0',
  -1,
  0.5,
  'OK',
  true,
  [],
  [null],
  ['0', 'h'],
  [null, 'H'],
  ['', 'H', '0'],
  {},
]

test.each(STRANGE.map((reply) => [reply]))('%j is no grant', (reply) => {
  for (const read of [() => reader.entered(reply, [claim]), () => reader.renewed(reply, [claim])]) {
    const error = refusal(read)
    expect(error).toBeInstanceOf(EngineError)
    expect(error).toMatchObject({ outcome: 'unknown', transient: false })
  }
})

test.each([[null], [undefined], [['1']], [true]])('%j does not say whether four entries have left', (reply) => {
  expect(refusal(() => leaveAnswersOf(reply, 4))).toBeInstanceOf(EngineError)
})

test('a grant is one', () => {
  expect(reader.entered(7, [claim])).toEqual([{ state: 'held', token: 7n, heldForMs: 1000 }])
  expect(reader.renewed(['H', '7'], [claim])).toEqual([{ state: 'held', token: 7n, heldForMs: 1000 }])
})

test('messages say which entry holds, which was evicted, which should look again, and which line has changed', () => {
  const heard: unknown[] = []
  const listener = { news: (news: unknown) => heard.push(news), changed: (key: string) => heard.push(key) }
  readMessages('a 7 900 lock:k\0b - 0 lock:k\0c ? 0 lock:k\0! - 0 lock:k\0d + 0 lock:k\0', names, listener)
  expect(heard).toEqual([
    { key: 'k', id: 'a', standing: { state: 'held', token: 7n, heldForMs: 900 } },
    { key: 'k', id: 'b', standing: { state: 'gone', why: 'evicted' } },
    { key: 'k', id: 'c' },
    'k',
  ])
})
