/** What `console.log` and `JSON.stringify` show of our objects: what helps, and no secrets or insides. */
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { openMongodb } from '../../src/engines/mongodb/index.ts'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { openPostgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { openRedlock } from '../../src/engines/redlock/index.ts'
import { sqlite } from '../../src/engines/sqlite/index.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { ENGINE_NAMES } from '../engine-names.ts'
import { inMemory } from './world.ts'

/** On one line, as `JSON.stringify` is. */
const shown = (value: unknown): string => inspect(value, { breakLength: Number.POSITIVE_INFINITY })

/** As in a template. */
const inText = (value: unknown): string => String(value)

describe('engines', () => {
  test('are shown by name', () => {
    expect(shown(memory())).toBe("MemoryEngine { name: 'memory' }")
    expect(JSON.stringify(memory())).toBe('{"name":"memory"}')
    expect(shown({ deep: { deeper: { engine: memory() } } })).toContain('engine: [MemoryEngine]')
  })

  test('are shown with their file', () => {
    expect(shown(sqlite({ file: '/nowhere/locks.db' }))).toBe(
      "SqliteEngine { name: 'sqlite', file: '/nowhere/locks.db' }",
    )
  })

  const opened: Readonly<Record<string, () => Promise<AsyncDisposable>>> = {
    redis: () => openRedis('redis://user:hunter2@127.0.0.1:1'),
    redlock: () => openRedlock('redlock://user:hunter2@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3'),
    etcd: () => openEtcd('etcd://user:hunter2@127.0.0.1:1'),
    mongodb: () => openMongodb('mongodb://user:hunter2@127.0.0.1:1/x'),
    mysql: () => openMysql('mysql://user:hunter2@127.0.0.1:1/x'),
    postgres: () => openPostgres('postgres://user:hunter2@127.0.0.1:1/x'),
    'postgres-advisory': () => openPostgresAdvisory('postgres-advisory://user:hunter2@127.0.0.1:1/x'),
    zookeeper: () => openZooKeeper('zookeeper://user:hunter2@127.0.0.1:1'),
  }
  for (const [name, open] of Object.entries(opened)) {
    test(`of ${name} are shown with the URL, without its password`, async () => {
      await using engine = await open()
      for (const text of [shown(engine), JSON.stringify(engine)]) {
        expect(text).toContain(`${name}://user:***@127.0.0.1:1`)
        expect(text).not.toContain('hunter2')
      }
      expect(Object.keys(JSON.parse(JSON.stringify(engine)) as object)).toEqual(['name', 'url'])
    })
  }

  test('are all here', () => {
    expect(['memory', 'sqlite', ...Object.keys(opened)].toSorted()).toEqual(ENGINE_NAMES.toSorted())
  })
})

describe('leases', () => {
  const seen = { key: 'a', token: '1', held: true, remainingMs: 29_698 }
  const over = { key: 'a', token: '1', held: false, remainingMs: 0 }

  test('are shown by key, token, and whether and for how long they are held, and by nothing else', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    expect(shown(lease)).toBe("Lease { key: 'a', token: '1', held: true, remainingMs: 29698 }")
    expect(JSON.parse(JSON.stringify({ lease }))).toEqual({ lease: seen })
    await lease.release()
    expect(JSON.parse(JSON.stringify(lease))).toEqual(over)
  })

  test('that are nested are shown alike', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const nested = await locks.mutex('a').acquire({ within: lease })
    expect(JSON.parse(JSON.stringify(nested))).toEqual(seen)
    expect(shown(nested)).toBe(shown(lease))
    await nested.release()
    expect(JSON.parse(JSON.stringify(nested))).toEqual(over)
  })

  test('of several keys have the token of each', async () => {
    const { locks } = inMemory()
    const lease = await locks.all([locks.mutex('b'), locks.mutex('a')]).acquire()
    const { tokens, ...rest } = JSON.parse(JSON.stringify(lease)) as { tokens: Record<string, string> }
    expect(rest).toEqual({ ...seen, key: 'a + b', token: null })
    expect(Object.keys(tokens)).toEqual(['a', 'b'])
    expect(Object.values(tokens).every((token) => /^\d+$/.test(token))).toBe(true)
    expect(shown(lease)).toMatch(/^Lease \{ key: 'a \+ b', token: null, held: true/)
  })
})

describe('what a program may do with a lease by mistake', () => {
  test('a copy of its fields has nothing of the insides', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    const nested = await locks.mutex('a').acquire({ within: lease })
    expect({ ...lease }).toEqual({})
    expect({ ...nested }).toEqual({})
    const several = await locks.all([locks.mutex('b'), locks.mutex('c')]).acquire()
    expect(Object.keys(several).toSorted()).toEqual(['key', 'tokens'])
  })

  test('in a text it is what console.log shows, on one line', async () => {
    const { locks } = inMemory()
    const lease = await locks.mutex('a').acquire()
    expect(inText(lease)).toBe("Lease { key: 'a', token: '1', held: true, remainingMs: 29698 }")
    expect(inText(locks.mutex('a'))).toBe("Lock { key: 'a', kind: 'exclusive', engine: 'memory' }")
  })
})

describe('locks and elections', () => {
  test('are shown by what they are, not by what they are made of', () => {
    const { locks } = inMemory()
    expect(shown(locks)).toBe("Locks { engine: 'memory', holder: 'me' }")
    expect(JSON.stringify(locks)).toBe('{"engine":"memory","holder":"me"}')
    expect(shown(locks.mutex('a'))).toBe("Lock { key: 'a', kind: 'exclusive', engine: 'memory' }")
    expect(shown(locks.rw('a').read)).toBe("Lock { key: 'a', kind: 'read', engine: 'memory' }")
    expect(shown(locks.semaphore('a', 4))).toBe("Lock { key: 'a', kind: 'semaphore', limit: 4, engine: 'memory' }")
    expect(shown(locks.all([locks.mutex('a')]))).toBe("Lock { key: 'a', kind: 'all', engine: 'memory' }")
    expect(JSON.stringify(locks.mutex('a'))).toBe('{"key":"a","kind":"exclusive","engine":"memory"}')
    expect(shown(locks.election('a'))).toBe("Election { key: 'a', engine: 'memory' }")
    expect(JSON.stringify({ election: locks.election('a') })).toBe('{"election":{"key":"a","engine":"memory"}}')
  })
})
