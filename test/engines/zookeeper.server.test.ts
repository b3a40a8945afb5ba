/** What ZooKeeper and this engine do with each other, beyond what every engine has to do. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { ZOOKEEPER_CODE } from '../../src/clients/zookeeper/errors.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import type { ZooKeeperServers } from '../../src/clients/zookeeper/session-connection.ts'
import { systemClock } from '../../src/core/clock.ts'
import type { News } from '../../src/core/engine.ts'
import { ClassSessions } from '../../src/engines/zookeeper/class-sessions.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { ZooKeeperNames } from '../../src/engines/zookeeper/names.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { newClaim } from '../claims.ts'
import { freePort } from '../servers/ports.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { stored } from './zookeeper-world.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
/** No entry of these tests runs out while they last, unless it is meant to. */
const TTL_MS = 300_000

await describeServer('locks on ZooKeeper', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  async function open(url: string = server.url): Promise<{ readonly engine: ZooKeeperEngine; readonly heard: News[] }> {
    const engine = await openZooKeeper(url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    const heard: News[] = []
    await engine.subscribe((news) => heard.push(news))
    return { engine, heard }
  }

  function direct(servers: Partial<ZooKeeperServers> = {}): ZooKeeperSession {
    const session = new ZooKeeperSession({
      servers: { endpoints: [server], chroot: '', ...servers },
      clock: systemClock,
      timeoutMs: 10_000,
    })
    onTestFinished(() => session.close())
    return session
  }

  async function proxied(): Promise<{ readonly proxy: FaultProxy; readonly url: string }> {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    return { proxy, url: `zookeeper://127.0.0.1:${proxy.port}` }
  }

  async function locksAt(url: string, ttl: number): Promise<Locks> {
    const locks = createLocks(await openZooKeeper(url), { ttl })
    onTestFinished(() => locks.close())
    return locks
  }

  const claimOf = (key: string, more: object = {}): ReturnType<typeof newClaim> =>
    newClaim(key, { ttlMs: TTL_MS, ...more })
  const held = { state: 'held' }
  const waiting = { state: 'waiting' }

  test('an enter whose reply is lost is found again, and keeps its place', async () => {
    const { proxy, url } = await proxied()
    const [{ engine }, { engine: other }] = [await open(url), await open()]
    const [holder, lost, behind] = [claimOf('lost'), claimOf('lost'), claimOf('lost')]
    await other.enter([holder])
    await engine.enter([claimOf('connected')])
    proxy.blackHole('replies')
    const asked = engine.enter([lost])
    await vi.waitFor(async () => expect((await other.inspect('lost')).entries).toHaveLength(2), LIMIT)
    proxy.reset()
    expect((await asked)[0]).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
    await other.enter([behind])
    await proxy.heal()
    expect((await engine.enter([lost]))[0]).toMatchObject({ ...waiting, ahead: 1 })
    expect((await other.inspect('lost')).entries).toHaveLength(3)
    await other.leave([holder])
    expect((await engine.renew([lost]))[0]).toMatchObject(held)
  })

  test('an enter whose reply is lost, and that is given up, is taken out on the same session', async () => {
    const { proxy, url } = await proxied()
    const [{ engine }, { engine: other }] = [await open(url), await open()]
    await engine.enter([claimOf('connected, too')])
    // So that the line has a node.
    await other.enter([claimOf('given up')])
    proxy.blackHole('replies')
    const lost = claimOf('given up')
    const asked = engine.enter([lost])
    await vi.waitFor(async () => expect((await other.inspect('given up')).entries).toHaveLength(2), LIMIT)
    proxy.reset()
    await asked
    await proxy.heal()
    expect(await engine.leave([lost])).toEqual([true])
    expect((await other.inspect('given up')).entries).toHaveLength(1)
  })

  test('what could not be deleted during an outage goes when the server is back', async () => {
    const { proxy, url } = await proxied()
    const [{ engine }, { engine: other }] = [await open(url), await open()]
    const [claim, kept] = [claimOf('undeleted'), claimOf('kept')]
    await engine.enter([claim, kept])
    await proxy.refuse()
    await expect(engine.leave([claim])).rejects.toMatchObject({ code: 'ENGINE' })
    await proxy.heal()
    await vi.waitFor(async () => expect((await other.inspect('undeleted')).entries).toEqual([]), LIMIT)
    expect((await engine.renew([kept]))[0]).toMatchObject(held)
  })

  test('entries that the core does not ask for any more are deleted, though their session lives', async () => {
    const [{ engine }, { engine: other }] = [await open(), await open()]
    const [abandoned, kept] = [claimOf('abandoned', { ttlMs: 2_000 }), claimOf('asked for', { ttlMs: 2_000 })]
    await engine.enter([abandoned, kept])
    await vi.waitFor(
      async () => {
        expect((await engine.renew([kept]))[0]).toMatchObject(held)
        expect((await other.inspect('abandoned')).entries).toEqual([])
      },
      { ...LIMIT, interval: 100 },
    )
  })

  test('a session that expires, while an entry holds and another waits, is told, and both have gone', async () => {
    const { proxy, url } = await proxied()
    const [holding, outside] = [await locksAt(url, 2_000), await locksAt(server.url, TTL_MS)]
    const lease = await holding.mutex('expires').acquire()
    const blocked = await outside.mutex('waits').acquire()
    const waits = holding.mutex('waits').acquire()
    waits.catch(() => undefined)
    await vi.waitFor(async () => expect((await outside.inspect('waits')).entries).toHaveLength(2), LIMIT)
    proxy.blackHole()
    const next = await outside.mutex('expires').acquire()
    expect(lease.held).toBe(false)
    await vi.waitFor(async () => expect((await outside.inspect('waits')).entries).toHaveLength(1), LIMIT)
    await proxy.heal()
    await next.release()
    await blocked.release()
    // After so long an outage the wait was refused, or has begun anew.
    const outcome = await waits.then(
      ({ held: holds }) => holds,
      ({ code }: { code: string }) => code,
    )
    expect(['ENGINE', true]).toContain(outcome)
    await vi.waitFor(async () => expect(await holding.mutex('expires').tryAcquire()).toBeDefined(), LIMIT)
  })

  test('a session for what is to run out by itself does not begin later, when it could not begin in time', async () => {
    const ways = [await proxied(), await proxied()].map(({ proxy }) => proxy)
    for (const proxy of ways) proxy.blackHole()
    const ignore = (): void => undefined
    const sessions = new ClassSessions({
      servers: { endpoints: ways.map(({ port }) => ({ host: '127.0.0.1', port })), chroot: '' },
      clock: systemClock,
      names: new ZooKeeperNames('/holdfast'),
      acl: 'open',
      ...{ tell: ignore, lineChanged: ignore, reconnected: ignore, ended: ignore },
    })
    // The first server has had its time, and the second one has not.
    await expect(sessions.openShort(TTL_MS)).rejects.toMatchObject({ code: ZOOKEEPER_CODE.connectionLoss })
    for (const proxy of ways) await proxy.heal()
    await vi.waitFor(() => expect(ways.map(({ size }) => size)).toEqual([0, 0]), LIMIT)
  })

  test('an entry that goes between the read and the watch is noticed', async () => {
    const { proxy, url } = await proxied()
    const [{ engine, heard }, { engine: other }] = [await open(url), await open()]
    const [holder, waiter] = [claimOf('between'), claimOf('between')]
    await other.enter([holder])
    await engine.enter([claimOf('connected as well')])
    // What the waiter reads is on its way when the holder leaves; its watch is sent only then.
    proxy.blackHole('replies')
    const entering = engine.enter([waiter])
    await vi.waitFor(async () => expect((await other.inspect('between')).entries).toHaveLength(2), LIMIT)
    await other.leave([holder])
    await proxy.heal()
    expect((await entering)[0]).toMatchObject(waiting)
    await vi.waitFor(() => expect(heard).toMatchObject([{ id: waiter.id, standing: held }]), LIMIT)
  })

  test('a guard lets a multi be done while the lease is held, and not after', async () => {
    const engine = await openZooKeeper(server.url)
    const locks = createLocks(engine, { ttl: TTL_MS })
    onTestFinished(() => locks.close())
    const session = direct()
    const write = (condition: { path: string; version: number }, name: string): Promise<unknown> =>
      session.multi([
        { check: condition },
        { create: { path: `/guarded-${name}`, data: Buffer.alloc(0), mode: 'ephemeral', acl: 'open' } },
      ])
    const lease = await locks.mutex('guarded').acquire()
    const condition = engine.guard(lease)
    await write(condition, 'held')
    await locks.evict('guarded', lease.token ?? 0n, 'expire')
    await expect(write(condition, 'evicted')).rejects.toMatchObject({ code: -103 })
    await lease.release()
    await expect(write(condition, 'released')).rejects.toMatchObject({ code: -101 })
    expect(() => engine.guard(lease)).toThrow('guarded')
    expect(await session.exists('/guarded-evicted')).toBeUndefined()
  })

  test('the end of a process with very many entries is no more than a server can read', async () => {
    await using own = await ZooKeeperServer.start(source)
    const engine = await openZooKeeper(own.url)
    const { batchLimit } = engine.traits
    for (let batch = 0; batch < 6; batch += 1) {
      const claims = Array.from({ length: batchLimit }, (_, index) =>
        claimOf(String(batch * batchLimit + index).padStart(512, '%')),
      )
      for (const standing of await engine.enter(claims)) expect(standing).toMatchObject(held)
    }
    // Their nodes go with their sessions.
    await engine[Symbol.asyncDispose]()
    await own.process?.kill()
    await own.process?.start()
    expect((await stored([own])).filter((path) => path.split('/').length > 3)).toEqual([])
  })

  test('locks are had again after the data of the servers were lost, by the same process', async () => {
    await using empty = await ZooKeeperServer.start(source)
    let { port } = server
    const proxy = await FaultProxy.start({
      get port() {
        return port
      },
    })
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const { engine } = await open(`zookeeper://127.0.0.1:${proxy.port}`)
    const before = claimOf('before the loss', { ttlMs: 2_000 })
    // A server whose last transaction is older than one that a session has seen does not take it.
    const session = direct()
    for (let round = 0; round < 100; round += 1) await session.confirm()
    expect((await engine.enter([before]))[0]).toMatchObject(held)
    port = empty.port
    proxy.reset()
    await vi.waitFor(
      async () => expect((await engine.enter([claimOf('after it', { ttlMs: 2_000 })]))[0]).toMatchObject(held),
      LIMIT,
    )
    expect((await engine.renew([before]))[0]).toMatchObject({ state: 'gone' })
  })

  test('nothing is left in the tree, not even the nodes of lines', async () => {
    const locks = await locksAt(server.url, TTL_MS)
    await locks.mutex('left/over').using(() => undefined)
    await vi.waitFor(
      async () => expect((await stored([server])).filter((path) => path.includes('left'))).toEqual([]),
      LIMIT,
    )
  })

  // ---- bad input ----

  test('no server: the error says so', async () => {
    const port = await freePort()
    const locks = await locksAt(`zookeeper://127.0.0.1:${port}`, TTL_MS)
    await expect(locks.mutex('x').tryAcquire()).rejects.toThrow(`ECONNREFUSED 127.0.0.1:${port}`)
  })

  test('a chroot that does not exist is named, and nothing is created', async () => {
    const locks = await locksAt(`${server.url}/no/such`, TTL_MS)
    await expect(locks.mutex('x').acquire()).rejects.toThrow("the node '/no/such', which the URL names as the root")
    expect(await direct().exists('/no')).toBeUndefined()
  })

  test('a chroot that exists is the root of everything', async () => {
    const session = direct()
    await session.create({ path: '/tenant', data: Buffer.alloc(0), mode: 'persistent', acl: 'open' })
    const locks = await locksAt(`${server.url}/tenant?path=%2Fa%2Flocks`, TTL_MS)
    const lease = await locks.mutex('key').acquire()
    expect(await session.getChildren('/tenant/a/locks')).toEqual(['key'])
    await lease.release()
  })

  test('without the right to the node of the locks, the error says so', async () => {
    const [, port] = /:(\d+)$/.exec(server.url) as RegExpExecArray
    const ann = await locksAt(`zookeeper://ann:secret@127.0.0.1:${port}?path=%2Fprivate`, TTL_MS)
    const lease = await ann.mutex('x').acquire()
    const stranger = await locksAt(`zookeeper://bob:secret@127.0.0.1:${port}?path=%2Fprivate`, TTL_MS)
    await expect(stranger.mutex('x').acquire()).rejects.toThrow('no right to do this')
    await expect(stranger.mutex('y').acquire()).rejects.toThrow('no right to do this')
    expect(await lease.release()).toBe(true)
  })

  test('a node that is no entry is named, and the acquire leaves nothing behind', async () => {
    const session = direct()
    const base = { data: Buffer.alloc(0), mode: 'persistent', acl: 'open' } as const
    await session.create({ path: '/other', ...base })
    await session.create({ path: '/other/line', ...base })
    await session.create({ path: '/other/line/settings', ...base })
    const locks = await locksAt(`${server.url}?path=%2Fother`, TTL_MS)
    await expect(locks.mutex('line').acquire()).rejects.toThrow(
      "'/other/line/settings' in ZooKeeper is no entry of a line",
    )
    expect(await session.getChildren('/other/line')).toEqual(['settings'])
    await expect(locks.inspect('line')).rejects.toThrow('is no entry of a line')
  })

  test('a ttl above what the server grants is refused, and says what is granted', async () => {
    const locks = await locksAt(server.url, 2_000_000)
    await expect(locks.mutex('too long').acquire()).rejects.toThrow(
      'a ttl of 2000000 ms: the longest session that the server grants is 1200000 ms',
    )
    expect((await (await open()).engine.inspect('too long')).entries).toEqual([])
  })

  test('a ttl below what the server grants is granted longer, and shown so', async () => {
    await using strict = await ZooKeeperServer.start(source, { settings: ['minSessionTimeout=9000'] })
    const locks = await locksAt(strict.url, 2_000)
    const lease = await locks.mutex('short').acquire()
    expect((await locks.inspect('short')).entries[0]).toMatchObject({ ttlMs: 9_000 })
    expect(lease.remainingMs).toBeLessThanOrEqual(2_000)
    await lease.release()
  })

  test('doctor tells the version, the ensemble and the limits of sessions', async () => {
    const { engine } = await open()
    const found = new Map((await engine.diagnose()).map((finding) => [finding.name, finding]))
    expect(found.get('version')).toMatchObject({
      status: 'ok',
      finding: expect.stringMatching(/^ZooKeeper 3\.\d+\.\d+/),
    })
    expect(found.get('ensemble')).toMatchObject({ status: 'warn', finding: 'standalone' })
    expect(found.get('session limits')).toMatchObject({ status: 'ok', finding: '1000 ms to 1200000 ms, tick 500 ms' })
    expect(found.get('disk space')).toMatchObject({ status: 'ok', finding: expect.stringContaining('GiB of') })
    expect(found.get('rights')).toMatchObject({ status: 'ok', finding: expect.stringContaining('no user is given') })
  })

  test.each([
    { settings: [], status: 'ok', words: 'rights are checked' },
    { settings: ['skipACL=yes', '4lw.commands.whitelist=srvr'], status: 'warn', words: 'skipACL' },
  ])('doctor finds out whether rights are checked: $status, with $settings', async ({ settings, status, words }) => {
    await using other = await ZooKeeperServer.start(source, { settings })
    const { engine } = await open(`zookeeper://ann:secret@127.0.0.1:${other.port}`)
    const rights = async (): Promise<unknown> => (await engine.diagnose()).find(({ name }) => name === 'rights')
    expect(await rights()).toMatchObject({ status: 'ok', finding: expect.stringContaining('does not exist') })
    await engine.enter([claimOf('makes the path')])
    expect(await rights()).toMatchObject({ status, finding: expect.stringContaining(words) })
    const ann = direct({ endpoints: [other], auth: { scheme: 'digest', credentials: 'ann:secret' } })
    expect(await ann.getChildren('/holdfast')).toEqual(['makes the path'])
    if (settings.length > 0)
      expect(await engine.diagnose()).toContainEqual({
        name: 'disk space',
        status: 'ok',
        finding: 'how much servers have stored is not told (`conf`)',
      })
  })
})
