/**
 * Three servers of ZooKeeper conform, and what becomes of locks when servers die, freeze or are cut off from each
 * other: never two holders, and no lease is lost that need not be.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, test, vi } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { ZooKeeperSession } from '../../src/clients/zookeeper/session.ts'
import { systemClock } from '../../src/core/clock.ts'
import { openZooKeeper } from '../../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { FaultProxy } from '../servers/proxy.ts'
import { describeServer } from '../servers/suite.ts'
import { findOwnZooKeeper, type ZooKeeperServer } from '../servers/zookeeper.ts'
import { ZooKeeperEnsemble } from '../servers/zookeeper-ensemble.ts'
import { goOnThroughRestarts, goOnWithoutLeader, inLine, type Members, stopWithoutMajority, until } from './members.ts'
import { zookeeperWorld } from './zookeeper-world.ts'

const LIMIT = { timeout: 45_000, interval: 10 }
/**
 * Played on one server only (zookeeper.test.ts): what is a matter of the client alone, what takes three servers on two
 * processors long and tells nothing more, and what counts the sockets of this process, through which the servers talk
 * to each other here.
 */
const ON_ONE_SERVER = ['looking', 'order', 'stalls and clocks', 'nothing left']
/**
 * Played on one server only, too: with a ttl of 3 s, since on a busy machine Java takes as long to elect a leader; and
 * servers that are stopped cleanly, since three of them take their time to start, and killing them is worse.
 */
const RESTARTS_OF_ONE = /^clients go on after a restart|\(cleanly\)/
/** Three of them share two processors with all other tests. */
const CASE_LIMIT_MS = 120_000

await describeServer('three servers of ZooKeeper', findOwnZooKeeper, ({ program }) => {
  let ensemble: ZooKeeperEnsemble

  beforeAll(async () => {
    ensemble = await ZooKeeperEnsemble.start(program)
  })
  afterAll(async () => ensemble[Symbol.asyncDispose]())

  async function open(
    ttl: '2s' | '3s' | '30s',
    servers: readonly ZooKeeperServer[] = ensemble.servers,
  ): Promise<Locks> {
    const url = `zookeeper://${servers.map(({ host, port }) => `${host}:${port}`).join(',')}`
    const locks = createLocks(await openZooKeeper(url), { ttl })
    onTestFinished(() => locks.close())
    return locks
  }

  const othersThan = (server: ZooKeeperServer): readonly ZooKeeperServer[] =>
    ensemble.servers.filter((one) => one !== server)
  const members: Members<ZooKeeperServer> = {
    open,
    othersThan,
    leader: () => ensemble.leader(),
    serving: () => ensemble.serving(),
    state: () => ensemble.state(),
  }

  conformance(
    { describe, it, afterAll },
    'zookeeper with three servers',
    () =>
      zookeeperWorld({
        url: ensemble.url,
        servers: ensemble.servers,
        // All at once, they would be away for longer than the ttl of these cases: a Java takes its time to start. One
        // after the other they are restarted below, under load.
        restart: (how) => ensemble.restartLeader(how),
      }),
    {
      atOnce: 16,
      limit: CASE_LIMIT_MS,
      only: (name, property) => !ON_ONE_SERVER.includes(property) && !RESTARTS_OF_ONE.test(name),
    },
  )

  describe('servers in trouble', { timeout: CASE_LIMIT_MS }, () => {
    afterEach(async () => {
      await ensemble.heal()
      for (const { process } of ensemble.servers) {
        if (process?.running === true) process.resume()
        else await process?.start()
      }
      await ensemble.serving()
    }, CASE_LIMIT_MS)

    test.each(['killed', 'frozen'] as const)(
      'the leader is %s: leases go on, waiters are served, new locks are had',
      (how) =>
        goOnWithoutLeader(members, how, async (leader) => {
          if (how === 'killed') await leader.process?.kill()
          else leader.process?.pause()
        }),
    )

    test('a minority is cut off, and leases of its clients go on', async () => {
      const leader = await ensemble.leader()
      const [follower] = othersThan(leader) as [ZooKeeperServer]
      const [locks, watching] = [await open('30s'), await open('30s', [follower, leader])]
      const lease = await watching.mutex('minority: held').acquire()
      ensemble.cutOff(follower)
      for (let round = 0; round < 20; round += 1)
        await locks.mutex('minority').using(async (one) => expect(one.held).toBe(true))
      await until(members, 'a lock, from those who are left', async () =>
        expect(await watching.mutex('minority: new').tryAcquire()).toBeDefined(),
      )
      expect(lease.held).toBe(true)
      expect(await lease.release()).toBe(true)
    })

    test('the majority is gone: no lock is granted, holders are told in time, and all goes on when it is back', () =>
      stopWithoutMajority(members))

    test.each(['follower', 'leader'] as const)(
      'a %s is cut off: it grants nothing, its holder knows of the loss before the next one is let in, the others go on',
      async (which) => {
        const leader = await ensemble.leader()
        const server = which === 'leader' ? leader : (othersThan(leader)[0] as ZooKeeperServer)
        const [behind, outside] = [await open('2s', [server]), await open('30s', othersThan(server))]
        const lease = await behind.mutex(which).acquire()
        const next = outside.mutex(which).acquire()
        await inLine(outside, which, 2)
        ensemble.cutOff(server)
        const refused = behind.mutex(`${which}: new`).tryAcquire()
        refused.catch(() => undefined)
        const granted = await next
        expect(lease.held).toBe(false)
        expect(granted.held).toBe(true)
        expect(granted.token ?? 0n).toBeGreaterThan(lease.token ?? 0n)
        await expect(refused).rejects.toMatchObject({ code: 'ENGINE' })
        expect(await ensemble.leader(othersThan(server))).not.toBe(server)
        await outside.mutex(`${which}: others`).using((one) => expect(one.held).toBe(true))
        await ensemble.heal()
        await Promise.all([
          ensemble.serving(),
          until(members, 'a lock, where the network is whole again', () =>
            behind.mutex(`${which}: new`).using((one) => expect(one.held).toBe(true)),
          ),
        ])
      },
    )

    // What it had sent before arrives late, when the network heals. Only what it asks now is answered to it.
    test('a client that is cut off from one server after the other, but not from the others, keeps its leases', async () => {
      const proxies = await Promise.all(ensemble.servers.map((server) => FaultProxy.start(server)))
      onTestFinished(async () => {
        for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      })
      const url = `zookeeper://${proxies.map(({ port }) => `127.0.0.1:${port}`).join(',')}`
      const locks = createLocks(await openZooKeeper(url), { ttl: '15s' })
      onTestFinished(() => locks.close())
      for (const round of [1, 2, 3]) {
        const lease = await locks.mutex(`one way ${round}`).acquire()
        const connected = await vi.waitFor(() => {
          const [one, ...others] = proxies.filter(({ size }) => size > 0)
          expect(others).toEqual([])
          return one as FaultProxy
        }, LIMIT)
        connected.blackHole()
        await vi.waitFor(async () => await locks.mutex('one way: new').using(() => undefined), LIMIT)
        expect(lease.held).toBe(true)
        await connected.heal()
        expect(await lease.release()).toBe(true)
      }
    })

    test('a request is given its own answer, though late ones of the connection before are decided meanwhile', async () => {
      const proxies = await Promise.all(ensemble.servers.map((server) => FaultProxy.start(server)))
      onTestFinished(async () => {
        for (const proxy of proxies) await proxy[Symbol.asyncDispose]()
      })
      const endpoints = proxies.map(({ port }) => ({ host: '127.0.0.1', port }))
      const session = new ZooKeeperSession({ servers: { endpoints, chroot: '' }, clock: systemClock, timeoutMs: 6_000 })
      onTestFinished(() => session.close())
      const create = async (path: string): Promise<string> =>
        (await session.create({ path, data: Buffer.alloc(0), mode: 'ephemeral', acl: 'open' })).path
      await session.connect()
      const before = session.endpoint?.port
      const connected = proxies.find(({ port }) => port === before) as FaultProxy
      connected.blackHole()
      const late = Array.from({ length: 200 }, async (_, nth) => await create(`/late-${nth}`).catch(() => 'unknown'))
      await vi.waitFor(() => expect([before, undefined]).not.toContain(session.endpoint?.port), LIMIT)
      await connected.heal()
      const paths = Array.from({ length: 200 }, (_, nth) => `/new-${nth}`)
      expect(await Promise.all(paths.map(create))).toEqual(paths)
      expect(new Set(await Promise.all(late))).toEqual(new Set(['unknown']))
    })

    test('servers are restarted one after the other under load: there are never two holders, tokens rise, a lease that is held goes on', () =>
      goOnThroughRestarts(members, () => ensemble.rollingRestart('killed')))
  })
})
