/** What a line on ZooKeeper is, from names alone; what a waiter watches; and how long a session surely lives. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { SessionLife } from '../../src/clients/zookeeper/session-life.ts'
import { chrootOf, parseZooKeeperUrl } from '../../src/clients/zookeeper/url.ts'
import { UNLIMITED } from '../../src/core/engine.ts'
import { EngineError } from '../../src/core/errors.ts'
import { heldCount } from '../../src/core/line.ts'
import {
  blockersOf,
  readEntryData,
  toZooKeeperLine,
  waitsForTries,
  writeData,
} from '../../src/engines/zookeeper/codec.ts'
import { diskSpaceFinding } from '../../src/engines/zookeeper/diagnose.ts'
import { isBeyondNumbers, numberIn, ZooKeeperNames } from '../../src/engines/zookeeper/names.ts'

const names = new ZooKeeperNames('/holdfast')
const weighted = fc.oneof(
  fc.constantFrom({ weight: 1, limit: 1 }, { weight: 1, limit: UNLIMITED }),
  fc
    .integer({ min: 1, max: 5 })
    .chain((limit) => fc.record({ weight: fc.integer({ min: 1, max: limit }), limit: fc.constant(limit) })),
)

/** Children as the server names them, from this number on. */
function children(entries: readonly { weight: number; limit: number; wait?: boolean }[], from: number): string[] {
  return entries.map((entry, index) => {
    const claim = { key: 'k', id: `id${index}`, wait: true, ...entry }
    const shown = String(from + index).padStart(10, '0')
    return `${names.newEntry(claim).slice('/holdfast/k/'.length)}${shown}`
  })
}

describe('a line', () => {
  test('holds what the rule says, in the order of the numbers', () => {
    fc.assert(
      fc.property(
        fc.array(weighted, { maxLength: 12 }),
        fc.constantFrom(0, 5, 1_000_000),
        fc.infiniteStream(fc.nat()),
        (entries, from, chance) => {
          const shuffled = children(entries, from)
            .map((name) => ({ name, at: chance.next().value as number }))
            .sort((a, b) => a.at - b.at)
          const view = toZooKeeperLine(
            names.readLine(
              'k',
              shuffled.map(({ name }) => name),
            ),
          )
          expect(view.entries.map(({ id }) => id)).toEqual(entries.map((_, index) => `id${index}`))
          expect(view.held).toBe(heldCount(entries))
        },
      ),
    )
  })

  test('numbers near the last one, and below zero, do not tell the order', () => {
    expect([0, 2_000_000_000].some((number) => isBeyondNumbers({ number }))).toBe(false)
    expect([2 ** 31 - 1, 2 ** 31 - 60_000, -(2 ** 31), -1].every((number) => isBeyondNumbers({ number }))).toBe(true)
  })

  test('a try that does not hold counts until it has gone; what waits for nothing else is known', () => {
    const all = [
      { weight: 2, limit: 3 },
      { weight: 2, limit: 3, wait: false },
      { weight: 1, limit: 3, wait: false },
      { weight: 2, limit: 3, wait: false },
    ]
    const view = toZooKeeperLine(names.readLine('k', children(all, 0)))
    expect(view.entries).toHaveLength(4)
    expect(view.held).toBe(1)
    expect(view.entries.map(({ id }) => waitsForTries(view, id))).toEqual([false, false, true, false])
  })

  test('of two entries with one id the first counts, and one that was evicted does not count at all', () => {
    const line = [
      'hf1-b-evicted',
      'hf1-b-1-1__lock__0000000003',
      'hf1-a-1-1__lock__0000000002',
      'hf1-a-1-1__lock__0000000007',
    ]
    const view = toZooKeeperLine(names.readLine('k', line))
    expect(view.entries.map(({ name }) => name)).toEqual(['hf1-a-1-1__lock__0000000002'])
    expect(view.duplicates.map(({ number }) => number)).toEqual([3, 7])
  })

  test('entries of Kazoo are understood; anything else is named in an error', () => {
    const id = 'ab'.repeat(16)
    const { entries } = names.readLine('k', [`${id}__rlock__0000000001`, `${id}__lock__0000000000`])
    expect(entries.map(({ weight, limit }) => [weight, limit])).toEqual([
      [1, 1],
      [1, UNLIMITED],
    ])
    expect(() => names.readLine('a/b', ['other'])).toThrow("the node '/holdfast/a%2Fb/other' in ZooKeeper is no entry")
    expect(() => names.readLine('k', ['hf2-x-1-1__lock__0000000000'])).toThrow('newer Holdfast (format 2)')
    expect(() => names.readLine('k', ['other'])).toThrow(EngineError)
  })

  test('keys come back from their names, and no two have the same', () => {
    const key = fc
      .string({ unit: 'binary', minLength: 1, maxLength: 40 })
      .filter((text) => text.isWellFormed() && !text.includes('\0'))
    fc.assert(
      fc.property(key, key, (one, other) => {
        const path = names.line(one)
        expect(names.keyOf(path.slice('/holdfast/'.length))).toBe(one)
        expect(path.slice('/holdfast/'.length)).not.toContain('/')
        expect(names.line(other) === path).toBe(one === other)
        expect(path).toMatch(/^[^\p{Cc}\ue000-\uf8ff\ufff0-\uffff\u{10000}-\u{10ffff}]*$/u)
      }),
    )
    expect([names.line('.'), names.line('..')]).toEqual(['/holdfast/%2E', '/holdfast/%2E%2E'])
  })
})

describe('a line that Curator uses, too', () => {
  const curator = new ZooKeeperNames('/holdfast', 'curator')
  const guid = '3a704bf7-2d90-4983-8a2c-fca764b35fef'

  test('has the entries of both in the order of their numbers, each with an id of its own', () => {
    const claim = { key: 'k', id: 'ab12', weight: 1, limit: 1, wait: true }
    const ours = `${curator.newEntry(claim).slice('/holdfast/k/'.length)}0000000007`
    expect(ours).toBe('hf1-ab12-1-1-lock-0000000007')
    expect(numberIn(ours)).toBe(7)
    const { entries } = curator.readLine('k', [
      ours,
      'lock-0000000009',
      `_c_${guid}-lock-0000000003`,
      'lock--2147483648',
    ])
    expect(entries.map(({ number }) => number)).toEqual([-2_147_483_648, 3, 7, 9])
    expect(entries.filter(({ weight, limit, tries }) => weight === 1 && limit === 1 && !tries)).toHaveLength(4)
    expect(new Set(entries.map(({ id }) => id)).size).toBe(4)
    for (const { id } of entries) expect(curator.readLine('k', [`hf1-${id}-evicted`]).evicted).toEqual(new Set([id]))
  })

  test('is refused where Curator and Holdfast do not see each other, and so is Kazoo beside Curator', () => {
    const kazoo = `${'0'.repeat(32)}__lock__0000000001`
    expect(() => names.readLine('k', [`_c_${guid}-lock-0000000003`])).toThrow("layout: 'curator'")
    expect(() => curator.readLine('k', [kazoo])).toThrow('Kazoo')
  })

  test('is understood by a Holdfast of either layout, as far as it is ours', () => {
    for (const name of ['hf1-ab12-1-1-lock-0000000007', 'hf1-ab12-1-1__lock__0000000007'])
      for (const some of [names, curator]) expect(some.readLine('k', [name]).entries).toHaveLength(1)
  })
})

describe('what a waiter watches', () => {
  test('as long as all of it is there, the waiter waits, whatever else goes; and when it holds, some of it has gone', () => {
    fc.assert(
      fc.property(fc.array(weighted, { minLength: 1, maxLength: 10 }), weighted, (ahead, waiter) => {
        const line = [...ahead, waiter]
        fc.pre(heldCount(line) < line.length)
        const blockers = blockersOf(ahead, waiter)
        const left = [...ahead.filter((entry) => blockers.includes(entry)), waiter]
        expect(heldCount(left)).toBeLessThan(left.length)
      }),
    )
  })

  test('for a mutex it is the entry right before it, for a reader the last writer', () => {
    const [mutex, reader] = [
      { weight: 1, limit: 1 },
      { weight: 1, limit: UNLIMITED },
    ]
    const ahead = [{ ...mutex }, { ...mutex }, { ...reader }, { ...reader }]
    expect(blockersOf(ahead, mutex)).toEqual([ahead[3]])
    expect(blockersOf(ahead, reader)[0]).toBe(ahead[1])
  })
})

describe('data of an entry', () => {
  test('come back, and what another program has written is shown as it is', () => {
    const data = { holder: 'api-7 "ü"', ttlMs: 4_000, token: 2n ** 60n, outlives: true, evicted: true }
    expect(readEntryData(writeData(data))).toEqual(data)
    expect(readEntryData(Buffer.from('host-3'))).toEqual({
      holder: 'host-3',
      ttlMs: 0,
      outlives: false,
      evicted: false,
    })
  })
})

describe('how long a session surely lives', () => {
  const begun = (): SessionLife => {
    const life = new SessionLife()
    life.begun(8_000, 100)
    return life
  }

  test('a new session counts from its request', () => {
    expect(begun().leftMs(100)).toBe(8_000)
    expect(begun().leftMs(9_000)).toBe(0)
  })

  test('a write counts from what was sent a quarter of the session time before it', () => {
    const life = begun()
    for (const at of [1_000, 2_000, 3_000, 4_000]) life.sent(at)
    life.sent(5_500)
    life.written(5_500)
    expect(life.leftMs(5_500)).toBe(3_000 + 8_000 - 5_500)
  })

  test('after a long time of pings alone, a write counts from them', () => {
    const life = begun()
    for (let at = 1_000; at <= 1_000_000; at += 1_000) life.sent(at)
    life.written(1_000_000)
    expect(life.leftMs(1_000_000)).toBe(6_000)
  })

  test('nothing but a write counts', () => {
    const life = begun()
    for (let at = 500; at < 8_000; at += 500) life.sent(at)
    expect(life.leftMs(8_000)).toBe(100)
  })

  test('on a new connection only what was sent on it counts, and only after a write', () => {
    const life = begun()
    life.sent(1_000)
    life.attached(8_000, 5_000)
    expect(life.leftMs(5_000)).toBe(3_100)
    life.sent(5_100)
    life.written(5_100)
    expect(life.leftMs(5_100)).toBe(7_900)
  })

  test('a write of the connection before does not count for the next one', () => {
    const life = begun()
    life.attached(8_000, 5_000)
    life.written(4_900)
    expect(life.leftMs(5_000)).toBe(3_100)
  })
})

test.each([
  [[undefined], 'ok', 'not told'],
  [['dataDir=/d\ndataDirSize=457\ndataLogDir=/d\ndataLogSize=457\n', undefined], 'ok', '0.0 GiB'],
  [['dataDir=/d\ndataDirSize=3221225472\ndataLogDir=/d\ndataLogSize=3221225472\n'], 'ok', '3.0 GiB'],
  [['dataDir=/d\ndataDirSize=3221225472\ndataLogDir=/l\ndataLogSize=3221225472\n'], 'warn', '6.0 GiB'],
])('of what servers have stored, %j is %s', (settings, status, words) => {
  expect(diskSpaceFinding(settings)).toMatchObject({ status, finding: expect.stringContaining(words) })
})

describe('a URL', () => {
  test('names hosts, chroot, credentials and options', () => {
    expect(parseZooKeeperUrl('zookeeper://ann:p%40ss@h1:2182,h2,[::1]/app/a?path=%2Flocks&ca=ca.pem')).toEqual({
      hosts: [
        { host: 'h1', port: 2182 },
        { host: 'h2', port: 2181 },
        { host: '::1', port: 2181 },
      ],
      chroot: '/app/a',
      auth: { scheme: 'digest', credentials: 'ann:p@ss' },
      tls: true,
      ca: 'ca.pem',
      path: '/locks',
    })
    expect(parseZooKeeperUrl('zookeeper://h1/')).toEqual({
      hosts: [{ host: 'h1', port: 2181 }],
      chroot: '',
      tls: false,
    })
  })

  test.each([
    'zookeeper:h1',
    'zookeeper://h1:port',
    'zookeeper://ann@h1',
    'zookeeper://ann:s@cret@h1',
    'zookeeper://h1/a//b',
    'zookeeper://h1/a?colour=red',
    'zookeeper://h1?tls=maybe',
    'zookeeper://ann:%@h1',
  ])('%s is refused, without its password', (url) => {
    expect(() => parseZooKeeperUrl(url)).toThrow(TypeError)
    expect(() => parseZooKeeperUrl(url)).not.toThrow(/cret/)
  })

  test('a path is /name/name', () => {
    expect([chrootOf('/'), chrootOf('/a/b/')]).toEqual(['', '/a/b'])
    expect(() => chrootOf('a')).toThrow(TypeError)
    expect(() => chrootOf('/a/../b')).toThrow(TypeError)
  })
})
