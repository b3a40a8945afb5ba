/**
 * Observers of a line on Redis: they hear of changes, also after the server, or the way to it, has forgotten them, and
 * leave nothing behind.
 */

import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import type { Claim, Engine } from '../../src/engine.ts'
import { openRedis } from '../../src/engines/redis/index.ts'
import { fakeClock } from '../../src/testing.ts'
import { newClaim } from '../claims.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 5 }
/** As in src/engines/redis/listen.ts: how often the server is told again. */
const BEAT_MS = 10_000

function claim(more: Partial<Claim> = {}): Claim {
  return newClaim('key', { ttlMs: 30_000, ...more })
}

await describeServer('watching a line on Redis', findOwnRedis, (source) => {
  const clock = fakeClock()
  let server: RedisServer
  let engine: Engine
  let observer: Engine
  let heard: number

  const watch = async (): Promise<AsyncDisposable> => {
    const watching = await observer.watch?.('key', () => {
      heard += 1
    })
    return watching as AsyncDisposable
  }

  async function hears(change: () => Promise<unknown>): Promise<void> {
    const before = heard
    await change()
    await vi.waitFor(() => expect(heard).toBeGreaterThan(before), LIMIT)
  }

  async function tell(...command: readonly [string, ...string[]]): Promise<unknown> {
    await using client = await server.connect()
    return await client.command(...command)
  }

  beforeEach(async () => {
    heard = 0
    server = await RedisServer.start(source)
    engine = await openRedis(server.url)
    observer = await openRedis(server.url, { clock })
  })

  afterEach(async () => {
    await engine[Symbol.asyncDispose]()
    await observer[Symbol.asyncDispose]()
    await server[Symbol.asyncDispose]()
  })

  test('begins while an entry holds, and hears of entries that come, give up, share, are evicted and go', async () => {
    const [first, second, third] = [claim(), claim(), claim()]
    const [standing] = await engine.enter([first])
    await using _watching = await watch()
    await hears(() => engine.enter([second]))
    await hears(() => engine.enter([third]))
    await hears(() => engine.leave([second]))
    await hears(() => engine.evict('key', standing?.state === 'held' ? (standing.token ?? 0n) : 0n, 'now'))
    await hears(() => engine.leave([third]))
    const readers = [claim({ limit: 5 }), claim({ limit: 5 })]
    await hears(() => engine.enter(readers))
    await hears(() => engine.leave(readers))
  })

  test('ends: nothing is heard, and nothing is stored, after that', async () => {
    const watching = await watch()
    await hears(() => engine.enter([claim()]))
    await watching[Symbol.asyncDispose]()
    const before = heard
    await engine.enter([claim()])
    expect(await tell('HGET', 'hf1:entries:{lock:key}', '!')).toBe(null)
    await tell('FLUSHALL')
    const others = await watch()
    await others[Symbol.asyncDispose]()
    expect(await tell('KEYS', '*')).toEqual([])
    expect(heard).toBe(before)
  })

  test('is renewed, so that it lasts, and is taken up again when the server has forgotten it', async () => {
    await using _watching = await watch()
    await tell('FLUSHALL')
    await hears(() => clock.advance(BEAT_MS))
    await hears(() => engine.enter([claim()]))
    // Known, and nothing has changed: no observer is called.
    const before = heard
    await clock.advance(BEAT_MS)
    await vi.waitFor(async () => expect(Number(await tell('PTTL', 'hf1:entries:{lock:key}'))).toBeGreaterThan(0), LIMIT)
    await observer.inspect('key')
    expect(heard).toBe(before)
  })

  test('goes on when connections were cut: the observer is rung, since it may have missed something', async () => {
    await using _watching = await watch()
    await hears(() => tell('CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes'))
    await hears(() => engine.enter([claim()]))
  })

  test('costs nothing for lines without watchers: an acquire and a release are the same commands as before', async () => {
    await using _watching = await watch()
    const other = claim({ key: 'other' })
    await tell('CONFIG', 'RESETSTAT')
    await engine.enter([other])
    await engine.leave([other])
    const stats = String(await tell('INFO', 'commandstats'))
    const commands = [...stats.matchAll(/cmdstat_(\w+):calls=(\d+)/g)].map(([, name, calls]) => `${name} ${calls}`)
    expect(commands.filter((line) => !/^(?:config|info|eval)/.test(line)).sort()).toEqual([
      'del 1',
      'exists 1',
      'get 1',
      'set 2',
      'time 1',
    ])
  })
})
