/**
 * What Redlock is told, or does, too late: attempts that are taken back, messages that overtake each other, commands
 * that a client sends again. On real servers.
 */

import { Redis } from 'ioredis'
import { afterEach, expect, test, vi } from 'vitest'
import type { Claim, News } from '../../src/core/engine.ts'
import { openRedlock, type RedlockEngine, redlock } from '../../src/engines/redlock/index.ts'
import { take } from '../../src/engines/redlock/scripts.ts'
import { newClaim } from '../claims.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis, type RedisServer } from '../servers/redis.ts'
import type { Resp } from '../servers/resp.ts'
import { describeServer } from '../servers/suite.ts'
import { connected, Fleet } from './redlock-world.ts'

const LIMIT = { timeout: 20_000, interval: 10 }
/** Far longer than any test waits: what is gone was given back, and who is woken was told. */
const TTL_MS = 300_000

function claimOf(key: string, more: Partial<Claim> = {}): Claim {
  return newClaim(key, { ttlMs: TTL_MS, wait: false, ...more })
}

/** A command that is kept back: before it is sent, or before its answer is heard. */
interface Kept {
  go(): void
  /** It fails, as on a connection that broke. */
  lose(): void
}

/** A client of one server that promises no order, as glide does not: of the script that it is told to keep back. */
class Unordered {
  readonly #connection: Resp
  readonly kept: Kept[] = []
  keeps: { readonly sha: string; readonly what: 'request' | 'answer' } | undefined

  constructor(connection: Resp) {
    this.#connection = connection
  }

  async customCommand(words: string[]): Promise<unknown> {
    const { keeps } = this
    if (keeps === undefined || !words.includes(keeps.sha)) return await this.#connection.command(...words)
    const answer = keeps.what === 'answer' ? await this.#connection.command(...words) : undefined
    await new Promise<void>((go, reject) =>
      this.kept.push({ go, lose: () => reject(new Error('the connection was lost')) }),
    )
    return answer ?? (await this.#connection.command(...words))
  }

  invokeScript(): never {
    throw new Error('not used')
  }
}

await describeServer('Redlock, late', findOwnRedis, (source) => {
  const open: AsyncDisposable[] = []

  afterEach(async () => {
    for (const one of open.splice(0).toReversed()) await one[Symbol.asyncDispose]()
  })

  async function fleetOf(): Promise<Fleet> {
    const fleet = await Fleet.start(source, 3, {})
    open.push(fleet)
    return fleet
  }

  async function unordered(
    fleet: Fleet,
  ): Promise<{ readonly engine: RedlockEngine; readonly clients: readonly Unordered[] }> {
    const connections = await Promise.all(fleet.servers.map((server) => server.connect()))
    open.push(...connections)
    const clients = connections.map((connection) => new Unordered(connection))
    const engine = await connected(redlock({ clients, timeout: '20s' }))
    open.push(engine)
    return { engine, clients }
  }

  test('a waiter behind an entry whose attempt failed is told when that is undone', async () => {
    const fleet = await fleetOf()
    const one = await unordered(fleet)
    const other = await connected(await openRedlock(`${fleet.url}?timeout=2000`))
    open.push(other)
    const news: News[] = []
    await other.subscribe?.((told) => news.push(told))
    for (const client of one.clients) client.keeps = { sha: take.sha, what: 'answer' }
    const trying = one.engine.enter([claimOf('taken back')])
    await vi.waitFor(() => expect(one.clients.map(({ kept }) => kept.length)).toEqual([1, 1, 1]), LIMIT)
    const waiter = claimOf('taken back', { wait: true })
    expect((await other.enter([waiter]))[0]?.state).toBe('waiting')
    for (const { kept } of one.clients) kept[0]?.lose()
    expect((await trying)[0]?.state).toBe('failed')
    await vi.waitFor(() => expect(news).toContainEqual({ key: waiter.key, id: waiter.id }), LIMIT)
    await vi.waitFor(async () => expect((await other.renew([waiter]))[0]?.state).toBe('held'), LIMIT)
  })

  test('a leave that overtakes its own enter leaves nothing behind', async () => {
    const fleet = await fleetOf()
    const { engine, clients } = await unordered(fleet)
    for (const client of clients) client.keeps = { sha: take.sha, what: 'request' }
    const claim = claimOf('overtaken')
    const entering = engine.enter([claim])
    await vi.waitFor(() => expect(clients.map(({ kept }) => kept.length)).toEqual([1, 1, 1]), LIMIT)
    expect(await engine.leave([claim])).toEqual([false])
    for (const { kept } of clients) kept[0]?.go()
    expect((await entering)[0]?.state).toBe('gone')
    // Each of them has taken it.
    for (const server of fleet.servers) {
      await using connection = await server.connect()
      await vi.waitFor(async () => expect(await connection.command('HLEN', 'hf1:counters')).toBe(1), LIMIT)
    }
    await vi.waitFor(async () => expect(await fleet.stored()).toEqual([]), LIMIT)
  })

  test('what a client sends again when it is connected, later than a ttl, is given back', async () => {
    const fleet = await fleetOf()
    const [first, , third] = fleet.servers as [RedisServer, RedisServer, RedisServer]
    const proxy = await FaultProxy.start(third)
    open.push(proxy)
    const clients = [...fleet.servers.slice(0, 2), proxy].map(
      ({ port }) => new Redis({ port, maxRetriesPerRequest: null }),
    )
    open.push({ [Symbol.asyncDispose]: async () => void clients.map((client) => client.disconnect()) })
    const engine = await connected(redlock({ clients, timeout: 500 }))
    open.push(engine)
    const [listener, watcher] = [await third.connect(), await first.connect()]
    open.push(listener, watcher)
    await listener.command('CONFIG', 'SET', 'notify-keyspace-events', 'Kgx$')
    const events: string[] = []
    listener.onMessage = (_, event) => events.push(event)
    await listener.command('SUBSCRIBE', '__keyspace@0__:lock:again')
    proxy.blackHole('requests')
    const claim = claimOf('again', { ttlMs: 2_000 })
    expect((await engine.enter([claim]))[0]?.state).toBe('held')
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    await proxy.refuse()
    await vi.waitFor(() => expect(clients[2]?.status).not.toBe('ready'), LIMIT)
    expect(await engine.leave([claim])).toEqual([true])
    // Until whatever was owed has expired.
    await watcher.command('SET', 'a ttl', '', 'PX', 2_000)
    await vi.waitFor(async () => expect(await watcher.command('EXISTS', 'a ttl')).toBe(0), LIMIT)
    await proxy.heal()
    await vi.waitFor(
      () => expect(events.filter((event) => event === 'del' || event === 'expired')).toHaveLength(1),
      LIMIT,
    )
    expect(events).toEqual(['set', 'expire', 'del'])
  })
})
