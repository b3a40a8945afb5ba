/** The PostgreSQL engine without a server: what is published is the SQL files, names, arrays, URLs and errors. */

import { describe, expect, test } from 'vitest'
import { splitUrl } from '../../src/clients/postgres/connect.ts'
import { NotSent } from '../../src/clients/shared/driver-errors.ts'
import { redactUrl } from '../../src/core/redact.ts'
import { leaveAnswersOf, newsOf, replyOf, standingsOf, texts } from '../../src/engines/postgres/codec.ts'
import { asEngineError } from '../../src/engines/postgres/errors.ts'
import { callOf } from '../../src/engines/postgres/function-calls.ts'
import { migration, migrationFor } from '../../src/engines/postgres/migration.ts'
import { checkNames, renamed, versionOf } from '../../src/engines/postgres/names.ts'
import { expectFreshSources } from './sql-sources.ts'

describe('the SQL', () => {
  test('sources.ts is made from the SQL files as they are: run npm run build', async () => {
    await expectFreshSources('postgres')
  })

  test('everything of ours is under names that can be changed', () => {
    const text = migration({ schema: 'locks', name: 'app' })
    // Comments speak of them by their usual names, and channels belong to the whole database.
    const code = text.replaceAll(/--.*/g, '').replaceAll("'holdfast_'", '')
    expect(code).not.toMatch(/public\.|holdfast_/)
    expect(text).toContain('"locks"."app_line"')
    expect(callOf('leave_one', ['text', 'integer'], { schema: 'locks', name: 'app' })).toMatch(
      /^SELECT "locks"\."app_leave_one_[0-9a-f]{8}"\(\$1::text, \$2::text::integer\)$/,
    )
    expect(renamed('public.holdfast_line', { schema: 'public', name: 'holdfast' })).toBe('public.holdfast_line')
  })

  test('each function has the version of its text in its name; those of lines, records, limits and pools have one each', () => {
    const text = migration({ schema: 'locks', name: 'app' })
    const functions = [...text.matchAll(/FUNCTION "locks"\."app_(\w+)_([0-9a-f]{8})"/g)]
    expect(functions).toHaveLength(text.match(/CREATE OR REPLACE FUNCTION/g)?.length ?? 0)
    const versions = new Map(functions.map(([, name = '', version = '']) => [name, version]))
    expect(new Set(versions.values()).size).toBe(4)
    for (const [one, other] of [
      ['enter', 'sweep'],
      ['put', 'begin'],
      ['hold', 'take_back'],
    ] as const)
      expect(versions.get(one)).toBe(versions.get(other))
    expect(new Set(['enter', 'put', 'take', 'hold'].map((name) => versions.get(name))).size).toBe(4)
  })

  test('another text is another version, but not another comment or another way to wrap it', () => {
    const body = 'BEGIN\n  RETURN 1; -- why\nEND'
    expect(versionOf([body])).toBe(versionOf(['BEGIN RETURN 1;\n  -- Another reason.\nEND']))
    expect(versionOf([body])).not.toBe(versionOf([body.replace('1', '2')]))
  })

  test('no function is longer to call than PostgreSQL keeps names', () => {
    const names = [...migration({ schema: 's', name: 'x'.repeat(41) }).matchAll(/"(x+_\w+)"/g)].map(
      ([, name]) => name ?? '',
    )
    expect(names.length).toBeGreaterThan(20)
    expect(Math.max(...names.map((name) => name.length))).toBeLessThanOrEqual(63)
  })
})

describe('names and URLs', () => {
  test.each(['', '1a', 'a b', 'a"b', "a'b", 'a.b', 'é', 'x'.repeat(49), undefined])('%s is no name', (name) => {
    expect(() => checkNames({ schema: 'public', name: name as string })).toThrow(TypeError)
  })

  test('a URL is given to pg without what is ours', () => {
    expect(splitUrl('postgres://u:p@h/db?schema=a&sslmode=require&name=b')).toEqual({
      url: 'postgres://u:p@h/db?sslmode=require',
      options: { schema: 'a', name: 'b' },
    })
    expect(splitUrl('postgres://h/db')).toEqual({ url: 'postgres://h/db', options: {} })
    expect(migrationFor('postgres://?schema=a&name=b')).toContain('"a"."b_line"')
  })

  test('the URL to listen on is not printed: it may have a password', () => {
    expect(redactUrl('postgres://u:secret@h/db?listenUrl=postgres%3A%2F%2Fu%3Asecret%40h')).toBe(
      'postgres://u:***@h/db?listenUrl=***',
    )
  })
})

describe('what is sent and what comes back', () => {
  test('an array of any texts is spelt so that each is itself', () => {
    expect(texts(['a', 'NULL', '', 'a,b', '"', '\\', '{}', ' ', '\n'])).toBe(
      '{"a","NULL","","a,b","\\"","\\\\","{}"," ","\n"}',
    )
  })

  test('a message that cannot be read is ignored; an answer that cannot be read is an error that names the call', () => {
    for (const payload of ['x', '{}', '[]', '["a"]', '["a","b",3,1]', '["a","b","x",1]'])
      expect(newsOf(payload)).toBeUndefined()
    expect(newsOf('["a","b","7",5.5]')).toEqual({
      key: 'a',
      id: 'b',
      standing: { state: 'held', token: 7n, heldForMs: 5.5 },
    })
    expect(newsOf('["a","b"]')).toEqual({ key: 'a', id: 'b' })
    expect(newsOf('["a","b",null]')).toEqual({ key: 'a', id: 'b', standing: { state: 'gone', why: 'evicted' } })
    expect(newsOf('["a","b",null,null]')).toEqual({ key: 'a', id: 'b', standing: { state: 'gone', why: 'evicted' } })
    const ignore = (): void => undefined
    expect(() => replyOf('take', 7)).toThrow('postgres: take: the answer is a number instead of a text')
    expect(() => replyOf('take', '1\n{')).toThrow('take: the answer is not a JSON array')
    expect(() => standingsOf('enter', '7 8', [], ignore)).toThrow('enter: the answer has 2 entries instead of 0')
    expect(() => standingsOf('renew', 'z', [{ key: 'a', id: 'b', ttlMs: 1 }], ignore)).toThrow(
      'renew: the answer has an',
    )
    expect(() => leaveAnswersOf('leave', '3', 1)).toThrow('leave: the answer has an unknown code: "3"')
  })

  test.each([
    ['55P03', 'not-applied', true],
    ['40001', 'not-applied', true],
    ['57014', 'not-applied', true],
    ['25006', 'not-applied', true],
    ['53100', 'not-applied', true],
    ['42501', 'not-applied', false],
    ['28P01', 'not-applied', false],
    ['57P01', 'unknown', true],
    ['08006', 'unknown', true],
    ['XX000', 'unknown', true],
    ['ECONNRESET', 'unknown', true],
    ['EPIPE', 'unknown', true],
    ['SELF_SIGNED_CERT_IN_CHAIN', 'unknown', false],
  ])('an error %s: %s, worth another try: %s', (code, outcome, transient) => {
    expect(asEngineError('enter', Object.assign(new Error('said'), { code }))).toMatchObject({ outcome, transient })
  })

  test('what was never sent was surely not applied', () => {
    expect(
      asEngineError('enter', new NotSent(Object.assign(new Error('refused'), { code: 'ECONNREFUSED' }))),
    ).toMatchObject({
      outcome: 'not-applied',
      transient: true,
      message: 'postgres: enter: not connected: refused',
    })
  })
})
