/** What is told of an enter whose entry is there, where a later request of it fails. */
import { afterAll, beforeAll, expect, onTestFinished, test, vi } from 'vitest'
import { OPCODE } from '../../src/clients/zookeeper/messages.ts'
import { type Clock, systemClock, type Timer } from '../../src/core/clock.ts'
import { type Claim, UNLIMITED } from '../../src/core/engine.ts'
import { openZooKeeper, type ZooKeeperEngine, zookeeper } from '../../src/engines/zookeeper/index.ts'
import { newClaim } from '../claims.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperTap } from '../servers/zookeeper-tap.ts'

const LIMIT = { timeout: 30_000, interval: 10 }
/** How long an enter first waits before it reads a line again in which only tries are in the way. */
const FIRST_PAUSE_MS = 2

await describeServer('ZooKeeper, where an entry is there and its enter fails', findOwnZooKeeper, (source) => {
  let server: ZooKeeperServer

  beforeAll(async () => {
    server = await ZooKeeperServer.start(source)
  })
  afterAll(() => server[Symbol.asyncDispose]())

  function closedAtTheEnd(engine: ZooKeeperEngine): ZooKeeperEngine {
    onTestFinished(() => engine[Symbol.asyncDispose]())
    return engine
  }

  const claimOf = (key: string, more: Partial<Claim> = {}): Claim => newClaim(key, { ttlMs: 20_000, ...more })

  test.each([
    { asker: 'a waiter', wait: true },
    { asker: 'a try', wait: false },
  ])('$asker whose connection ends before it reads its line again may be in the line, and leaves it', async (how) => {
    const key = `read again by ${how.asker}`
    const [tap, proxy] = [await ZooKeeperTap.start(server), await FaultProxy.start(server)]
    onTestFinished(() => tap[Symbol.asyncDispose]())
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const [outside, busy] = [
      closedAtTheEnd(await openZooKeeper(server.url)),
      closedAtTheEnd(await openZooKeeper(tap.url)),
    ]
    const clock: Clock = {
      ...systemClock,
      timer: (ms, fire) => (ms === FIRST_PAUSE_MS ? cutOff(fire) : later(ms, fire)),
    }
    const engine = closedAtTheEnd(zookeeper({ endpoints: [{ host: '127.0.0.1', port: proxy.port }], clock }))
    for (const one of [engine, busy]) await one.enter([claimOf('connected')])

    const reader = { weight: 1, limit: UNLIMITED }
    const first = claimOf(key, reader)
    expect(await outside.enter([first])).toMatchObject([{ state: 'held' }])
    const pass = tap.keepBack(OPCODE.delete)
    const trying = busy.enter([claimOf(key, { wait: false })])
    await vi.waitFor(() => expect(tap.keptCount).toBeGreaterThan(0), LIMIT)

    const claim = claimOf(key, { ...reader, wait: how.wait })
    expect(await engine.enter([claim])).toMatchObject([{ state: 'failed', error: { outcome: 'unknown' } }])
    await proxy.heal()
    pass()
    await trying
    await engine.leave([claim])
    expect((await outside.inspect(key)).entries.map(({ id }) => id)).toEqual([first.id])

    /** The pause ends when the next connection is under way, and its handshake is swallowed. */
    function cutOff(fire: () => void): Timer {
      proxy.blackHole()
      proxy.reset()
      void vi.waitFor(() => expect(proxy.heldBytes('requests')).toBeGreaterThan(0), LIMIT).then(fire)
      return { cancel: () => undefined }
    }
    function later(ms: number, fire: () => void): Timer {
      return systemClock.timer(ms, fire)
    }
  })

  test('an enter of an entry that is there says that it is an enter that failed', async () => {
    const proxy = await FaultProxy.start(server)
    onTestFinished(() => proxy[Symbol.asyncDispose]())
    const engine = closedAtTheEnd(await openZooKeeper(`zookeeper://127.0.0.1:${proxy.port}`))
    const claim = claimOf('entered again')
    expect(await engine.enter([claim])).toMatchObject([{ state: 'held' }])
    await proxy.refuse()
    const message = expect.stringMatching(/^zookeeper: enter: /)
    expect(await engine.enter([claim])).toMatchObject([{ state: 'failed', error: { message } }])
    await proxy.heal()
  })
})
