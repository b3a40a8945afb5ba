/** What a waiter concludes from an event, without reading its line; and what it must not conclude. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { OPCODE } from '../../src/clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import { systemClock } from '../../src/core/clock.ts'
import { type Claim, type News, UNLIMITED } from '../../src/core/engine.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { newClaim } from '../claims.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperTap } from '../servers/zookeeper-tap.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const TTL_MS = 20_000
const reader = { weight: 1, limit: UNLIMITED }

await describeServer('hand-off on ZooKeeper', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  const claimOf = (key: string, more: Partial<Claim> = {}): Claim => newClaim(key, { ttlMs: TTL_MS, ...more })

  async function open(url: string = server.url): Promise<ZooKeeperEngine> {
    const engine = await openZooKeeper(url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  interface Waiter {
    readonly engine: ZooKeeperEngine
    readonly tap: ZooKeeperTap
    readonly proxy: FaultProxy
    readonly news: News[]
  }

  /** Claims that wait in an engine of their own, whose requests are counted and whose connection can be cut. */
  async function waiterFor(claims: readonly Claim[]): Promise<Waiter> {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const proxy = await FaultProxy.start(tap)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const engine = await open(`zookeeper://127.0.0.1:${proxy.port}`)
    const news: News[] = []
    await engine.subscribe((told) => news.push(told))
    for (const standing of await engine.enter(claims)) expect(standing).toMatchObject({ state: 'waiting' })
    await settled(engine)
    return { engine, tap, proxy, news }
  }

  /** Until this engine has heard what the server had to tell, has read what that made it read, and watches it. */
  async function settled(engine: ZooKeeperEngine): Promise<void> {
    for (let step = 0; step < 3; step += 1) await engine.inspect('something else')
  }

  const heldIds = (news: readonly News[]): readonly string[] =>
    news.flatMap((told) => ('standing' in told && told.standing?.state === 'held' ? [told.id] : []))

  test.each([
    ['a mutex', { weight: 1, limit: 1 }],
    ['a writer behind a reader', { weight: 1, limit: 1 }, reader],
    ['a reader behind a writer', reader],
  ])('%s is handed off by one event, and nothing is read', async (key, rule, first = { weight: 1, limit: 1 }) => {
    const other = await open()
    const [holder, claim] = [claimOf(key, first), claimOf(key, rule)]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor([claim])
    waiter.tap.requests.length = 0
    waiter.tap.events.length = 0
    await other.leave([holder])
    await vi.waitFor(() => expect(heldIds(waiter.news)).toEqual([claim.id]), LIMIT)
    expect(waiter.tap.requests.filter((opcode) => opcode !== OPCODE.ping)).toEqual([])
    expect(waiter.tap.events).toHaveLength(1)
    expect((await waiter.engine.renew([claim]))[0]).toMatchObject({ state: 'held' })
    expect((await other.inspect(key)).entries).toMatchObject([{ id: claim.id }])
  })

  test('a waiter does not hold when the holder moves to another session', async () => {
    const [other, third] = [await open(), await open()]
    const [holder, claim] = [claimOf('moved'), claimOf('moved')]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor([claim])
    for (const engine of [third, other, third]) {
      waiter.tap.events.length = 0
      expect((await engine.renew([holder]))[0]).toMatchObject({ state: 'held' })
      await vi.waitFor(() => expect(waiter.tap.events).toHaveLength(1), LIMIT)
      await settled(waiter.engine)
    }
    expect(heldIds(waiter.news)).toEqual([])
    await third.leave([holder])
    await vi.waitFor(() => expect(heldIds(waiter.news)).toEqual([claim.id]), LIMIT)
  })

  test('a waiter does not hold when the holder is released for later', async () => {
    const other = await open()
    const [holder, claim] = [claimOf('later', { ttlMs: 4_000 }), claimOf('later')]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor([claim])
    waiter.tap.events.length = 0
    expect((await other.renew([{ ...holder, outlives: true }]))[0]).toMatchObject({ state: 'held' })
    await vi.waitFor(() => expect(waiter.tap.events).toHaveLength(1), LIMIT)
    await settled(waiter.engine)
    expect(heldIds(waiter.news)).toEqual([])
    await vi.waitFor(() => expect(heldIds(waiter.news)).toEqual([claim.id]), LIMIT)
  })

  test('a waiter that was evicted before the holder left does not hold', async () => {
    const other = await open()
    const [holder, claim] = [claimOf('evicted'), claimOf('evicted')]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor([claim])
    // What it reads when it hears of the eviction comes late.
    const pass = waiter.tap.keepBack(OPCODE.getChildren2)
    waiter.tap.events.length = 0
    await evict(other, claim)
    await other.leave([holder])
    await vi.waitFor(() => expect(waiter.tap.events).toHaveLength(2), LIMIT)
    pass()
    await settled(waiter.engine)
    expect(heldIds(waiter.news)).toEqual([])
    expect((await waiter.engine.renew([claim]))[0]).toMatchObject({ state: 'gone', why: 'evicted' })
  })

  test('a waiter that was evicted, and then the holder left, while its connection was cut, does not hold', async () => {
    const other = await open()
    const [holder, claim] = [claimOf('cut'), claimOf('cut')]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor([claim])
    // It watches its own entry anew, and so behind that of the holder: the server tells it of the holder first.
    const session = direct()
    const [name] = (await session.getChildren('/holdfast/cut')).filter((child) => child.includes(claim.id))
    const path = `/holdfast/cut/${name}`
    const { data } = await session.getData(path)
    waiter.tap.events.length = 0
    await session.setData(path, data)
    await vi.waitFor(() => expect(waiter.tap.events).toHaveLength(1), LIMIT)
    await settled(waiter.engine)
    await waiter.proxy.refuse()
    await evict(other, claim)
    await other.leave([holder])
    await waiter.proxy.heal()
    await vi.waitFor(async () => {
      expect((await waiter.engine.renew([claim]))[0]).toMatchObject({ state: 'gone', why: 'evicted' })
    }, LIMIT)
    expect(heldIds(waiter.news)).toEqual([])
  })

  function direct(): ZooKeeperSession {
    const session = new ZooKeeperSession({
      servers: { endpoints: [server], chroot: '' },
      clock: systemClock,
      timeoutMs: 10_000,
    })
    onTestFinished(() => session.close())
    return session
  }

  test('a waiter does not hold when the first of two entries of one id has gone: the second one counts then', async () => {
    const [other, session] = [await open(), direct()]
    // So that the line has its node.
    const [first, claim] = [claimOf('twice'), claimOf('twice')]
    await other.enter([first])
    await other.leave([first])
    const path = `/holdfast/twice/hf1-${first.id}-1-1__lock__`
    const entry = { path, data: Buffer.from('{}'), mode: 'ephemeral-sequential', acl: 'open' } as const
    const [counts, duplicate] = [await session.create(entry), await session.create(entry)]
    const waiter = await waiterFor([claim])
    waiter.tap.events.length = 0
    await session.delete(counts.path)
    await vi.waitFor(() => expect(waiter.tap.events).toHaveLength(1), LIMIT)
    await settled(waiter.engine)
    expect(heldIds(waiter.news)).toEqual([])
    await session.delete(duplicate.path)
    await vi.waitFor(() => expect(heldIds(waiter.news)).toEqual([claim.id]), LIMIT)
  })

  async function evict(engine: ZooKeeperEngine, { key, id }: Claim): Promise<void> {
    const entry = (await engine.inspect(key)).entries.find((one) => one.id === id)
    expect(await engine.evict(key, entry?.token ?? 0n, 'now')).toBe(true)
  }

  test('of several waiters of a process, each holds in its turn', async () => {
    const other = await open()
    const [holder, ...claims] = Array.from({ length: 5 }, () => claimOf('in turn')) as [Claim, ...Claim[]]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor(claims)
    await other.leave([holder])
    for (const [index, claim] of claims.entries()) {
      await vi.waitFor(() => expect(heldIds(waiter.news)).toHaveLength(index + 1), LIMIT)
      expect(await waiter.engine.leave([claim])).toEqual([true])
    }
    expect(heldIds(waiter.news)).toEqual(claims.map(({ id }) => id))
  })

  test('a waiter hears of an entry of its own process that moved, also when this process has forgotten it', async () => {
    const other = await open()
    const short = { ttlMs: 2_000 }
    const [moved, forgotten, claim] = [
      claimOf('elsewhere', short),
      claimOf('forgotten', short),
      claimOf('elsewhere', short),
    ]
    const engine = await open()
    const news: News[] = []
    await engine.subscribe((told) => news.push(told))
    for (const standing of await engine.enter([moved, forgotten])) expect(standing).toMatchObject({ state: 'held' })
    expect((await engine.enter([claim]))[0]).toMatchObject({ state: 'waiting' })
    // Until the first one has looked for what it is not asked for any more.
    const isForgotten = async (): Promise<void> => {
      expect((await other.renew([moved]))[0]).toMatchObject({ state: 'held' })
      const { entries } = await other.inspect('forgotten')
      if (entries.length > 0) await engine.renew([claim])
      expect(entries).toEqual([])
    }
    await vi.waitFor(isForgotten, { ...LIMIT, interval: 100 })
    await settled(engine)
    expect(heldIds(news)).toEqual([])
    await other.leave([moved])
    await vi.waitFor(() => expect(heldIds(news)).toEqual([claim.id]), { ...LIMIT, timeout: 1_500 })
  })

  test('readers behind a writer hold together, also one whose own entry was not watched yet', async () => {
    const other = await open()
    const [holder, ...claims] = [
      claimOf('readers'),
      ...Array.from({ length: 3 }, () => claimOf('readers', reader)),
    ] as [Claim, ...Claim[]]
    expect((await other.enter([holder]))[0]).toMatchObject({ state: 'held' })
    const waiter = await waiterFor(claims)
    await other.leave([holder])
    await vi.waitFor(() => expect(heldIds(waiter.news)).toEqual(claims.map(({ id }) => id)), LIMIT)
  })
})
