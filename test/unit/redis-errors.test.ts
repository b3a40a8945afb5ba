/** What an error means: whether anything can have been applied, and whether time mends it. As each client spells it. */
import { inspect } from 'node:util'
import { expect, test } from 'vitest'
import { asEngineError, codeOf } from '../../src/clients/redis/errors.ts'
import { NotSent } from '../../src/clients/shared/driver-errors.ts'
import type { EngineError } from '../../src/core/errors.ts'
import { EnterArguments, renewArguments } from '../../src/engines/redis/codec.ts'

const offline = (trouble: Error): EngineError => asEngineError('enter', new NotSent(trouble))

const glide = (text: string): string => `An error was signalled by the server: - ${text}`

test.each([
  ['NOSCRIPT No matching script.', 'NOSCRIPT', 'not-applied', true],
  [glide('NoScriptError: No matching script.'), 'NOSCRIPT', 'not-applied', true],
  // As version 1 of valkey-glide says it.
  ['An error was signalled by the server - NoScriptError: No matching script.', 'NOSCRIPT', 'not-applied', true],
  ["READONLY You can't write against a read only replica.", 'READONLY', 'not-applied', true],
  [glide('ReadOnly: You cannot'), 'READONLY', 'not-applied', true],
  ['LOADING Redis is loading the dataset in memory', 'LOADING', 'not-applied', true],
  ['MOVED 3999 127.0.0.1:6381', 'MOVED', 'not-applied', true],
  ['CLUSTERDOWN The cluster is down', 'CLUSTERDOWN', 'not-applied', true],
  [
    // That was the last of several tries: what became of those before it is not known.
    'Too many Cluster redirections. Last error: ReplyError: CLUSTERDOWN The cluster is down',
    'CLUSTERDOWN',
    'unknown',
    true,
  ],
  ["OOM command not allowed when used memory > 'maxmemory'.", 'OOM', 'not-applied', true],
  ['OOM: command not allowed', 'OOM', 'not-applied', true],
  ['WRONGPASS invalid username-password pair', 'WRONGPASS', 'not-applied', false],
  ['NOAUTH Authentication required.', 'NOAUTH', 'not-applied', false],
  ['NOPERM this user has no permissions', 'NOPERM', 'unknown', false],
  [glide('PermissionDenied: no'), 'NOPERM', 'unknown', false],
  ['ERR user_script:1: attempt to index a nil value', 'ERR', 'unknown', false],
  ['WRONGTYPE Operation against a key', 'WRONGTYPE', 'unknown', false],
  ['Connection is closed.', undefined, 'unknown', true],
  ['Socket closed unexpectedly', undefined, 'unknown', true],
  ['read ECONNRESET', undefined, 'unknown', true],
  ['timed out', undefined, 'unknown', true],
])('%s', (message, code, outcome, transient) => {
  const error = new Error(message)
  expect(codeOf(error)).toBe(code)
  expect(asEngineError('enter', error)).toMatchObject({ outcome, transient, cause: error })
  expect(offline(error)).toMatchObject({ outcome: 'not-applied', transient })
})

test('what a client hangs on its errors does not come along: it may be a password', () => {
  const command = { name: 'hello', args: ['3', 'AUTH', 'default', 'open sesame'] }
  const refused = Object.assign(new Error('WRONGPASS invalid username-password pair'), { command })
  const lost = new Error('the connection ended before the answer came', { cause: refused })
  const noNode = Object.assign(new Error('Failed to refresh slots cache.'), { lastNodeError: refused })
  const several = new AggregateError([refused], 'all have failed')
  for (const error of [refused, lost, noNode, several]) {
    for (const ours of [asEngineError('enter', error), offline(error)]) {
      const printed = inspect(ours, { depth: Number.POSITIVE_INFINITY, showHidden: true })
      expect(printed).not.toContain('open sesame')
      expect(printed).toContain('WRONGPASS')
    }
    expect(inspect(error, { depth: 5 })).toContain('open sesame')
  }
})

test('a missing password is said in words of the user, not of the protocol', () => {
  const hello =
    'NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used'
  for (const error of [asEngineError('enter', new Error(hello)), offline(new Error(hello))]) {
    expect(error.message).toMatch(/the server asks for a password, and was given none \(NOAUTH\): /)
    expect(error.message).not.toContain('HELLO')
  }
})

test('what Node says of a connection that failed does', () => {
  const error = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED', port: 1 })
  expect(offline(error).cause).toMatchObject({ code: 'ECONNREFUSED', port: 1, stack: error.stack })
})

test('a certificate that does not convince is no matter of time', () => {
  const error = Object.assign(new Error('self-signed certificate in certificate chain'), {
    code: 'SELF_SIGNED_CERT_IN_CHAIN',
  })
  expect(offline(error)).toMatchObject({ transient: false })
})

const claim = { key: 'k', id: 'a', holder: 'h', weight: 1, limit: 1, ttlMs: 1000, wait: true }

test('claims of one template say it once, and claims of several say which is which', () => {
  expect(new EnterArguments('c').of([claim, { ...claim, id: 'b' }])).toEqual(['', '1000', 'w a 1 1 1000 c h'])
  const tries = { ...claim, id: 'b', wait: false }
  expect(new EnterArguments('c').of([claim, tries, claim])).toEqual([
    '!"!',
    '1000',
    'w a 1 1 1000 c h',
    '1000',
    't a 1 1 1000 c h',
  ])
  expect(renewArguments([claim, { ...claim, ttlMs: 5 }])).toEqual(['!"', '1000', '5'])
})

test('more templates than can be numbered are too many for one call', () => {
  const claims = Array.from({ length: 95 }, (_, index) => ({ ...claim, ttlMs: index + 1 }))
  expect(new EnterArguments('c').of(claims)).toBeUndefined()
  expect(new EnterArguments('c').of(claims.slice(1))).toHaveLength(1 + 2 * 94)
})
