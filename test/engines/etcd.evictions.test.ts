/** Evictions on etcd: the holder is told at once, and the line is free as soon as it has left. */
import { expect, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import type { News } from '../../src/core/engine.ts'
import type { EtcdEngine } from '../../src/engines/etcd/index.ts'
import { newClaim } from '../claims.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
/** No entry of these tests runs out while they last. */
const TTL_MS = 300_000

/** A client that can open no stream until it is told to. */
class SlowToWatch extends EtcdClient {
  #begin: () => void = () => undefined
  readonly #begun = new Promise<void>((resolve) => {
    this.#begin = resolve
  })

  begin(): void {
    this.#begin()
  }

  override async stream(...request: Parameters<EtcdClient['stream']>): ReturnType<EtcdClient['stream']> {
    await this.#begun
    return await super.stream(...request)
  }
}

await describeServer('evictions on etcd', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  async function heardBy(engine: EtcdEngine): Promise<readonly News[]> {
    const heard: News[] = []
    await engine.subscribe((news) => heard.push(news))
    return heard
  }

  async function open(): Promise<{ readonly engine: EtcdEngine; readonly heard: readonly News[] }> {
    const engine = await scene.open()
    return { engine, heard: await heardBy(engine) }
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

  test('an entry that was left to stand for a while does not stand for longer by an eviction', async () => {
    const [holding, other] = [await open(), await open()]
    const claim = claimOf('left to stand')
    await holding.engine.enter([claim])
    await holding.engine.renew([{ ...claim, outlives: true }])
    const remainingMs = async (): Promise<number> =>
      (await other.engine.inspect(claim.key)).entries[0]?.remainingMs ?? Number.NaN
    await vi.waitFor(async () => expect(await remainingMs()).toBeLessThan(TTL_MS - 2_000), LIMIT)
    expect(await other.engine.evict(claim.key, await tokenOf(other.engine, claim.key), 'expire')).toBe(true)
    expect(await remainingMs()).toBeLessThan(TTL_MS - 1_000)
  })

  test.each(['expire', 'now'] as const)(
    'one that is evicted before its process could begin to watch is told: %s',
    async (how) => {
      const { client, engine } = scene.openOn(SlowToWatch)
      const other = await scene.open()
      const heard = await heardBy(engine)
      const claim = claimOf(`early ${how}`)
      await engine.enter([claim])
      expect(await other.evict(claim.key, await tokenOf(other, claim.key), how)).toBe(true)
      client.begin()
      const told = { key: claim.key, id: claim.id, standing: { state: 'gone', why: 'evicted' } }
      await vi.waitFor(() => expect(heard).toEqual([told]), LIMIT)
    },
  )

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
