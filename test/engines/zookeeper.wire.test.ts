/** What passes between this engine and a server: how many events and requests; and batches of which a part fails. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { OPCODE } from '../../src/clients/zookeeper/messages.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import { systemClock } from '../../src/core/clock.ts'
import type { Claim } from '../../src/core/engine.ts'
import { openZooKeeper, type ZooKeeperEngine } from '../../src/engines/zookeeper/index.ts'
import { newClaim } from '../claims.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperTap } from '../servers/zookeeper-tap.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
const held = { state: 'held' }
const waiting = { state: 'waiting' }

interface Tapped {
  readonly engine: ZooKeeperEngine
  readonly tap: ZooKeeperTap
}

await describeServer('ZooKeeper on the wire', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    // Empty lines stay for as long as a test lasts, as they do for a minute elsewhere.
    server = await ZooKeeperServer.start(source, { java: ['-Dznode.container.checkIntervalMs=600000'] })
  })
  afterAll(() => server[Symbol.asyncDispose]())

  async function open(url: string = server.url): Promise<ZooKeeperEngine> {
    const engine = await openZooKeeper(url)
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  /** An engine, on a connection that is read: to the server as a process of its own. */
  async function tapped(): Promise<Tapped> {
    const tap = await ZooKeeperTap.start(server)
    onTestFinished(() => tap[Symbol.asyncDispose]())
    return { engine: await open(tap.url), tap }
  }

  function direct(): ZooKeeperSession {
    const servers = { endpoints: [server], chroot: '' }
    const session = new ZooKeeperSession({ servers, clock: systemClock, timeoutMs: 10_000 })
    onTestFinished(() => session.close())
    return session
  }

  /** No entry of these tests runs out while they last. */
  const claimOf = (key: string): Claim => newClaim(key, { ttlMs: 300_000 })
  const claimsOf = (...keys: readonly string[]): readonly Claim[] => keys.map(claimOf)

  async function standings(engine: ZooKeeperEngine, claims: readonly Claim[]): Promise<readonly string[]> {
    return (await engine.enter(claims)).map(({ state }) => state)
  }

  test.each([
    { processes: 1, each: 100 },
    { processes: 5, each: 20 },
  ])(
    '$processes × $each waiters: a release is one event for the process of the next one, and none for the others',
    async ({ processes, each }) => {
      const key = `no herd ${processes}`
      const all = await Promise.all(Array.from({ length: processes + 1 }, tapped))
      // One of each in turn: the next one is always another process.
      const line: { readonly claim: Claim; readonly process: Tapped }[] = []
      for (let place = 0; place <= processes * each; place += 1) {
        const process = (place === 0 ? all[0] : all[1 + ((place - 1) % processes)]) as Tapped
        const claim = claimOf(key)
        expect((await process.engine.enter([claim]))[0]).toMatchObject(place === 0 ? held : waiting)
        line.push({ claim, process })
      }
      for (const [place, { claim, process }] of line.entries()) {
        const next = line[place + 1]
        const before = all.map(({ tap }) => tap.events.length)
        expect(await process.engine.leave([claim])).toEqual([true])
        if (next !== undefined)
          await vi.waitFor(
            async () => expect((await next.process.engine.renew([next.claim]))[0]).toMatchObject(held),
            LIMIT,
          )
        // Whatever else was sent to a process comes before the answer to this.
        for (const { engine } of all) await engine.inspect(key)
        for (const [index, one] of all.entries()) {
          const events = one.tap.events.length - (before[index] as number)
          // A process may be told of the end of its own entry, which it watches.
          if (one === process) expect(events).toBeLessThanOrEqual(1)
          else expect(events).toBe(one === next?.process ? 1 : 0)
        }
      }
    },
  )

  test('fifty locks cost two requests to acquire, and one to release', async () => {
    const { engine, tap } = await tapped()
    const keys = Array.from({ length: 50 }, (_, index) => `fifty ${index}`)
    const first = claimsOf(...keys)
    await engine.enter(first)
    await engine.leave(first)
    const before = tap.requests.length
    const claims = claimsOf(...keys)
    for (const standing of await engine.enter(claims)) expect(standing).toMatchObject(held)
    expect(tap.requests.slice(before)).toEqual([OPCODE.multi, OPCODE.multiRead])
    expect(await engine.leave(claims)).toEqual(keys.map(() => true))
    expect(tap.requests.slice(before)).toEqual([OPCODE.multi, OPCODE.multiRead, OPCODE.multi])
  })

  test('claims of one line in one batch have their order, and a token each', async () => {
    const engine = await open()
    const keys = ['a', 'b', 'a', 'a', 'b'].map((name) => `same line ${name}`)
    await engine.leave(await entered(engine, claimsOf(...keys)))
    const claims = await entered(engine, claimsOf(...keys))
    const { entries } = await engine.inspect('same line a')
    expect(entries.map(({ id }) => id)).toEqual([claims[0]?.id, claims[2]?.id, claims[3]?.id])
    expect(new Set(entries.map(({ token }) => token)).size).toBe(3)
  })

  async function entered(engine: ZooKeeperEngine, claims: readonly Claim[]): Promise<readonly Claim[]> {
    await engine.enter(claims)
    return claims
  }

  test('a line whose node is gone does not keep the others of its batch out', async () => {
    const engine = await open()
    const keys = ['gone a', 'gone b', 'gone c']
    await engine.leave(await entered(engine, claimsOf(...keys)))
    await direct().delete('/holdfast/gone b')
    const claims = claimsOf(...keys)
    expect(await standings(engine, claims)).toEqual(['held', 'held', 'held'])
    for (const { key } of claims) expect((await engine.inspect(key)).entries).toHaveLength(1)
  })

  test('a line that cannot be read fails alone in its batch', async () => {
    const engine = await open()
    const keys = ['strange a', 'strange b', 'strange c']
    await engine.leave(await entered(engine, claimsOf(...keys)))
    const settings = {
      path: '/holdfast/strange b/settings',
      data: Buffer.alloc(0),
      mode: 'ephemeral',
      acl: 'open',
    } as const
    const session = direct()
    await session.create(settings)
    expect(await standings(engine, claimsOf(...keys))).toEqual(['held', 'failed', 'held'])
    expect(await session.getChildren('/holdfast/strange b')).toEqual(['settings'])
  })

  test('an entry that is gone does not keep the others of its batch in', async () => {
    const engine = await open()
    const claims = await entered(engine, claimsOf('left a', 'left b', 'left c'))
    const session = direct()
    const [name] = await session.getChildren('/holdfast/left b')
    await session.delete(`/holdfast/left b/${name}`)
    expect(await engine.leave(claims)).toEqual([true, false, true])
    for (const { key } of claims) expect((await engine.inspect(key)).entries).toEqual([])
  })

  test('a batch whose reply is lost is found again, with its tokens, and a second try leaves nothing twice', async () => {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [engine, other] = [await open(`zookeeper://127.0.0.1:${proxy.port}`), await open()]
    const keys = ['lost a', 'lost b', 'lost c']
    await engine.leave(await entered(engine, claimsOf(...keys)))
    const claims = claimsOf(...keys)
    proxy.blackHole('replies')
    const asked = engine.enter(claims)
    await vi.waitFor(async () => expect((await other.inspect('lost c')).entries).toHaveLength(1), LIMIT)
    proxy.reset()
    for (const standing of await asked)
      expect(standing).toMatchObject({ state: 'failed', error: { outcome: 'unknown' } })
    await proxy.heal()
    expect(await standings(engine, claims)).toEqual(['held', 'held', 'held'])
    for (const { key, id } of claims) expect((await other.inspect(key)).entries).toMatchObject([{ id, state: 'held' }])
    expect(await engine.leave(claims)).toEqual([true, true, true])
    for (const { key } of claims) expect((await other.inspect(key)).entries).toEqual([])
  })

  test('a batch of releases whose reply is lost goes, though its first try failed', async () => {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [engine, other] = [await open(`zookeeper://127.0.0.1:${proxy.port}`), await open()]
    const claims = await entered(engine, claimsOf('unheard a', 'unheard b'))
    proxy.blackHole('replies')
    const leaving = engine.leave(claims)
    leaving.catch(() => undefined)
    await vi.waitFor(async () => expect((await other.inspect('unheard b')).entries).toEqual([]), LIMIT)
    proxy.reset()
    await expect(leaving).rejects.toMatchObject({ code: 'ENGINE', outcome: 'unknown' })
    await proxy.heal()
    // Gone already, and so it is answered: what the core asks again is true.
    expect(await engine.leave(claims)).toEqual([false, false])
  })
})
