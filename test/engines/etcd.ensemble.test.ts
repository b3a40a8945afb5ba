/**
 * Three members of etcd conform, and what becomes of locks when members die, freeze or are cut off from each other:
 * never two holders, and no lease is lost that need not be.
 */
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, test } from 'vitest'
import { conformance } from '../../conformance/index.ts'
import { openEtcd } from '../../src/engines/etcd/index.ts'
import { createLocks, type Locks } from '../../src/index.ts'
import { EtcdEnsemble } from '../servers/ensemble.ts'
import { type EtcdServer, findOwnEtcd } from '../servers/etcd.ts'
import { describeServer } from '../servers/suite.ts'
import { etcdWorld } from './etcd-world.ts'
import { goOnThroughRestarts, goOnWithoutLeader, inLine, type Members, stopWithoutMajority } from './members.ts'

/**
 * Played on one member only (etcd.test.ts): what is a matter of the client alone, what takes three members on two
 * processors long and tells nothing more, and what counts the sockets of this process, through which the members talk
 * to each other here.
 */
const ON_ONE_MEMBER = ['looking', 'order', 'stalls and clocks', 'nothing left']

await describeServer('three members of etcd', findOwnEtcd, ({ program }) => {
  let ensemble: EtcdEnsemble

  beforeAll(async () => {
    ensemble = await EtcdEnsemble.start(program)
  })
  afterAll(async () => ensemble[Symbol.asyncDispose]())

  async function open(ttl: '3s' | '30s', url: string = ensemble.url): Promise<Locks> {
    const locks = createLocks(await openEtcd(url), { ttl })
    onTestFinished(() => locks.close())
    return locks
  }

  const othersThan = (server: EtcdServer): readonly EtcdServer[] => ensemble.servers.filter((one) => one !== server)
  const members: Members<EtcdServer> = {
    open,
    othersThan,
    leader: () => ensemble.leader(),
    state: () => ensemble.state(),
  }

  conformance(
    { describe, it, afterAll },
    'etcd with three members',
    () =>
      etcdWorld({
        url: ensemble.url,
        servers: ensemble.servers,
        asEntries: true,
        // All at once and in good order takes them ten seconds: each tries to give its lead to another first.
        restart: (how) => (how === 'killed' ? ensemble.restart('killed') : ensemble.rollingRestart('cleanly')),
      }),
    { atOnce: 16, only: (_, property) => !ON_ONE_MEMBER.includes(property) },
  )

  describe('members in trouble', () => {
    afterEach(async () => {
      ensemble.heal()
      for (const { process } of ensemble.servers) {
        if (process?.running === true) process.resume()
        else await process?.start()
      }
      await ensemble.leader()
    })

    test.each(['killed', 'frozen', 'cut off'] as const)(
      'the leader is %s: leases go on, waiters are served, new locks are had',
      (how) =>
        goOnWithoutLeader(members, how, async (leader) => {
          if (how === 'killed') await leader.process?.kill()
          else if (how === 'frozen') leader.process?.pause()
          else await ensemble.cutOff(leader)
        }),
    )

    test('a minority is cut off, and no client notices', async () => {
      const locks = await open('30s')
      const leader = await ensemble.leader()
      await ensemble.cutOff(othersThan(leader)[0] as EtcdServer)
      for (let round = 0; round < 20; round += 1)
        await locks.mutex('minority').using(async (lease) => expect(lease.held).toBe(true))
    })

    test('the majority is gone: no lock is granted, holders are told in time, and all goes on when it is back', () =>
      stopWithoutMajority(members))

    test('a holder that reaches only the old leader, which is cut off, knows of its loss before the next one is let in', async () => {
      const old = await ensemble.leader()
      const behind = await open('3s', old.url)
      const outside = await open(
        '30s',
        `etcd://${othersThan(old)
          .map(({ host, port }) => `${host}:${port}`)
          .join(',')}`,
      )
      const lease = await behind.mutex('old leader').acquire()
      const next = outside.mutex('old leader').acquire()
      await inLine(outside, 'old leader', 2)
      await ensemble.cutOff(old)
      const granted = await next
      expect(lease.held).toBe(false)
      expect(granted.held).toBe(true)
      expect(granted.token ?? 0n).toBeGreaterThan(lease.token ?? 0n)
    })

    test('members are restarted one after the other under load: there are never two holders, tokens rise, a lease that is held goes on', () =>
      goOnThroughRestarts(members, () => ensemble.rollingRestart('killed')))
  })
})
