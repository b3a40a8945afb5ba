/** The MySQL engine without a server: what is published is the SQL files, names, batches, URLs and errors. */

import { describe, expect, test } from 'vitest'
import { parseUrl } from '../../src/clients/mysql/connect.ts'
import { NotSent } from '../../src/clients/shared/driver-errors.ts'
import { codesOf, enterArguments, leaveArguments, renewArguments, replyOf } from '../../src/engines/mysql/codec.ts'
import { asEngineError } from '../../src/engines/mysql/errors.ts'
import { migration, migrationFor } from '../../src/engines/mysql/migration.ts'
import { checkNames, PROCEDURES, renamed, TABLES } from '../../src/engines/mysql/names.ts'
import {
  type CallWay,
  callParts,
  freeAllStatement,
  freeStatement,
  makeAllStatement,
  makeStatement,
  renewStatement,
  splitBatch,
  takeAllStatement,
  takeStatement,
} from '../../src/engines/mysql/plain-statements.ts'
import { expectFreshSources } from './sql-sources.ts'

const NAMES = { database: undefined, name: 'holdfast' }

describe('the SQL', () => {
  test('sources.ts is made from the SQL files as they are: run npm run build', async () => {
    await expectFreshSources('mysql')
  })

  test('what is sent to the server has no comments, and is otherwise as it is written', () => {
    expect(TABLES).toHaveLength(8)
    expect(PROCEDURES.length).toBeGreaterThan(15)
    for (const statement of [...TABLES, ...PROCEDURES])
      expect(statement).toMatch(/^(?:CREATE (?:TABLE IF NOT EXISTS|PROCEDURE)|INSERT INTO) `holdfast_/)
    for (const statement of [...TABLES, ...PROCEDURES]) expect(statement).not.toMatch(/--|\/\//)
  })

  test('everything of ours is under names that can be changed, and procedures under names that say which text they have', () => {
    const text = migration({ database: 'locks', name: 'app' })
      .replaceAll(/--.*/g, '')
      .replaceAll(/@holdfast_\w+|'holdfast\.'|holdfast_statement/g, '')
    expect(text).not.toMatch(/holdfast_/)
    expect(text).toContain('`locks`.`app_line`')
    expect(text).toMatch(/`locks`\.`app_enter_[0-9a-f]{8}`/)
    expect(renamed('`holdfast_line`', NAMES)).toBe('`holdfast_line`')
  })

  test('no name is longer than MySQL keeps them', () => {
    const names = [...migration({ database: 's', name: 'x'.repeat(42) }).matchAll(/`(x+_\w+)`/g)].map(
      ([, name]) => name ?? '',
    )
    expect(names.length).toBeGreaterThan(20)
    expect(Math.max(...names.map((name) => name.length))).toBeLessThanOrEqual(64)
  })
})

describe('names and URLs', () => {
  test.each(['', '1a', 'a b', 'a`b', "a'b", 'a.b', 'é', 'x'.repeat(43), undefined])('%s is no name', (name) => {
    expect(() => checkNames({ database: undefined, name: name as string })).toThrow(TypeError)
  })

  test('a URL says where, who and what', () => {
    expect(parseUrl('mysql://me:p%40ss:word@[::1]:3307/my%20db?name=app&tls=true')).toEqual({
      target: {
        host: '::1',
        port: 3307,
        user: 'me',
        password: 'p@ss:word',
        database: 'my db',
        ssl: { verifyIdentity: true },
      },
      options: { name: 'app' },
    })
    expect(parseUrl('mariadb:///db?socket=/run/mysqld/mysqld.sock')).toEqual({
      target: {
        host: '127.0.0.1',
        port: 3306,
        user: '',
        password: '',
        database: 'db',
        socketPath: '/run/mysqld/mysqld.sock',
      },
      options: {},
    })
    expect(migrationFor('mysql://?name=b')).toContain('`b_line`')
  })

  test.each(['mysql://h', 'mysql://h/', 'mysql:h/db', 'mysql://h/db?tls=maybe', 'mysql://u:secret@h/db?color=red'])(
    '%s is refused',
    (url) => {
      expect(() => parseUrl(url)).toThrow(TypeError)
      expect(() => parseUrl(url)).not.toThrow(/secret/)
    },
  )
})

describe('what is sent and what comes back', () => {
  const claim = (key: string, id: string, holder = 'h') => ({
    key,
    id,
    holder,
    weight: 1,
    limit: 2,
    ttlMs: 30_000,
    wait: true,
  })

  test('a batch is in the order of the keys’ bytes, and in its own order where keys are the same', () => {
    const { args, order } = leaveArguments([
      { key: 'b', id: '01' },
      { key: 'é', id: '02' },
      { key: 'a', id: '03' },
      { key: 'b', id: '04' },
    ])
    expect(args[0]).toBe(`'61 03;62 01;62 04;c3a9 02;'`)
    expect(order).toEqual([2, 0, 3, 1])
  })

  test('renewals of several lines are also sent whole, if they are alike', () => {
    const claims = ['a', 'b', 'c'].map((key) => claim(key, '0f'))
    expect(renewArguments(claims).args).toEqual([
      `'61 0f 30000000 0;62 0f 30000000 0;63 0f 30000000 0;'`,
      `'0x61,0x62,0x63'`,
      `'0x0f,0x0f,0x0f'`,
      '3',
    ])
    const empty = [`''`, `''`]
    expect(renewArguments([...claims, { ...claim('d', '0f'), ttlMs: 1 }]).args.slice(1, 3)).toEqual(empty)
    expect(renewArguments([...claims, claim('a', '0e')]).args.slice(1, 3)).toEqual(empty)
    expect(renewArguments(claims.slice(1)).args.slice(1, 3)).toEqual(empty)
    const outliving = renewArguments([...claims, { ...claim('d', '0f'), outlives: true }]).args
    expect(outliving[0]).toMatch(/;64 0f 30000000 1;'$/)
    expect(outliving.slice(1, 3)).toEqual(empty)
  })

  test('a batch is parted by how its lines can be asked for; lines that are named twice, and the few, go by the procedure', () => {
    const parts = (keys: string, wayOf: (key: string) => CallWay): string[] =>
      splitBatch(
        keys.split('').map((key) => ({ key })),
        ({ key }) => wayOf(key),
      ).map(({ way, items, at }) => `${way} ${items.map(({ key }) => key).join('')} ${at.join('')}`)
    const upperTake = (key: string): CallWay => (key < 'a' ? 'take' : 'make')
    expect(parts('A', upperTake)).toEqual(['take A 0'])
    expect(parts('AB', upperTake)).toEqual(['take AB 01'])
    expect(parts('aAbBcC', upperTake)).toEqual(['make abc 024', 'take ABC 135'])
    expect(parts('aAbc', upperTake)).toEqual(['make abc 023', 'call A 1'])
    expect(parts('aAbcaB', upperTake)).toEqual(['call aAbcaB 012345'])
    expect(parts('aa', upperTake)).toEqual(['call aa 01'])
  })

  test('the answers of parts are in the order of the batch; if one part fails, what became of it is not known', async () => {
    const parts = splitBatch(
      'aAbBcC'.split('').map((key) => ({ key })),
      ({ key }) => (key < 'a' ? 'take' : 'make'),
    )
    expect(await callParts(parts, async ({ items }) => items.map(({ key }) => key))).toEqual('aAbBcC'.split(''))
    const failing = callParts(parts, async ({ way }) => {
      if (way === 'take')
        throw asEngineError('enter', Object.assign(new Error('said'), { errno: 1213, sqlState: '40001' }))
      return ['', '', '']
    })
    await expect(failing).rejects.toMatchObject({ outcome: 'unknown', message: 'mysql: enter: said' })
  })

  test('statements for several lines name them in the order of their bytes', () => {
    const claims = ['é', 'b', 'a'].map((key) => claim(key, '0f'))
    for (const { sql } of [
      takeAllStatement(claims, '0c'),
      makeAllStatement(claims, '0c'),
      freeAllStatement(claims, 7),
    ]) {
      expect([...sql.matchAll(/x'(61|62|c3a9)'/g)].map(([, key]) => key).slice(-3)).toEqual(['61', '62', 'c3a9'])
    }
  })

  test('no text of a user is anything but hexadecimal in a statement', () => {
    const hostile = `x'); DROP TABLE users; -- "\\ é`
    const claims = [claim(hostile, '0f', hostile), claim('a', '0f', hostile)]
    const [first] = claims as [ReturnType<typeof claim>]
    const texts = [
      enterArguments(claims).args.join(' '),
      ...[takeAllStatement(claims, '0c'), makeAllStatement(claims, '0c'), freeAllStatement(claims, 7)].map(
        ({ sql }) => sql,
      ),
      ...[takeStatement(first, '0c'), makeStatement(first, '0c'), renewStatement(first), freeStatement(first)].map(
        ({ values }) => values.join(' '),
      ),
    ]
    for (const text of texts) expect(text).not.toContain('DROP')
    expect(takeAllStatement([claim('a', '0f', '')], '0c').sql).toContain(`holder = x''`)
  })

  test('an answer is one code for each, or rows of them', () => {
    expect(codesOf('leave', '1 0 l ', [], [2, 0, 1])).toEqual(['0', 'l', '1'])
    expect(codesOf('renew', 'rows', [[['8'], ['9']]], [1, 0])).toEqual(['9', '8'])
    expect(() => codesOf('leave', '1 0 ', [], [0])).toThrow(/leave: .* has 2 entries instead of 1/)
    expect(() => replyOf('enter', [])).toThrow(/enter: .* two texts/)
    const news = '6B6579 0F 17 2500;6B6579 0E  0;6B6579 0D ~ 0;'
    expect(replyOf('leave', [[['', news]]]).news).toEqual([
      { key: 'key', id: '0f', standing: { state: 'held', token: 17n, heldForMs: 2.5 } },
      { key: 'key', id: '0e', standing: { state: 'gone', why: 'evicted' } },
      { key: 'key', id: '0d' },
    ])
  })

  test.each([
    [1205, 'not-applied', true],
    [1213, 'not-applied', true],
    [1242, 'not-applied', true],
    [1290, 'not-applied', true],
    [1040, 'not-applied', true],
    [1045, 'not-applied', false],
    [1142, 'not-applied', false],
    [1665, 'not-applied', false],
    [1317, 'unknown', true],
    [1053, 'unknown', true],
    [1180, 'unknown', true],
  ])('an error %i: %s, worth another try: %s', (errno, outcome, transient) => {
    expect(asEngineError('enter', Object.assign(new Error('said'), { errno, sqlState: 'HY000' }))).toMatchObject({
      outcome,
      transient,
    })
  })

  test('an error of the client tells nothing of the server, unless nothing was sent', () => {
    const lost = Object.assign(new Error('lost'), { code: 'PROTOCOL_CONNECTION_LOST', errno: -104 })
    expect(asEngineError('enter', lost)).toMatchObject({ outcome: 'unknown', transient: true })
    expect(asEngineError('enter', new NotSent(lost))).toMatchObject({
      outcome: 'not-applied',
      transient: true,
      message: 'mysql: enter: not connected: lost',
    })
    expect(asEngineError('enter', Object.assign(new Error('no'), { code: 'HANDSHAKE_SSL_ERROR' }))).toMatchObject({
      outcome: 'unknown',
      transient: false,
    })
  })
})
