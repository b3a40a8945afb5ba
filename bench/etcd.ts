/**
 * etcd, beside the hand-written protocol on the same transport, the server's own Lock service and etcd3: what a lock
 * costs, how fast it changes hands, and what waiters cost the server.
 */
import { openEtcd } from '../src/engines/etcd/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { EtcdServer, findEtcd } from '../test/servers/etcd.ts'
import { Missing } from '../test/servers/programs.ts'
import { figure } from './driver.ts'
import { peers } from './etcd-peers.ts'
import { acquireAndRelease, serveLine } from './ours.ts'
import { afterKill, handOff } from './processes.ts'

export async function run(): Promise<void> {
  const source = await findEtcd()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  await using server = await EtcdServer.start(source)
  await besideOthers(server, 100)
  await besideOthers(server, 1)
  await handOff(server.url, { wanted: 'at most 1.5 x', rounds: 300 })
  await manyWaiters(server)
  await afterKill(server.url, 'the ttl, and half a second')
}

async function open(server: EtcdServer): Promise<Locks> {
  return createLocks(await openEtcd(server.url), { ttl: '30s' })
}

async function besideOthers(server: EtcdServer, count: number): Promise<void> {
  const locks = await open(server)
  const others = await peers(server.port)
  await acquireAndRelease(locks, count, {
    peers: others.peers,
    wanted: { one: 'at least 0.9 x', many: 'at least 4 x' },
  })
  others.close()
  await locks.close()
}

async function manyWaiters(server: EtcdServer): Promise<void> {
  const [holding, waiting] = [await open(server), await open(server)]
  const [before, after] = await serveLine(holding, waiting, () => metrics(server))
  figure('watches: one of the line, and one of evictions for each of two clients', `${before.watches}   (3)`)
  // The last waiter to be served leaves an empty line, and no event is sent.
  figure('watch events for each of 100 releases', `${((after.events - before.events) / 100).toFixed(2)}   (at most 1)`)
  await Promise.all([holding.close(), waiting.close()])
}

async function metrics({ port }: EtcdServer): Promise<{ watches: number; events: number }> {
  const text = await fetch(`http://127.0.0.1:${port}/metrics`).then((answer) => answer.text())
  const value = (name: string): number => Number(new RegExp(`^${name} (\\S+)`, 'm').exec(text)?.[1])
  return { watches: value('etcd_debugging_mvcc_watcher_total'), events: value('etcd_debugging_mvcc_events_total') }
}
