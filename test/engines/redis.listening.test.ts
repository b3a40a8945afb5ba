/**
 * Listening on one Redis and on several: a subscription that is closed before it stands leaves no connection, and one
 * that failed is not relied on.
 */
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import type { Claim, Engine, News } from '../../src/core/engine.ts'
import { redis } from '../../src/engines/redis/index.ts'
import { redlock } from '../../src/engines/redlock/index.ts'
import { findOwnRedis, RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 20_000, interval: 10 }

const claimOf = (key: string, id: string): Claim => ({
  key,
  id,
  holder: 'h',
  weight: 1,
  limit: 1,
  ttlMs: 300_000,
  wait: true,
})

const about = (news: readonly News[], { id }: Claim): readonly News[] =>
  news.filter((told) => 'id' in told && told.id === id)

await describeServer('listening', findOwnRedis, (source) => {
  let servers: readonly RedisServer[]

  beforeAll(async () => {
    servers = await Promise.all(Array.from({ length: 3 }, () => RedisServer.start(source)))
  })
  afterAll(async () => {
    for (const server of servers) await server[Symbol.asyncDispose]()
  })

  /** Not connected yet. */
  function clientOf(
    { port }: RedisServer,
    user: { readonly username?: string; readonly password?: string } = {},
  ): Redis {
    const client = new Redis({ port, ...user })
    onTestFinished(() => client.disconnect())
    return client
  }

  async function command(server: RedisServer, ...words: readonly string[]): Promise<unknown> {
    await using connection = await server.connect()
    return await connection.command(...words)
  }

  const engines: readonly (readonly [string, () => Engine])[] = [
    ['redis', () => redis({ client: clientOf(servers[0] as RedisServer) })],
    ['redlock', () => redlock({ clients: servers.map((server) => clientOf(server)) })],
  ]

  test.each(engines)(
    '%s: a subscription that is overtaken by the end of the engine leaves no connection',
    async (_, make) => {
      const engine = make()
      await engine.inspect('connected')
      const subscribing = engine.subscribe?.(() => undefined)
      const closing = engine[Symbol.asyncDispose]()
      await Promise.allSettled([subscribing, closing])
      const listening = async (): Promise<readonly unknown[]> =>
        await Promise.all(servers.map((server) => command(server, 'CLIENT', 'LIST', 'TYPE', 'pubsub')))
      await vi.waitFor(async () => expect(await listening()).toEqual(['', '', '']), LIMIT)
    },
  )

  test.each(engines)('%s: a waiter that leaves while it is renewed is not rechecked any more', async (_, make) => {
    const engine = make()
    onTestFinished(() => engine[Symbol.asyncDispose]())
    const news: News[] = []
    await engine.subscribe?.((told) => news.push(told))
    const key = `left ${engine.name}`
    const claim = (id: string, ttlMs: number): Claim => ({ ...claimOf(key, id.repeat(32)), ttlMs })
    const [holder, leaving, staying] = [claim('a', 2000), claim('b', 60_000), claim('c', 60_000)]
    await engine.enter([holder])
    await engine.enter([leaving])
    await engine.enter([staying])
    await Promise.all([engine.renew([leaving]), engine.leave([leaving])])
    // Both would be rechecked when the holder has expired.
    await engine.renew([staying])
    await vi.waitFor(() => expect(about(news, staying)).not.toEqual([]), LIMIT)
    expect(about(news, leaving)).toEqual([])
  })

  test.each(engines)(
    '%s: a holder that is to go sooner than before has the first waiter look again',
    async (_, make) => {
      const engine = make()
      onTestFinished(() => engine[Symbol.asyncDispose]())
      const news: News[] = []
      await engine.subscribe?.((told) => news.push(told))
      const key = `sooner ${engine.name}`
      const [holder, waiter] = [claimOf(key, 'a'.repeat(32)), claimOf(key, 'b'.repeat(32))]
      await engine.enter([holder])
      await engine.enter([waiter])
      await engine.renew([{ ...holder, ttlMs: 1000, outlives: true }])
      await vi.waitFor(() => expect(about(news, waiter)).not.toEqual([]), LIMIT)
      expect(about(news, holder)).toEqual([])
      const [standing] = await engine.renew([waiter])
      // Unless this took longer than a second, it waits, and is told when to look again.
      const before = news.length
      if (standing?.state === 'waiting') await vi.waitFor(() => expect(news.length).toBeGreaterThan(before), LIMIT)
      await vi.waitFor(async () => expect((await engine.renew([waiter]))[0]?.state).toBe('held'), LIMIT)
    },
  )

  test.each(engines)(
    '%s: a polite eviction tells the holder at once, and when it leaves the next one holds',
    async (_, make) => {
      const [engine, other] = [make(), make()]
      onTestFinished(async () => {
        for (const one of [engine, other]) await one[Symbol.asyncDispose]()
      })
      const news: News[] = []
      await engine.subscribe?.((told) => news.push(told))
      const key = `evicted ${engine.name}`
      const [holder, waiter] = [claimOf(key, 'a'.repeat(32)), claimOf(key, 'b'.repeat(32))]
      const [held] = await engine.enter([holder])
      if (held?.state !== 'held') throw new Error('it is not held')
      await engine.enter([waiter])
      expect(await other.evict(key, held.token as bigint, 'expire')).toBe(true)
      await vi.waitFor(() => expect(about(news, holder)).not.toEqual([]), LIMIT)
      expect(await engine.renew([holder, waiter])).toMatchObject([
        { state: 'gone', why: 'evicted' },
        { state: 'waiting' },
      ])
      await engine.leave([holder])
      await vi.waitFor(() => expect(about(news, waiter)).not.toEqual([]), LIMIT)
      await vi.waitFor(async () => expect((await engine.renew([waiter]))[0]?.state).toBe('held'), LIMIT)
    },
  )

  test('waiters look for themselves where the subscription failed', async () => {
    const [server] = servers as [RedisServer]
    await command(server, 'ACL', 'SETUSER', 'deaf', 'on', '>deaf', '~*', '+@all', '-subscribe')
    const client = clientOf(server, { username: 'deaf', password: 'deaf' })
    const [engine, other] = [redis({ client }), redis({ client: clientOf(server) })]
    onTestFinished(async () => {
      for (const one of [engine, other]) await one[Symbol.asyncDispose]()
    })
    const news: News[] = []
    await expect(Promise.resolve(engine.subscribe?.((told) => news.push(told)))).rejects.toThrow('NOPERM')
    const [holder, waiter] = [claimOf('deaf', 'a'.repeat(32)), claimOf('deaf', 'b'.repeat(32))]
    await other.enter([holder])
    expect((await engine.enter([waiter]))[0]?.state).toBe('waiting')
    await vi.waitFor(() => expect(news).toContainEqual({ key: 'deaf', id: waiter.id }), LIMIT)
  })
})
