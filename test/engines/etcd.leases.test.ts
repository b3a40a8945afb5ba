/** Leases on a real etcd: one for each ttl, however many ask for it at once, and none that an engine leaves behind. */

import { expect, onTestFinished, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { GRPC_STATUS, RpcError } from '../../src/clients/etcd/errors.ts'
import { systemClock } from '../../src/core/clock.ts'
import type { Claim } from '../../src/core/engine.ts'
import { EtcdEngine } from '../../src/engines/etcd/engine.ts'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { newClaim } from '../claims.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { EtcdScene } from './etcd-scene.ts'

const LIMIT = { timeout: 30_000, interval: 10 }

type Question = Parameters<EtcdClient['call']>

/** Answers to these services are kept back until they are let go, one by one. */
class Holding extends EtcdClient {
  readonly services = new Set<string>()
  readonly kept: (() => void)[] = []

  override async call(...question: Question): Promise<Buffer> {
    const answer = await super.call(...question)
    if (!this.services.has(question[0].slice(question[0].lastIndexOf('/') + 1))) return answer
    await new Promise<void>((resolve) => this.kept.push(resolve))
    return answer
  }
}

/** Does what it is asked, and says that the database was full, if a transaction is to put something. */
class Lying extends EtcdClient {
  saysFull = false

  override async txn(...question: Parameters<EtcdClient['txn']>): ReturnType<EtcdClient['txn']> {
    const answer = await super.txn(...question)
    if (!this.saysFull || !JSON.stringify(question[0].success, bigints).includes('"put"')) return answer
    throw new RpcError(GRPC_STATUS.resourceExhausted, 'etcdserver: mvcc: database space exceeded')
  }
}

const bigints = (_: string, value: unknown): unknown => (typeof value === 'bigint' ? String(value) : value)

/** Of a ttl that ends by itself after the test has. */
function claimOf(key: string): Claim {
  return newClaim(key, { ttlMs: 300_000 })
}

await describeServer('leases of etcd', findOwnEtcd, (source) => {
  const scene = new EtcdScene(source)

  const open = (): { readonly client: Holding; readonly engine: EtcdEngine } => scene.openOn(Holding)

  /** Every lease that the server has. */
  async function leases({ port }: EtcdServer = scene.server): Promise<readonly bigint[]> {
    const answer = await fetch(`http://127.0.0.1:${port}/v3/lease/leases`, { method: 'POST', body: '{}' })
    const { leases: found = [] } = (await answer.json()) as { leases?: { ID: string }[] }
    return found.map(({ ID }) => BigInt(ID))
  }

  test('two that find their lease ended, one after the other, have one granted', async () => {
    const { client, engine } = open()
    const [first, second] = [claimOf('one'), claimOf('other')]
    await engine.enter([first])
    const [ended] = await leases()
    await client.revoke(ended as bigint)
    client.services.add('LeaseKeepAlive')
    const renewals = [engine.renew([first]), engine.renew([second])]
    await vi.waitFor(() => expect(client.kept).toHaveLength(2), LIMIT)
    client.services.clear()
    // The order does not matter.
    client.kept[0]?.()
    await Promise.race(renewals)
    client.kept[1]?.()
    await Promise.all(renewals)
    expect(await leases()).toHaveLength(1)
  })

  test('an engine that is closed leaves no lease, though one was being granted, and grants no other', async () => {
    const before = await leases()
    const { client, engine } = open()
    client.services.add('LeaseGrant')
    const entering = engine.enter([claimOf('closing')])
    await vi.waitFor(() => expect(client.kept).toHaveLength(1), LIMIT)
    const closing = engine[Symbol.asyncDispose]()
    const late = engine.enter([{ ...claimOf('closed'), ttlMs: 200_000 }])
    client.kept[0]?.()
    await Promise.all([entering, closing])
    const [standing] = await late
    expect(standing).toMatchObject({ state: 'failed', error: { outcome: 'not-applied', transient: false } })
    expect(await leases()).toEqual(before)
  })

  test('an enter that a full database refuses costs no other entry its lease', async () => {
    await using full = await EtcdServer.start(source)
    const engine = new EtcdEngine(new EtcdClient({ endpoints: [full] }), 'holdfast/', systemClock)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    const [held, other] = [claimOf('held'), claimOf('other')]
    await engine.enter([held, other])
    const before = await leases(full)
    const alarm = { action: 'ACTIVATE', alarm: 'NOSPACE' }
    await fetch(`http://127.0.0.1:${full.port}/v3/maintenance/alarm`, { method: 'POST', body: JSON.stringify(alarm) })
    const refused = { state: 'failed', error: { outcome: 'not-applied', transient: true } }
    const claims = [claimOf('in vain'), { ...claimOf('in vain, too'), wait: false }, claimOf(held.key)]
    // One by one: the server does not count what is put by a transaction inside a transaction.
    for (const claim of claims) expect((await engine.enter([claim]))[0]).toMatchObject(refused)
    expect((await engine.renew([held, other])).map(({ state }) => state)).toEqual(['held', 'held'])
    expect(await leases(full)).toEqual(before)
    expect((await engine.inspect(held.key)).entries).toHaveLength(1)
    expect(await engine.leave([held])).toEqual([true])
  })

  test('an enter that was applied, though the server says that its database is full, is found', async () => {
    const client = new Lying({ endpoints: [scene.server] })
    const engine = new EtcdEngine(client, 'holdfast/', systemClock)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    await engine.enter([claimOf('granted before')])
    const before = await leases()
    client.saysFull = true
    const [first, second] = [claimOf('applied'), claimOf('applied')]
    expect((await engine.enter([first]))[0]).toMatchObject({ state: 'held' })
    expect((await engine.enter([second]))[0]).toMatchObject({ state: 'waiting', ahead: 1 })
    client.saysFull = false
    expect((await engine.renew([first, second])).map(({ state }) => state)).toEqual(['held', 'waiting'])
    expect(await leases()).toEqual(before)
  })

  test('what was released while the server was away goes when it is back, however long its lease would live', async () => {
    const proxy = await FaultProxy.start(scene.server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const engine = await openEtcd(`etcd://127.0.0.1:${proxy.port}`)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    const before = await leases()
    // In the place of a new leader, which gives each lease its whole time again: a ttl that is longer than the test.
    const [released, other] = [claimOf('released'), claimOf('released, too')]
    await engine.enter([released, other])
    await proxy.refuse()
    await expect(engine.leave([released])).rejects.toMatchObject({ transient: true })
    await expect(engine.leave([other])).rejects.toMatchObject({ transient: true })
    await proxy.heal()
    await vi.waitFor(async () => expect(await leases()).toEqual(before), LIMIT)
    expect((await engine.inspect('released')).entries).toEqual([])
  })

  test('an engine that is closed while the server is away does not wait until it is back', async () => {
    const proxy = await FaultProxy.start(scene.server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const engine = await openEtcd(`etcd://127.0.0.1:${proxy.port}`)
    const claim = { ...claimOf('closed while away'), ttlMs: 2_000 }
    await engine.enter([claim])
    await proxy.refuse()
    await expect(engine.leave([claim])).rejects.toThrow()
    await engine[Symbol.asyncDispose]()
  })

  test('an enter of an entry that is there says that it is an enter that failed, also where its renewal does', async () => {
    const proxy = await FaultProxy.start(scene.server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const client = new Holding({ endpoints: [{ host: '127.0.0.1', port: proxy.port }] })
    const engine = new EtcdEngine(client, 'holdfast/', systemClock)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    const claim = claimOf('entered again')
    await engine.enter([claim])
    client.services.add('Txn')
    const entering = engine.enter([claim])
    await vi.waitFor(() => expect(client.kept).toHaveLength(1), LIMIT)
    await proxy.refuse()
    client.kept.shift()?.()
    const message = expect.stringMatching(/^etcd: enter: /)
    expect(await entering).toMatchObject([{ state: 'failed', error: { message } }])
    await proxy.heal()
  })
})
