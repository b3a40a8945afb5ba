/**
 * ZooKeeper, beside the hand-written recipe on the same client and Kazoo's Lock: what a lock costs, how fast it changes
 * hands, and what waiters cost.
 */
import { openZooKeeper } from '../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { findZooKeeper, ZooKeeperServer } from '../test/servers/zookeeper.ts'
import { figure } from './driver.ts'
import { acquireAndRelease, serveLine } from './ours.ts'
import { afterKill, handOff } from './processes.ts'
import { kazooPairs, peers } from './zookeeper-peers.ts'

export async function run(): Promise<void> {
  const source = await findZooKeeper()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  // As servers are run: empty containers are taken away once in a minute, not every second as in tests.
  await using server = await ZooKeeperServer.start(source, { java: ['-Dznode.container.checkIntervalMs=60000'] })
  await besideOthers(server, 100)
  await besideOthers(server, 1)
  figure("Kazoo's Lock, 1 caller", `${await kazooPairs(server.port)} per second`)
  await handOff(server.url, { wanted: 'at most 1.5 x', rounds: 300 })
  await manyWaiters(server)
  await afterKill(server.url, 'four thirds of the ttl, and half a second')
}

async function open(server: ZooKeeperServer): Promise<Locks> {
  return createLocks(await openZooKeeper(server.url), { ttl: '30s' })
}

async function besideOthers(server: ZooKeeperServer, count: number): Promise<void> {
  const locks = await open(server)
  const others = await peers(server.port)
  await acquireAndRelease(locks, count, {
    peers: others.peers,
    wanted: { one: 'at least 0.9 x', many: 'at least 2 x' },
  })
  await others.close()
  await locks.close()
}

async function manyWaiters(server: ZooKeeperServer): Promise<void> {
  const [holding, waiting] = [await open(server), await open(server)]
  await serveLine(holding, waiting, async () => undefined)
  await Promise.all([holding.close(), waiting.close()])
}
