/**
 * Keys in a line that are no entries of ours: of `etcdctl lock` under our prefix, or of a newer Holdfast. An entry
 * behind such a key is refused, and leaves nothing behind; no other entry is concerned.
 */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { EtcdClient } from '../../src/clients/etcd/client.ts'
import { type EtcdEngine, openEtcd } from '../../src/engines/etcd/index.ts'
import { newClaim } from '../claims.ts'
import { EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const REFUSED = { state: 'failed', error: { outcome: 'not-applied', transient: false } }

await describeServer('strangers in lines of etcd', findOwnEtcd, (source) => {
  let server: EtcdServer
  let direct: EtcdClient

  beforeAll(async () => {
    server = await EtcdServer.start(source)
    direct = new EtcdClient({ endpoints: [server] })
  })
  afterAll(async () => {
    direct.close()
    await server[Symbol.asyncDispose]()
  })

  async function open(): Promise<EtcdEngine> {
    const engine = await openEtcd(server.url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  async function put(key: string, value = ''): Promise<void> {
    await direct.txn({ success: [{ put: { key, value, lease: 0n } }] })
  }

  /** In the order of the line. */
  async function keysOf(key: string): Promise<readonly string[]> {
    const line = { key: `holdfast/line/${key}/`, end: `holdfast/line/${key}0` }
    return (await direct.range({ ...line, oldestFirst: true })).kvs.map((kv) => kv.key)
  }

  test.each([
    { wait: true, value: '' },
    { wait: false, value: '' },
    { wait: true, value: '{"v":2,"weight":1,"limit":1}' },
  ])('an enter behind one is refused, and leaves nothing in the line: $wait, $value', async ({ wait, value }) => {
    const engine = await open()
    const key = `behind ${wait} ${value.length}`
    const stranger = `holdfast/line/${key}/6f81`
    await put(stranger, value)
    const claim = newClaim(key, { wait })
    expect((await engine.enter([claim]))[0]).toMatchObject(REFUSED)
    expect(await keysOf(key)).toEqual([stranger])
    // As the core does, should it not be sure.
    expect(await engine.leave([claim])).toEqual([false])
  })

  test('one that comes behind a waiter concerns neither the waiter nor the other entries of its beat', async () => {
    const [engine, other] = [await open(), await open()]
    const news = vi.fn()
    await engine.subscribe(news)
    const [holder, waiter] = [newClaim('before'), newClaim('before')]
    const neighbours = Array.from({ length: 50 }, (_, index) => newClaim(`neighbour ${index}`))
    await other.enter([holder])
    await engine.enter([waiter, ...neighbours])
    await put('holdfast/line/before/6f81')
    const states = (await engine.renew([waiter, ...neighbours])).map(({ state }) => state)
    expect(states).toEqual(['waiting', ...neighbours.map(() => 'held')])
    await other.leave([holder])
    const told = { key: 'before', id: waiter.id, standing: expect.objectContaining({ state: 'held' }) }
    await vi.waitFor(() => expect(news).toHaveBeenCalledWith(told), LIMIT)
  })

  test('one in the place of the holder refuses the renewals of its waiters, and no others', async () => {
    const [engine, other] = [await open(), await open()]
    const [holder, waiter] = [newClaim('in front'), newClaim('in front')]
    const neighbours = Array.from({ length: 50 }, (_, index) => newClaim(`beside ${index}`))
    await other.enter([holder])
    await engine.enter([waiter, ...neighbours])
    const [first] = await keysOf('in front')
    // It keeps its place in line: that is when the key was created.
    await put(first as string)
    const [standing, ...rest] = await engine.renew([waiter, ...neighbours])
    expect(standing).toMatchObject(REFUSED)
    expect(rest.map(({ state }) => state)).toEqual(neighbours.map(() => 'held'))
  })

  test('leaving such a line does not fail the other leaves of its batch', async () => {
    const engine = await open()
    const neighbour = newClaim('left beside')
    await put('holdfast/line/left/6f81')
    await engine.enter([neighbour])
    expect(await engine.leave([newClaim('left'), neighbour])).toEqual([false, true])
  })
})
