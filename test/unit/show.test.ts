/** What `console.log` and `JSON.stringify` show of our objects: what helps, and no secrets or insides. */
import { inspect } from 'node:util'
import { describe, expect, test } from 'vitest'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { memory } from '../../src/engines/memory/index.ts'
import { openMysql } from '../../src/engines/mysql/index.ts'
import { openPostgres } from '../../src/engines/postgres/index.ts'
import { openPostgresAdvisory } from '../../src/engines/postgres-advisory/index.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { openRedlock } from '../../src/engines/redlock/index.ts'
import { sqlite } from '../../src/engines/sqlite/index.ts'
import { inMemory } from './world.ts'

/** On one line, as `JSON.stringify` is. */
const shown = (value: unknown): string => inspect(value, { breakLength: Number.POSITIVE_INFINITY })

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
    mysql: () => openMysql('mysql://user:hunter2@127.0.0.1:1/x'),
    postgres: () => openPostgres('postgres://user:hunter2@127.0.0.1:1/x'),
    'postgres-advisory': () => openPostgresAdvisory('postgres-advisory://user:hunter2@127.0.0.1:1/x'),
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
})

describe('locks and elections', () => {
  test('are shown by what they are, not by what they are made of', () => {
    const { locks } = inMemory()
    expect(shown(locks)).toBe("Locks { engine: 'memory', holder: 'me' }")
    expect(JSON.stringify(locks)).toBe('{"engine":"memory","holder":"me"}')
    expect(shown(locks.election('a'))).toBe("Election { key: 'a', engine: 'memory' }")
    expect(JSON.stringify({ election: locks.election('a') })).toBe('{"election":{"key":"a","engine":"memory"}}')
  })
})
