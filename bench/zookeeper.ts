/**
 * ZooKeeper, beside the hand-written recipe on the same client and Kazoo's Lock: what a lock costs, how fast it changes
 * hands, and what waiters cost.
 */
import { openZooKeeper } from '../src/engines/zookeeper/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { findZooKeeper, ZooKeeperServer } from '../test/servers/zookeeper.ts'
import { figure } from './driver.ts'
import { acquireAndRelease } from './ours.ts'
import { afterKill, handOff, untilWaiting } from './processes.ts'
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

/** A hundred of one process wait for one key, and are served one after the other. */
async function manyWaiters(server: ZooKeeperServer): Promise<void> {
  const [holding, waiting] = [await open(server), await open(server)]
  const first = await holding.mutex('line').acquire()
  const tokens: bigint[] = []
  const served = Array.from({ length: 100 }, async () => {
    const lease = await waiting.mutex('line').acquire()
    tokens.push(lease.token ?? 0n)
    await lease.release()
  })
  await untilWaiting(holding, 'line', 100)
  const startedAt = performance.now()
  await first.release()
  await Promise.all(served)
  const tookMs = performance.now() - startedAt
  console.log('\n100 waiters of one process on one key')
  figure('time of one hand-off', `${(tookMs / 100).toFixed(2)} ms`)
  figure(
    'served in order',
    tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint)) ? 'yes' : 'NO',
  )
  await Promise.all([holding.close(), waiting.close()])
}
