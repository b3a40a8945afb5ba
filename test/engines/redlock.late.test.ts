/** What Redlock is told, or does, too late: attempts that are taken back, messages that overtake each other, commands that a client sends again. On real servers. */
import type { Redis } from 'ioredis'
import { afterEach, expect, test, vi } from 'vitest'
import type { Claim, News } from '../../src/core/engine.ts'
import { openRedlock, type RedlockEngine } from '../../src/engines/redlock/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { findOwnRedis, type RedisServer } from '../servers/redis.ts'
import { describeServer } from '../servers/suite.ts'
import { connected, Fleet, urlOf } from './redlock-world.ts'

const LIMIT = { timeout: 20_000, interval: 10 }
/** Far longer than any test waits: what is gone was given back, and who is woken was told. */
const TTL_MS = 300_000

let ids = 0

function claimOf(key: string, claim: Partial<Claim> = {}): Claim {
  ids += 1
  return { key, id: ids.toString(16).padStart(32, 'd'), holder: 'h', weight: 1, limit: 1, ttlMs: TTL_MS, wait: false, ...claim }
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

  async function proxyOf(server: RedisServer): Promise<FaultProxy> {
    const proxy = await FaultProxy.start(server)
    open.push(proxy)
    return proxy
  }

  async function engineOf(via: readonly { readonly port: number }[]): Promise<RedlockEngine> {
    const engine = await connected(await openRedlock(`${urlOf(via.map(({ port }) => port))}?timeout=2000`))
    open.push(engine)
    return engine
  }

  test('whoever waits for one whose attempt failed is told when it is taken back', async () => {
    const fleet = await fleetOf()
    const proxies = await Promise.all(fleet.servers.map(proxyOf))
    const [one, other] = [await engineOf(proxies), await engineOf(fleet.servers)]
    const news: News[] = []
    await other.subscribe?.((told) => news.push(told))
    for (const proxy of proxies.slice(1)) proxy.blackHole('replies')
    const trying = one.enter([claimOf('taken back')])
    await vi.waitFor(async () => expect(await fleet.stored()).toHaveLength(3), LIMIT)
    const waiter = claimOf('taken back', { wait: true })
    expect((await other.enter([waiter]))[0]?.state).toBe('waiting')
    expect((await trying)[0]?.state).toBe('failed')
    await vi.waitFor(() => expect(news).toContainEqual({ key: waiter.key, id: waiter.id }), LIMIT)
    await vi.waitFor(async () => expect((await other.renew([waiter]))[0]?.state).toBe('held'), LIMIT)
  })
})
