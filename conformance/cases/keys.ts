/**
 * Keys are bytes. Every key of this zoo is a line of its own, on every engine: prefix ranges, collations, patterns,
 * hash tags and escaping have all broken this somewhere.
 */
import assert from 'node:assert/strict'
import type { Engine } from '../../src/core/engine.ts'
import type { Group } from '../case.ts'
import { isBusy, isHeld, statesOf } from '../standings.ts'

/** What follows a common beginning; the empty string is the beginning itself. */
const ZOO: readonly string[] = [
  ...['', 'a', 'A', 'a ', ' a', 'a  ', 'aa', 'ab', 'b', 'á', 'Á', 'a\u0301', 'ä', 'ß', 'ss', 'ı', 'i', 'I', 'İ'],
  ...[
    'a/b',
    'a/',
    '/a',
    'a//b',
    '../a',
    'a.b',
    'a:b',
    'a|b',
    'a+b',
    'a=b',
    'a&b',
    'a?b',
    'a#b',
    'a;b',
    'a,b',
    'a@b',
    'a-b',
    'a_b',
    'axb',
  ],
  ...[
    '{}x',
    '{x}',
    'x{',
    'a}b',
    'a{b}c',
    '{a}{b}',
    '{{a}}',
    '{',
    '}',
    '[a]',
    '[ab]',
    'a*',
    '*',
    'a?',
    'a%',
    '%',
    '_',
    '\\',
    'a\\b',
    'a\\',
  ],
  ...[
    "'",
    "a'b",
    '"',
    '`',
    "'; DROP TABLE entries; --",
    '$1',
    '$\u007ba}',
    '--',
    '/*',
    '\n',
    'a\nb',
    '\r\n',
    '\t',
    '\u0001',
    '\u007f',
    '\u0085',
    '\u00a0',
  ],
  ...[
    '0',
    '00',
    '1',
    '1.0',
    '1e0',
    'null',
    'true',
    'undefined',
    'NaN',
    '__proto__',
    'constructor',
    'toString',
    'hasOwnProperty',
  ],
  ...[
    '键',
    'ключ',
    'مفتاح',
    '🔑',
    '🔑🔑',
    '👩‍👩‍👧',
    '\ufeff',
    '\ufffd',
    '\uffff',
    '\ue000',
    '\u{10000}',
    '\u{10ffff}',
    '\u200b',
    '\u202e',
    'ﬁ',
    'fi',
  ],
  ...[':line', ':ent', ':seq', 'a:line', '~', '~~', '%00', '%61', '&amp;', '+', '%2B', '%20'],
]

async function listed(engine: Engine, prefix: string): Promise<readonly string[]> {
  const keys: string[] = []
  for await (const { key } of engine.list(prefix)) keys.push(key)
  return keys.toSorted()
}

export const keys: Group = {
  property: 'keys',
  atOnce: true,
  cases: [
    {
      name: 'keys that differ in any byte are different lines, and equal keys are one',
      async run(scene) {
        const [one, other] = await Promise.all([scene.engine(), scene.engine()])
        const base = scene.key('zoo')
        const zoo = ZOO.map((tail) => base + tail)
        assert.equal(new Set(zoo).size, zoo.length, 'the zoo has a key twice')
        const claims = zoo.map((key) => scene.claim(key))
        const standings = await one.enter(claims)
        for (const [index, standing] of standings.entries()) isHeld(standing, claims[index]?.ttlMs)
        const tries = await other.enter(zoo.map((key) => scene.claim(key, { wait: false })))
        for (const standing of tries) isBusy(standing)
        for (const { key, id } of claims) {
          const line = await other.inspect(key)
          assert.equal(line.key, key)
          assert.deepEqual(
            line.entries.map((entry) => entry.id),
            [id],
            `the line of ${JSON.stringify(key)}`,
          )
        }
        assert.deepEqual(await listed(other, base), zoo.toSorted())
        const [first, ...rest] = claims
        assert(first !== undefined)
        assert.deepEqual(await one.leave([first]), [true])
        for (const standing of await one.renew(rest)) isHeld(standing)
      },
    },
    {
      name: 'the shortest and the longest keys are keys like others',
      async run(scene) {
        const engine = await scene.engine()
        const base = scene.key('long')
        const fill = (unit: string): string =>
          base + unit.repeat(Math.floor((512 - Buffer.byteLength(base)) / Buffer.byteLength(unit)))
        const long = [
          fill('x'),
          fill('x').slice(0, -1),
          `${fill('x').slice(0, -1)}y`,
          fill('ü'),
          fill('🔑'),
          fill('%'),
          fill("'"),
          fill('{'),
        ]
        // One byte leaves no room for a prefix of our own: a server that others use may know it, and then it is busy.
        const short = scene.claim('\u0001', { wait: false })
        const [shortest, ...others] = await engine.enter([short, ...long.map((key) => scene.claim(key))])
        assert(shortest?.state === 'held' || shortest?.state === 'busy', `the shortest key is ${shortest?.state}`)
        for (const standing of others) isHeld(standing)
        for (const key of long) assert.deepEqual(await statesOf(engine, key), ['held'])
      },
    },
    {
      name: 'a listing has the lines whose key begins with the prefix, byte by byte, and no others',
      async run(scene) {
        const engine = await scene.engine()
        const base = scene.key('list:')
        const zoo = ZOO.map((tail) => base + tail)
        await engine.enter(zoo.map((key) => scene.claim(key)))
        for (const tail of [
          '',
          'a',
          'A',
          'a_',
          'a%',
          '%',
          '_',
          '*',
          'a?',
          '[',
          '{',
          '}',
          'a\\',
          "'",
          'á',
          '🔑',
          '\uffff',
          '\u{10ffff}',
          'no such',
        ]) {
          const prefix = base + tail
          const bytes = Buffer.from(prefix)
          const expected = zoo.filter((key) => Buffer.from(key).subarray(0, bytes.length).equals(bytes))
          assert.deepEqual(await listed(engine, prefix), expected.toSorted(), `the prefix ${JSON.stringify(tail)}`)
        }
        assert.deepEqual(await listed(engine, base.slice(1)), [], 'a part in the middle of keys is no prefix')
      },
    },
  ],
}
