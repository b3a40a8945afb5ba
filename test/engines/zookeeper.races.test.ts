/** What a slow way, a lost reply or another client can do between two requests of this engine. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { OPCODE } from '../../src/clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import type { ZooKeeperServers } from '../../src/clients/zookeeper/session-connection.ts'
import { systemClock } from '../../src/core/clock.ts'
import { type Claim, UNLIMITED } from '../../src/core/engine.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { newClaim } from '../claims.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperTap } from '../servers/zookeeper-tap.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const TTL_MS = 20_000
const held = { state: 'held' }
const reader = { weight: 1, limit: UNLIMITED }

await describeServer('ZooKeeper between two requests', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source, { java: ['-Dznode.container.checkIntervalMs=600000'] })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  async function open(url: string = server.url): Promise<ZooKeeperEngine> {
    const engine = await openZooKeeper(url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  async function proxied(): Promise<{ readonly engine: ZooKeeperEngine; readonly proxy: FaultProxy }> {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    return { engine: await open(`zookeeper://127.0.0.1:${proxy.port}`), proxy }
  }

  const claimOf = (key: string, more: Partial<Claim> = {}): Claim => newClaim(key, { ttlMs: TTL_MS, ...more })

  async function state(engine: ZooKeeperEngine, claim: Claim): Promise<string | undefined> {
    return (await engine.enter([claim]))[0]?.state
  }

  test.each(['given up', 'repeated'])('a try whose reply is lost and that is %s does not hold later', async (how) => {
    const key = `tried, ${how}`
    const [{ engine, proxy }, other] = [await proxied(), await open()]
    await engine.enter([claimOf('connected')])
    const [holder, lost] = [claimOf(key), claimOf(key, { wait: false })]
    expect(await state(other, holder)).toBe('held')
    const before = (await children(key)).length
    proxy.blackHole('replies')
    const asked = engine.enter([lost])
    await vi.waitFor(async () => expect(await children(key)).toHaveLength(before + 1), LIMIT)
    proxy.reset()
    expect((await asked)[0]).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
    await proxy.heal()
    // Given up, or asked for once more: nothing of it remains.
    if (how === 'given up') await engine.leave([lost])
    else expect(await state(engine, lost)).toBe('busy')
    expect(await children(key)).toHaveLength(before)
    await other.leave([holder])
    expect(await state(other, claimOf(key, { wait: false }))).toBe('held')
  })

  async function children(key: string): Promise<readonly string[]> {
    const session = direct()
    await session.confirm()
    return await session.getChildren(`/holdfast/${key}`)
  }

  test('a try for writing that reads its line late does not hold beside a reader behind it', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const [engine, other] = [await open(tap.url), await open()]
    await engine.enter([claimOf('connected')])
    const [first, tries, second] = [
      claimOf('shared', reader),
      claimOf('shared', { wait: false }),
      claimOf('shared', reader),
    ]
    expect(await state(other, first)).toBe('held')
    const pass = tap.keepBack(OPCODE.getChildren2)
    const trying = engine.enter([tries])
    // Its entry is there, and what it reads behind it is still on its way.
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)
    await vi.waitFor(async () => expect(await children('shared')).toHaveLength(2), LIMIT)
    const beside = other.enter([second])
    const holdsBeside = (await beside)[0]?.state === 'held'
    await other.leave([first])
    pass()
    const holds = (await trying)[0]?.state === 'held'
    expect({ holds, holdsBeside }).not.toEqual({ holds: true, holdsBeside: true })
    if (holds) await engine.leave([tries])
    await vi.waitFor(async () => expect((await other.renew([second]))[0]).toMatchObject(held), LIMIT)
  })

  test('a try for reading holds beside readers, though a try for writing is on its way out of the line', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const [engine, other] = [await open(tap.url), await open()]
    await engine.enter([claimOf('connected')])
    expect(await state(other, claimOf('read by many', reader))).toBe('held')
    const pass = tap.keepBack(OPCODE.delete)
    const writing = engine.enter([claimOf('read by many', { wait: false })])
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)
    const reading = other.enter([claimOf('read by many', { ...reader, wait: false })])
    await vi.waitFor(async () => expect(await children('read by many')).toHaveLength(3), LIMIT)
    pass()
    expect((await writing)[0]).toMatchObject({ state: 'busy' })
    expect((await reading)[0]).toMatchObject(held)
  })

  test('a try on its way out of the line is not shown as a waiter', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const [engine, other] = [await open(tap.url), await open()]
    await engine.enter([claimOf('connected')])
    const [holder, hasty, waiter] = [claimOf('shown'), claimOf('shown', { wait: false }), claimOf('shown')]
    expect(await state(other, holder)).toBe('held')
    const pass = tap.keepBack(OPCODE.delete)
    const trying = engine.enter([hasty])
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)
    expect(await children('shown')).toHaveLength(2)
    expect(await idsShown()).toEqual([holder.id])
    expect((await other.enter([waiter]))[0]).toMatchObject({ state: 'waiting', ahead: 1 })
    expect(await idsShown()).toEqual([holder.id, waiter.id])
    for await (const line of other.list('shown')) expect(line).toEqual({ key: 'shown', held: 1, waiting: 1 })
    // With the holder gone, the try is what the waiter waits for, and is shown.
    await other.leave([holder])
    expect(await idsShown()).toEqual([hasty.id, waiter.id])
    pass()
    expect((await trying)[0]).toMatchObject({ state: 'busy' })

    async function idsShown(): Promise<readonly string[]> {
      return (await other.inspect('shown')).entries.map(({ id }) => id)
    }
  })

  test('claims of one batch keep their order, though another client creates the node of their line between them', async () => {
    let pass: (() => void) | undefined
    let created = 0
    const tap = await ZooKeeperTap.start(server, (sent) => {
      if (sent === OPCODE.create2) created += 1
      if (created === 2) pass ??= tap.keepBack(OPCODE.create2)
      return sent
    })
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const [engine, other] = [await open(tap.url), await open()]
    // Connected, and the node of all lines is there.
    await engine.inspect('connected')
    await other.enter([claimOf('connected')])
    const entering = engine.enter([claimOf('between'), claimOf('between')])
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)
    const session = direct()
    // Behind the first of the two, which is on another connection.
    for (let round = 0; round < 20; round += 1) await session.confirm()
    const line = { path: '/holdfast/between', data: Buffer.alloc(0), mode: 'container', acl: 'open' } as const
    await session.create(line).catch(() => undefined)
    pass?.()
    expect((await entering).map(({ state }) => state)).toEqual(['held', 'waiting'])
  })

  test('an entry of Kazoo excludes ours, also if an earlier one of the same lock object was evicted', async () => {
    const [engine, session] = [await open(), direct()]
    await known(engine, ['of kazoo'])
    // An object of Kazoo has one name for all its entries.
    const path = `/holdfast/of kazoo/${'a'.repeat(32)}__lock__`
    const entry = { path, data: Buffer.from('kazoo'), mode: 'ephemeral-sequential', acl: 'open' } as const
    await session.create(entry)
    const [first] = (await engine.inspect('of kazoo')).entries
    expect(await engine.evict('of kazoo', first?.token ?? 0n, 'now')).toBe(true)
    const [freed] = await known(engine, ['of kazoo'])
    await session.create(entry)
    expect((await engine.enter([freed as Claim]))[0]).toMatchObject({ state: 'waiting', ahead: 1 })
  })

  test('an observer is told again after its watch was lost with the connection', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const proxy = await FaultProxy.start(tap)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [engine, other] = [await open(`zookeeper://127.0.0.1:${proxy.port}`), await open()]
    let told = 0
    await using _ = await engine.watch('observed', () => {
      told += 1
    })
    const pass = tap.keepBack(OPCODE.getChildren2)
    await other.enter([claimOf('observed')])
    // It is about to watch the line again.
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)
    proxy.reset()
    pass()
    await vi.waitFor(() => expect(told).toBeGreaterThan(0), LIMIT)
    await engine.inspect('connected')
    const before = told
    await vi.waitFor(async () => {
      await other.enter([claimOf('observed')])
      expect(told).toBeGreaterThan(before)
    }, LIMIT)
  })

  test('a waiter whose connection is cut before its line was read keeps its place', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const proxy = await FaultProxy.start(tap)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [engine, other] = [await open(`zookeeper://127.0.0.1:${proxy.port}`), await open()]
    await engine.enter([claimOf('connected')])
    const [holder, cut, behind] = [claimOf('unread'), claimOf('unread'), claimOf('unread')]
    expect(await state(other, holder)).toBe('held')
    const pass = tap.keepBack(OPCODE.getChildren2)
    const entering = engine.enter([cut])
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)
    await vi.waitFor(async () => expect(await children('unread')).toHaveLength(2), LIMIT)
    expect(await state(other, behind)).toBe('waiting')
    proxy.reset()
    pass()
    expect((await entering)[0]).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
    expect((await engine.enter([cut]))[0]).toMatchObject({ state: 'waiting', ahead: 1 })
    expect((await other.inspect('unread')).entries.map(({ id }) => id)).toEqual([holder.id, cut.id, behind.id])
  })

  test('a holder of Kazoo is not said to be evicted, unless it is taken out at once', async () => {
    const [engine, session] = [await open(), direct()]
    await known(engine, ['held by kazoo'])
    const path = `/holdfast/held by kazoo/${'b'.repeat(32)}__lock__`
    await session.create({ path, data: Buffer.from('kazoo'), mode: 'ephemeral-sequential', acl: 'open' })
    const token = (await engine.inspect('held by kazoo')).entries[0]?.token ?? 0n
    const refused = { code: 'ENGINE', outcome: 'not-applied', message: expect.stringContaining('at once') }
    await expect(engine.evict('held by kazoo', token, 'expire')).rejects.toMatchObject(refused)
    expect((await engine.inspect('held by kazoo')).entries).toMatchObject([{ holder: 'kazoo', token }])
    expect(await engine.evict('held by kazoo', token, 'now')).toBe(true)
    expect((await engine.inspect('held by kazoo')).entries).toEqual([])
  })

  test('an enter that is given up while its batch is refused leaves no entry behind', async () => {
    const { engine, proxy } = await proxied()
    const keys = ['given up a', 'given up b']
    const first = keys.map((key) => claimOf(key))
    await engine.enter(first)
    await engine.leave(first)
    const outside = await open()
    await direct().delete('/holdfast/given up a')
    proxy.blackHole('replies')
    const claims = keys.map((key) => claimOf(key))
    const [entering, leaving] = [engine.enter(claims), engine.leave(claims)]
    await proxy.heal()
    await leaving
    for (const { state } of await entering) expect(state).toBe('gone')
    for (const key of keys) expect((await outside.inspect(key)).entries).toEqual([])
  })

  test('an entry that has moved to another engine object stays, whatever the first one forgets', async () => {
    const [engine, other] = [await open(), await open()]
    const [moved, forgotten] = [claimOf('moved', { ttlMs: 2_000 }), claimOf('forgotten', { ttlMs: 2_000 })]
    const [standing] = await engine.enter([moved, forgotten])
    expect(standing).toMatchObject(held)
    // Until the first one has looked for what it is not asked for any more.
    await vi.waitFor(
      async () => {
        expect((await other.renew([moved]))[0]).toEqual(expect.objectContaining({ ...held, token: tokenOf(standing) }))
        expect((await other.inspect('forgotten')).entries).toEqual([])
      },
      { ...LIMIT, interval: 100 },
    )
    expect((await other.renew([moved]))[0]).toMatchObject({ ...held, token: tokenOf(standing) })
  })

  // ---- batches ----

  /** An engine, and claims whose lines have nodes: they are created in one transaction. */
  async function known(engine: ZooKeeperEngine, keys: readonly string[], more: Partial<Claim> = {}): Promise<Claim[]> {
    const first = keys.map((key) => claimOf(key, more))
    for (const standing of await engine.enter(first)) expect(standing).toMatchObject(held)
    await engine.leave(first)
    return keys.map((key) => claimOf(key, more))
  }

  test('a full batch of the longest keys and holders is no larger than a server reads', async () => {
    const engine = await open()
    const { batchLimit } = engine.traits
    const keys = Array.from({ length: batchLimit }, (_, index) => String(index).padStart(512, '%'))
    const claims = await known(engine, keys, { holder: '\u0001'.repeat(512) })
    for (const standing of await engine.enter(claims)) expect(standing).toMatchObject(held)
    for (const standing of await engine.renew(claims)) expect(standing).toMatchObject(held)
    expect(await engine.leave(claims)).toEqual(keys.map(() => true))
  })

  test('a line without rights fails alone in its batch, and so it does below a chroot', async () => {
    const session = direct({ auth: { scheme: 'digest', credentials: 'ann:secret' } })
    await session.create({ path: '/below', data: Buffer.alloc(0), mode: 'persistent', acl: 'open' })
    const engine = await open(`${server.url}/below`)
    const keys = ['mine a', 'hers', 'mine b']
    const claims = await known(engine, keys)
    await session.delete('/below/holdfast/hers')
    await session.create({ path: '/below/holdfast/hers', data: Buffer.alloc(0), mode: 'persistent', acl: 'creator' })
    const standings = await engine.enter(claims)
    expect(standings.map(({ state }) => state)).toEqual(['held', 'failed', 'held'])
    expect(standings[1]).toMatchObject({ error: { outcome: 'not-applied', transient: false } })
    expect(await session.getChildren('/below/holdfast/hers')).toEqual([])
    expect(await engine.leave([claims[0] as Claim, claims[2] as Claim])).toEqual([true, true])
  })

  test('an engine that is closed in the middle of a batch leaves nothing of it behind', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const [engine, other] = [await open(tap.url), await open()]
    const keys = ['closed a', 'closed b']
    const claims = await known(engine, keys)
    const pass = tap.keepBack(OPCODE.multiRead)
    const entering = engine.enter(claims)
    await vi.waitFor(async () => expect((await other.inspect('closed b')).entries).toHaveLength(1), LIMIT)
    const closing = engine[Symbol.asyncDispose]()
    pass()
    await Promise.all([entering, closing])
    for (const key of keys) await vi.waitFor(async () => expect((await other.inspect(key)).entries).toEqual([]), LIMIT)
  })

  test('a session that ends between the two requests of a batch: its entries are gone, and enter again', async () => {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    const proxy = await FaultProxy.start(tap)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [engine, other] = [await open(`zookeeper://127.0.0.1:${proxy.port}`), await open()]
    const keys = ['ended a', 'ended b']
    const claims = await known(engine, keys, { ttlMs: 2_000 })
    const pass = tap.keepBack(OPCODE.multiRead)
    const entering = engine.enter(claims)
    await vi.waitFor(async () => expect((await other.inspect('ended b')).entries).toHaveLength(1), LIMIT)
    proxy.blackHole()
    await vi.waitFor(async () => expect((await other.inspect('ended b')).entries).toEqual([]), LIMIT)
    const next = keys.map((key) => claimOf(key))
    for (const standing of await other.enter(next)) expect(standing).toMatchObject(held)
    pass()
    await proxy.heal()
    for (const standing of await entering) expect(standing).toMatchObject({ state: 'failed' })
    await vi.waitFor(async () => {
      for (const standing of await engine.enter(claims)) expect(standing).toMatchObject({ state: 'waiting', ahead: 1 })
    }, LIMIT)
    await other.leave(next)
    await vi.waitFor(async () => {
      for (const standing of await engine.renew(claims)) expect(standing).toMatchObject(held)
    }, LIMIT)
  })

  function direct(servers: Partial<ZooKeeperServers> = {}): ZooKeeperSession {
    const session = new ZooKeeperSession({
      servers: { endpoints: [server], chroot: '', ...servers },
      clock: systemClock,
      timeoutMs: 10_000,
    })
    onTestFinished(() => session.close())
    return session
  }

  const tokenOf = (standing: unknown): unknown => (standing as { token?: bigint }).token
})
