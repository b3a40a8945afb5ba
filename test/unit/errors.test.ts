/** Errors: their codes, and `instanceof` when a program has two copies of the package. */
import { describe, expect, test } from 'vitest'
import {
  AcquireTimeoutError,
  ClosedError,
  DeadlockError,
  EngineError,
  HoldfastError,
  LeaseLostError,
  LineFullError,
  StaleTokenError,
  UnsupportedError,
} from '../../src/core/errors.ts'
import { lineEntry } from './scripted-engine.ts'

const examples = [
  [AcquireTimeoutError, new AcquireTimeoutError('k', 1000, 2, []), 'ACQUIRE_TIMEOUT'],
  [LeaseLostError, new LeaseLostError('k', 7n, 'expired'), 'LEASE_LOST'],
  [StaleTokenError, new StaleTokenError('r', 1n, 2n), 'STALE_TOKEN'],
  [EngineError, new EngineError('redis', 'gone', { outcome: 'unknown' }), 'ENGINE'],
  [DeadlockError, new DeadlockError('k', 'circle'), 'DEADLOCK'],
  [LineFullError, new LineFullError('k', 10), 'LINE_FULL'],
  [UnsupportedError, new UnsupportedError('x', 'no'), 'UNSUPPORTED'],
] as const

describe('every error', () => {
  test('has its code, its name and its class, and is a HoldfastError', () => {
    for (const [Class, error, code] of examples) {
      expect(error).toBeInstanceOf(Class)
      expect(error).toBeInstanceOf(HoldfastError)
      expect(error).toBeInstanceOf(Error)
      expect(error).toMatchObject({ code, name: Class.name })
    }
  })

  test('is an instance of no other class', () => {
    for (const [Class] of examples) {
      for (const [Other, error] of examples) expect(error instanceof Class).toBe(Class === Other)
    }
  })

  test('shows no more than its own fields: the brand is not seen', () => {
    expect(Object.keys(new LineFullError('k', 10)).toSorted()).toEqual(['bound', 'code', 'key', 'name'])
    expect(JSON.parse(JSON.stringify(new LineFullError('k', 10)))).toEqual({
      name: 'LineFullError',
      code: 'LINE_FULL',
      message: "the line of 'k' is full: 10 entries",
      key: 'k',
      bound: 10,
    })
  })
})

test('locks that are closed: a code of its own, and an EngineError for all who do not care', async () => {
  const error = new ClosedError('redis', 'the locks were closed', 'not-applied')
  expect(error).toBeInstanceOf(ClosedError)
  expect(error).toBeInstanceOf(EngineError)
  expect(error).toBeInstanceOf(HoldfastError)
  expect(error).toMatchObject({ code: 'CLOSED', name: 'ClosedError', transient: false, outcome: 'not-applied' })
  expect(new EngineError('redis', 'gone', { outcome: 'unknown' })).not.toBeInstanceOf(ClosedError)
})

describe('instanceof', () => {
  test('survives two installed copies of the package', async () => {
    const copy = '../../src/core/errors.ts?copy'
    const other = (await import(/* @vite-ignore */ copy)) as typeof import('../../src/core/errors.ts')
    expect(other.LeaseLostError).not.toBe(LeaseLostError)
    const theirs = new other.LeaseLostError('k', null, 'evicted')
    expect(theirs).toBeInstanceOf(LeaseLostError)
    expect(theirs).toBeInstanceOf(HoldfastError)
    expect(theirs).not.toBeInstanceOf(EngineError)
    expect(new EngineError('redis', 'gone', { outcome: 'unknown' })).toBeInstanceOf(other.EngineError)
    expect(new EngineError('redis', 'gone', { outcome: 'unknown' })).toBeInstanceOf(other.HoldfastError)
  })

  test('is not fooled by what only looks alike', () => {
    const lookalikes = [
      null,
      undefined,
      'LEASE_LOST',
      {},
      new Error('x'),
      Object.assign(new Error('x'), { code: 'LEASE_LOST' }),
      () => {},
    ]
    for (const value of lookalikes) {
      expect(value instanceof HoldfastError).toBe(false)
      expect(value instanceof LeaseLostError).toBe(false)
    }
  })
})

describe('as JSON', () => {
  test('an error has what a log needs: no stack, and of its cause the message', () => {
    const cause = new Error('ECONNREFUSED')
    expect(JSON.parse(JSON.stringify(new LeaseLostError('k', 7n, 'deadline', { cause })))).toEqual({
      name: 'LeaseLostError',
      code: 'LEASE_LOST',
      message: "lost 'k' (token 7): no renewal was confirmed before its deadline",
      key: 'k',
      token: '7',
      why: 'deadline',
      cause: 'ECONNREFUSED',
    })
  })

  test('a cause that is no error, and fields that a program has added, do not make it throw', () => {
    const circle: { self?: unknown } = {}
    circle.self = circle
    const error = Object.assign(new LeaseLostError('k', null, 'evicted', { cause: 5n }), { circle, at: new Date(0) })
    expect(JSON.parse(JSON.stringify(error))).toMatchObject({
      token: null,
      cause: '5',
      circle: { self: '[circular]' },
      at: '1970-01-01T00:00:00.000Z',
    })
  })
})

describe('messages', () => {
  test('say who was in the way of a wait that ran out', () => {
    const holders = [
      lineEntry({ holder: 'api-7', heldMs: 3000 }),
      lineEntry({ holder: 'vm:9 sh', heldMs: null, ageMs: null }),
    ]
    expect(new AcquireTimeoutError('order:42', 5000, 3, holders).message).toBe(
      "did not get 'order:42' within 5s, 3 ahead in line; held by api-7 for 3s, vm pid 9 (sh)",
    )
    expect(new AcquireTimeoutError('order:42', 250, null, []).message).toBe("did not get 'order:42' within 250ms")
  })

  test('say why a lease was lost', () => {
    expect(new LeaseLostError('k', 7n, 'deadline').message).toBe(
      "lost 'k' (token 7): no renewal was confirmed before its deadline",
    )
    expect(new LeaseLostError('k', null, 'evicted').message).toBe("lost 'k': it was evicted")
    expect(new LeaseLostError('k', 7n, 'expired').message, 'true of a server that came back empty, too').toBe(
      "lost 'k' (token 7): the engine does not have it any more: it has expired there, or was forgotten",
    )
  })

  test('keep what the client said as the cause, and whether trying again can help', () => {
    const cause = new Error('ECONNREFUSED')
    const error = new EngineError('redis', 'cannot connect', { outcome: 'not-applied', cause })
    expect(error).toMatchObject({ message: 'redis: cannot connect', cause, outcome: 'not-applied', transient: true })
    expect('cause' in new EngineError('redis', 'x', { outcome: 'unknown' })).toBe(false)
    expect(new EngineError('redis', 'x', { outcome: 'unknown', transient: false }).transient).toBe(false)
  })
})
