/** Evictions on etcd: the holder is told at once, and the line is free as soon as it has left. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import type { News } from '../../src/core/engine.ts'
import { type EtcdEngine, openEtcd } from '../../src/engines/etcd/index.ts'
import { newClaim } from '../claims.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
/** No entry of these tests runs out while they last. */
const TTL_MS = 300_000

await describeServer('evictions on etcd', findOwnEtcd, (source) => {
  let server: EtcdServer

  beforeAll(async () => {
    server = await EtcdServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  async function open(): Promise<{ readonly engine: EtcdEngine; readonly heard: News[] }> {
    const engine = await openEtcd(server.url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    const heard: News[] = []
    await engine.subscribe((news) => heard.push(news))
    return { engine, heard }
  }

  const claimOf = (key: string): ReturnType<typeof newClaim> => newClaim(key, { ttlMs: TTL_MS })

  async function tokenOf(engine: EtcdEngine, key: string): Promise<bigint> {
    return (await engine.inspect(key)).entries[0]?.token ?? 0n
  }

  test.each(['expire', 'now'] as const)('a holder is told at once: %s', async (how) => {
    const [holding, other] = [await open(), await open()]
    const claim = claimOf(`a/b % ${how}`)
    await holding.engine.enter([claim])
    expect(await other.engine.evict(claim.key, await tokenOf(other.engine, claim.key), how)).toBe(true)
    const told = { key: claim.key, id: claim.id, standing: { state: 'gone', why: 'evicted' } }
    await vi.waitFor(() => expect(holding.heard).toEqual([told]), LIMIT)
    expect(other.heard).toEqual([])
    expect((await holding.engine.renew([claim]))[0]).toEqual({ state: 'gone', why: 'evicted' })
  })

  test.each([true, false])(
    'one that was evicted and has ended leaves, and the next one holds: asked before: %s',
    async (asked) => {
      const [holding, waiting] = [await open(), await open()]
      const key = `left ${asked}`
      const [holder, waiter] = [claimOf(key), claimOf(key)]
      await holding.engine.enter([holder])
      await waiting.engine.enter([waiter])
      await waiting.engine.evict(key, await tokenOf(waiting.engine, key), 'expire')
      expect((await waiting.engine.renew([waiter]))[0]).toMatchObject({ state: 'waiting' })
      if (asked) await holding.engine.renew([holder])
      expect(await holding.engine.leave([holder])).toEqual([true])
      const told = { key, id: waiter.id, standing: expect.objectContaining({ state: 'held' }) }
      await vi.waitFor(() => expect(waiting.heard).toContainEqual(told), LIMIT)
    },
  )
})
