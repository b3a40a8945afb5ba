/**
 * One etcd, and what can happen on the way to it and in it: replies that are lost, requests that come late, compaction,
 * marked entries, and writes of our own that a lease guards.
 */
import { Etcd3 } from 'etcd3'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import type { Claim } from '../../src/core/engine.ts'
import { type EtcdEngine, openEtcd } from '../../src/engines/etcd/index.ts'
import { createLocks, EngineError, LeaseLostError, type Locks } from '../../src/index.ts'
import { findOwnEtcd } from '../servers/etcd.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
let ids = 0

function claimOf(key: string, more: Partial<Claim> = {}): Claim {
  ids += 1
  return {
    key,
    id: ids.toString(16).padStart(32, '0'),
    holder: 'test',
    weight: 1,
    limit: 1,
    ttlMs: 30_000,
    wait: true,
    ...more,
  }
}

await describeServer('etcd', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  async function openLocks(
    ttl: '2s' | '30s' = '30s',
    url: string = scene.server.url,
  ): Promise<{ readonly engine: EtcdEngine; readonly locks: Locks }> {
    const engine = await openEtcd(url)
    const locks = createLocks(engine, { ttl })
    onTestFinished(() => locks.close())
    return { engine, locks }
  }

  async function proxied(): Promise<{ readonly proxy: FaultProxy; readonly url: string }> {
    const proxy = await FaultProxy.start(scene.server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    return { proxy, url: `etcd://127.0.0.1:${proxy.port}` }
  }

  const linesOf = async (engine: EtcdEngine, key: string): Promise<readonly string[]> =>
    (await engine.inspect(key)).entries.map(({ id, state }) => `${id} ${state}`)

  test('an enter that was applied, and whose reply was lost, is found again: one entry, with the token it had', async () => {
    const { proxy, url } = await proxied()
    const [engine, other] = [await scene.open(url), await scene.open()]
    await engine.enter([claimOf('warm up')])
    const claim = claimOf('reply lost')
    proxy.blackHole('replies')
    const asked = engine.enter([claim])
    await vi.waitFor(async () => expect(await linesOf(other, claim.key)).toHaveLength(1), LIMIT)
    proxy.reset()
    await proxy.heal()
    expect((await asked)[0]).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
    const [entry] = (await other.inspect(claim.key)).entries
    const [again] = await engine.enter([claim])
    expect(again).toMatchObject({ state: 'held', token: entry?.token })
  })

  test('an enter that was given up and arrives late does not live on under a lease that others keep alive', async () => {
    const { proxy, url } = await proxied()
    const [engine, other] = [await scene.open(url), await scene.open()]
    const kept = claimOf('kept', { ttlMs: 4_000 })
    await engine.enter([kept])
    const late = claimOf('late', { ttlMs: 4_000 })
    proxy.blackHole('requests')
    const asked = engine.enter([late])
    await vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT)
    expect((await asked)[0]).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
    await proxy.heal()
    // Whether it arrives now or never, there comes a time after which it is not there, and its neighbour is.
    await vi.waitFor(async () => {
      expect((await engine.renew([kept]))[0]).toMatchObject({ state: 'held' })
      expect(await linesOf(other, late.key)).toEqual([])
    }, LIMIT)
    const { kvs } = await scene.direct.range({ key: 'holdfast/line/kept/', end: 'holdfast/line/kept0' })
    const stayed = kvs[0]?.lease
    const [fresh] = await engine.enter([claimOf('fresh', { ttlMs: 4_000 })])
    expect(fresh?.state).toBe('held')
    expect((await scene.direct.range({ key: 'holdfast/line/fresh/', end: 'holdfast/line/fresh0' })).kvs[0]?.lease).toBe(
      stayed,
    )
  })

  test('an entry whose owner says nothing for a ttl is taken out, though its neighbours keep their lease alive', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const [silent, kept] = [claimOf('silent', { ttlMs: 2_000 }), claimOf('not silent', { ttlMs: 2_000 })]
    await engine.enter([silent, kept])
    await vi.waitFor(async () => {
      expect((await engine.renew([kept]))[0]).toMatchObject({ state: 'held' })
      expect(await linesOf(other, silent.key)).toEqual([])
    }, LIMIT)
    expect((await engine.renew([silent]))[0]).toMatchObject({ state: 'gone' })
  })

  test('a lease that expires takes holders and waiters with it, and says so when they ask', async () => {
    const [engine, other] = [await scene.open(), await scene.open()]
    const [holder, waiter, behind] = [
      claimOf('expiry', { ttlMs: 2_000 }),
      claimOf('expiry', { ttlMs: 2_000 }),
      claimOf('expiry'),
    ]
    await engine.enter([holder, waiter])
    await other.enter([behind])
    await vi.waitFor(async () => expect(await linesOf(other, 'expiry')).toEqual([`${behind.id} held`]), LIMIT)
    expect((await engine.renew([holder, waiter])).map(({ state }) => state)).toEqual(['gone', 'gone'])
    expect((await other.renew([behind]))[0]).toMatchObject({ state: 'held' })
  })

  test('two of one process, under one lease, do not both hold', async () => {
    const engine = await scene.open()
    const claims = [claimOf('one lease'), claimOf('one lease')]
    const states = (await engine.enter(claims)).map(({ state }) => state)
    expect(states).toEqual(['held', 'waiting'])
    const { kvs } = await scene.direct.range({ key: 'holdfast/line/one lease/', end: 'holdfast/line/one lease0' })
    expect(new Set(kvs.map(({ lease }) => lease)).size).toBe(1)
    expect((await engine.renew(claims)).map(({ state }) => state)).toEqual(['held', 'waiting'])
  })

  test('a waiter whose lease has ended does not win with it, and comes back at the back of the line', async () => {
    const { proxy, url } = await proxied()
    // An outage of a whole ttl ends the wait: this one is shorter, since the lease is ended by hand.
    const [{ locks }, { locks: others }] = [await openLocks(), await openLocks('30s', url)]
    const inLine = (count: number): Promise<void> =>
      vi.waitFor(async () => expect((await locks.inspect('ended')).entries).toHaveLength(count), LIMIT)
    const leases = async (): Promise<readonly bigint[]> => {
      const { kvs } = await scene.direct.range({ key: 'holdfast/line/ended/', end: 'holdfast/line/ended0' })
      return kvs.map(({ lease }) => lease)
    }
    const first = await locks.mutex('ended').acquire()
    const [leaseOfFirst] = await leases()
    const cutOff = others.mutex('ended').acquire()
    await inLine(2)
    proxy.blackHole()
    for (const lease of await leases()) if (lease !== leaseOfFirst) await scene.direct.revoke(lease)
    await inLine(1)
    const second = locks.mutex('ended').acquire()
    await inLine(2)
    await first.release()
    const granted = await second
    await proxy.heal()
    await inLine(2)
    const [holder, waiter] = (await locks.inspect('ended')).entries
    expect([holder?.token, holder?.state, waiter?.state]).toEqual([granted.token, 'held', 'waiting'])
    await granted.release()
    expect((await cutOff).token).toBe(waiter?.token)
  })

  test('what the server has compacted away while a waiter was cut off does not keep it waiting', async () => {
    const { proxy, url } = await proxied()
    const [engine, other] = [await scene.open(url), await scene.open()]
    const news = vi.fn()
    await engine.subscribe?.(news)
    const [holder, waiter] = [claimOf('compacted'), claimOf('compacted')]
    await other.enter([holder])
    await engine.enter([waiter])
    await proxy.refuse()
    await other.leave([holder])
    const { header } = await scene.direct.txn({ success: [{ put: { key: 'something', value: 'else', lease: 0n } }] })
    const body = JSON.stringify({ revision: String(header.revision) })
    await fetch(`http://127.0.0.1:${scene.server.port}/v3/kv/compaction`, { method: 'POST', body })
    await proxy.heal()
    const told = { key: 'compacted', id: waiter.id, standing: expect.objectContaining({ state: 'held' }) }
    await vi.waitFor(() => expect(news).toHaveBeenCalledWith(told), LIMIT)
  })

  test('many waiters of one process are one watch, and hear of a release once', async () => {
    const { engine, locks } = await openLocks()
    const { locks: holding } = await openLocks()
    const first = await holding.mutex('many').acquire()
    const others = Array.from({ length: 20 }, async () => {
      const lease = await locks.mutex('many').acquire()
      await lease.release()
    })
    await vi.waitFor(async () => expect((await engine.inspect('many')).entries).toHaveLength(21), LIMIT)
    const watchers = async (): Promise<number> => {
      const metrics = await fetch(`http://127.0.0.1:${scene.server.port}/metrics`).then((answer) => answer.text())
      return Number(/^etcd_debugging_mvcc_watcher_total (\d+)/m.exec(metrics)?.[1])
    }
    // One for the line, and one of each engine for evictions.
    await vi.waitFor(async () => expect(await watchers()).toBe(3), LIMIT)
    await first.release()
    await Promise.all(others)
  })

  test('a format that is newer than ours is refused by name', async () => {
    const engine = await scene.open()
    await scene.direct.txn({
      success: [{ put: { key: 'holdfast/line/newer/1', value: '{"v":2,"weight":1,"limit":1}', lease: 0n } }],
    })
    await scene.direct.txn({ success: [{ put: { key: 'holdfast/line/strange/1', value: 'hello', lease: 0n } }] })
    const [newer, strange] = await engine.enter([claimOf('newer'), claimOf('strange')])
    const said = (message: RegExp): object => ({ transient: false, message: expect.stringMatching(message) })
    expect(newer).toMatchObject({ state: 'failed', error: said(/newer Holdfast \(format 2\)/) })
    expect(strange).toMatchObject({ state: 'failed', error: said(/is no entry of a line/) })
    expect(newer?.state === 'failed' && newer.error).toBeInstanceOf(EngineError)
  })

  test('the engine knows what about its cluster to warn of', async () => {
    const engine = await scene.open()
    const findings = await engine.diagnose()
    expect(findings.map(({ name }) => name)).toEqual(['version', 'smallest ttl'])
    expect(findings[1]).toMatchObject({ status: 'ok', finding: '2s' })
  })

  describe('a guard for writes in etcd itself', () => {
    /** As any client can: through the JSON gateway. */
    async function write(compare: object, value: string): Promise<boolean> {
      const request = { compare: [compare], success: [{ request_put: { key: btoa('guarded'), value: btoa(value) } }] }
      const answer = await fetch(`http://127.0.0.1:${scene.server.port}/v3/kv/txn`, {
        method: 'POST',
        body: JSON.stringify(request),
      })
      return ((await answer.json()) as { succeeded?: boolean }).succeeded === true
    }

    test('a write under the condition of a guard is done while the lease is held, and refused when it has ended', async () => {
      const [{ engine, locks }, { locks: others }] = [await openLocks(), await openLocks()]
      const lease = await locks.mutex('guard').acquire()
      const condition = engine.guard(lease)
      const compare = { ...condition, key: btoa(condition.key) }
      expect(await write(compare, 'held')).toBe(true)
      // Not by us: our own engine does not know yet.
      expect(await others.evict('guard', lease.token ?? 0n, 'now')).toBe(true)
      const next = await others.mutex('guard').acquire()
      expect(await write(compare, 'late')).toBe(false)
      expect((await scene.direct.range({ key: 'guarded' })).kvs[0]?.value.toString()).toBe('held')
      await next.release()
      await lease.release()
      expect(() => engine.guard(lease)).toThrow(LeaseLostError)
    })

    test('another client takes it, too', async () => {
      const { engine, locks } = await openLocks()
      const client = new Etcd3({ hosts: `127.0.0.1:${scene.server.port}` })
      onTestFinished(() => client.close())
      const lease = await locks.mutex('guard of etcd3').acquire()
      const { key, create_revision: revision } = engine.guard(lease)
      const guarded = async (): Promise<boolean> =>
        (await client.if(key, 'Create', '==', revision).then(client.put('by etcd3').value('x')).commit()).succeeded
      expect(await guarded()).toBe(true)
      await lease.release()
      expect(await guarded()).toBe(false)
    })
  })
})
