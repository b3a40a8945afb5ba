/** Records on a real ZooKeeper: what is swept and when, what another program has put, and round trips. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { isRefused, isStored, putOne, putting, read, removing, textOf } from '../../conformance/records.ts'
import { OPCODE } from '../../src/clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { readRecord, writeRecord } from '../../src/engines/zookeeper/record-codec.ts'
import { RecordNodes } from '../../src/engines/zookeeper/record-nodes.ts'
import { newClaim } from '../claims.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperTap } from '../servers/zookeeper-tap.ts'

const LIMIT = { timeout: 30_000, interval: 20 }
const ROOT = '/holdfast-records'
/** A slot that ended long ago. */
const ENDED = 60_000
const NOTHING = Buffer.alloc(0)

await describeServer('records of ZooKeeper', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  async function open(url: string = server.url): Promise<ZooKeeperEngine> {
    const engine = await openZooKeeper(url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  function direct(): ZooKeeperSession {
    const servers = { endpoints: [server], chroot: '' }
    const session = new ZooKeeperSession({ servers, clock: systemClock, timeoutMs: 10_000 })
    onTestFinished(() => session.close())
    return session
  }

  /** An engine that puts records sweeps when it is closed. */
  async function sweep(): Promise<void> {
    const engine = await openZooKeeper(server.url)
    isStored(await putOne(engine.store, putting('sweeps', 'now')))
    await engine[Symbol.asyncDispose]()
  }

  const persistent = (path: string, data = NOTHING): Parameters<ZooKeeperSession['create']>[0] => ({
    path,
    data,
    mode: 'persistent',
    acl: 'open',
  })

  /** A record, changed once after it was created, that is said to be in the slot that ended long ago. */
  async function putEnded(key: string, ttlMs: number, slot = ENDED): Promise<void> {
    isStored(await putOne((await open()).store, putting('makes the nodes', 'x', {}, { ttlMs: 1 })))
    const session = direct()
    const value = Buffer.from('ended')
    await session.create(persistent(`${ROOT}/keys/${key}`))
    await session.setData(`${ROOT}/keys/${key}`, writeRecord({ kind: 'value', mark: 0n, ttlMs, slot, value }))
    await session.create(persistent(`${ROOT}/expiring/${ENDED}`)).catch(() => undefined)
    await session.create(persistent(`${ROOT}/expiring/${ENDED}/${key}`))
  }

  const isThere = async (path: string): Promise<boolean> => (await direct().exists(path)) !== undefined

  test('changes of one process, one after the other, are one request each', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const engine = await open(tap.url)
    const claim = newClaim('trips', { ttlMs: 60_000 })
    await engine.enter([claim])
    isStored(await putOne(engine.store, putting('warm', 'up', {}, { ttlMs: 60_000 })))
    const before = tap.requests.length
    const when = { holding: claim.id }
    const ttl = { ttlMs: 60_000 }
    const started = isStored(await putOne(engine.store, putting('trips', '1', { ...when, absent: true }, ttl)))
    isStored(await putOne(engine.store, putting('trips', '2', { ...when, version: started.version }, ttl)))
    isStored(await putOne(engine.store, putting('trips', '3', when)))
    expect(tap.requests.slice(before).filter((opcode) => opcode !== OPCODE.ping)).toEqual(Array(3).fill(OPCODE.multi))
  })

  test('a record that has expired is swept, and what is still there is not', async () => {
    await putEnded('over', 1)
    await putEnded('lasting', 3_600_000)
    await putEnded('moved', 0, 0)
    const { store } = await open()
    await vi.waitFor(async () => expect(await textOf(store, 'over')).toBe(null), LIMIT)
    await sweep()
    expect(await isThere(`${ROOT}/keys/over`)).toBe(false)
    expect(await direct().getChildren(`${ROOT}/expiring/${ENDED}`)).toEqual(['lasting'])
    expect([await textOf(store, 'lasting'), await textOf(store, 'moved')]).toEqual(['ended', 'ended'])
  })

  test('a record of a newer version in a slot that has ended stays, and the others there are swept', async () => {
    await putEnded('beside it', 1)
    await putEnded('newer', 1)
    const newer = Buffer.concat([Buffer.from([2]), Buffer.alloc(40)])
    await direct().setData(`${ROOT}/keys/newer`, newer)
    const { store } = await open()
    await vi.waitFor(async () => expect(await textOf(store, 'beside it')).toBe(null), LIMIT)
    await sweep()
    expect(await isThere(`${ROOT}/keys/beside it`)).toBe(false)
    expect((await direct().getData(`${ROOT}/keys/newer`)).data).toEqual(newer)
    await direct().delete(`${ROOT}/keys/newer`)
    await sweep()
    expect(await direct().getChildren(`${ROOT}/expiring/${ENDED}`)).not.toContain('newer')
  })

  test('a record that is put again while its slot ends is in the slot by which it is swept', async () => {
    const { store } = await open()
    const now = vi.spyOn(Date, 'now').mockReturnValue(Date.UTC(2040, 0, 1))
    onTestFinished(() => now.mockRestore())
    const put = async (ttlMs: number): Promise<unknown> =>
      isStored(await putOne(store, putting('slots', 'x', {}, { ttlMs })))
    await put(120_000)
    await put(3_600_000)
    // Its node of the first put is there. When that was told, and the record is read again, the next slot has begun.
    const read = RecordNodes.prototype.read
    const reading = vi.spyOn(RecordNodes.prototype, 'read').mockImplementation(function (this: RecordNodes, ...asked) {
      now.mockReturnValue(Date.UTC(2040, 0, 1, 1))
      return read.apply(this, asked)
    })
    onTestFinished(() => reading.mockRestore())
    await put(120_000)
    expect(reading).toHaveBeenCalled()
    const { slot } = readRecord('', await direct().getData(`${ROOT}/keys/slots`))
    expect(await direct().getChildren(`${ROOT}/expiring/${slot}`)).toEqual(['slots'])
  })

  test('what was known of a record that was swept meanwhile does not overwrite the one that came after it', async () => {
    await putEnded('again', 1)
    const [{ store }, { store: other }] = [await open(), await open()]
    await vi.waitFor(async () => expect(await textOf(store, 'again')).toBe(null), LIMIT)
    await sweep()
    expect(await isThere(`${ROOT}/keys/again`)).toBe(false)
    // Its node has been changed as often as the one before it.
    isStored(await putOne(other, putting('again', 'new')))
    isRefused(await putOne(store, putting('again', 'old', { absent: true })), 'absent', 'new')
    expect(await textOf(other, 'again')).toBe('new')
  })

  test('what was removed where no entry stands is swept, and leaves the line as it was', async () => {
    const engine = await open()
    for (const key of ['never entered', 'left']) {
      if (key === 'left') {
        const claim = newClaim(key, { ttlMs: 60_000 })
        await engine.enter([claim])
        await engine.leave([claim])
      }
      isStored(await putOne(engine.store, putting(key, 'x')))
      const { version } = isStored(await putOne(engine.store, removing(key)))
      expect(await read(engine.store, key)).toMatchObject({ value: null, version: 0n })
      const next = isStored(await putOne(engine.store, putting(key, 'y', { version: 0n })))
      expect(next.version).toBeGreaterThan(version)
      expect((await engine.enter([newClaim(key, { ttlMs: 60_000 })]))[0]).toMatchObject({ state: 'held' })
    }
  })

  test('a change whose reply is lost is of unknown outcome, and was made', async () => {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [engine, other] = [await open(`zookeeper://127.0.0.1:${proxy.port}`), await open()]
    isStored(await putOne(engine.store, putting('lost', 'first')))
    proxy.blackHole('replies')
    const putting2 = engine.store.put([putting('lost', 'second')])
    await vi.waitFor(async () => expect(await textOf(other.store, 'lost')).toBe('second'), LIMIT)
    proxy.reset()
    expect(await putting2).toMatchObject([{ state: 'failed', error: { outcome: 'unknown', transient: true } }])
    await proxy.heal()
    expect(await textOf(engine.store, 'lost')).toBe('second')
  })

  test('a record of a newer version, or of another program, is refused and left alone', async () => {
    const { store } = await open()
    isStored(await putOne(store, putting('makes the nodes', 'x')))
    const session = direct()
    for (const [nth, data] of [Buffer.concat([Buffer.from([2]), Buffer.alloc(40)]), Buffer.from('hello')].entries()) {
      const path = `${ROOT}/keys/odd ${nth}`
      await session.create(persistent(path, data))
      // What was asked for in the same batch is answered.
      expect(await store.get(['makes the nodes', `odd ${nth}`])).toMatchObject([
        { state: 'read', stored: { key: 'makes the nodes' } },
        { state: 'failed', error: { transient: false, outcome: 'not-applied' } },
      ])
      expect(await store.put([removing(`odd ${nth}`)])).toMatchObject([
        { state: 'failed', error: { transient: false } },
      ])
      expect((await session.getData(path)).data).toEqual(data)
    }
  })

  test('a chroot that does not exist is named, and nothing is created', async () => {
    const { store } = await open(`${server.url}/no/such`)
    expect(await read(store, 'x')).toMatchObject({ value: null })
    expect(await store.put([putting('x', 'y')])).toMatchObject([
      { state: 'failed', error: { message: expect.stringContaining("the node '/no/such'") } },
    ])
    expect(await isThere('/no')).toBe(false)
  })
})
