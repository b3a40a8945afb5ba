/** Whom the ZooKeeper engine is compared with: the recipe by hand, on the same client, and Kazoo's Lock. */
import { ZooKeeperSession } from '../src/clients/zookeeper/session.ts'
import { systemClock } from '../src/core/clock.ts'
import { Missing } from '../test/servers/programs.ts'
import { KAZOO, Python } from '../test/servers/python.ts'
import type { Peer } from './ours.ts'

const NOTHING = Buffer.alloc(0)

export async function peers(port: number): Promise<{ readonly peers: readonly Peer[]; close(): Promise<void> }> {
  const session = new ZooKeeperSession({
    servers: { endpoints: [{ host: '127.0.0.1', port }], chroot: '' },
    clock: systemClock,
    timeoutMs: 30_000,
  })
  await session.connect()
  const made = new Set<string>()
  const create = async (path: string): Promise<void> => {
    if (made.has(path)) return
    made.add(path)
    await session.create({ path, data: NOTHING, mode: 'persistent', acl: 'open' }).catch(() => undefined)
  }
  await create('/by-hand')
  const byHand: Peer = {
    name: 'hand-written: create, list, delete',
    async pair(caller) {
      const line = `/by-hand/${caller}`
      await create(line)
      const node = { path: `${line}/lock-`, data: NOTHING, mode: 'ephemeral-sequential', acl: 'open' } as const
      const { path } = await session.create(node)
      const [first] = (await session.getChildren(line)).toSorted()
      if (first !== path.slice(line.length + 1)) throw new Error('another caller has it')
      await session.delete(path)
    },
  }
  return { peers: [byHand], close: () => session.close() }
}

/** How often in a second Kazoo takes a lock and gives it back. */
export async function kazooPairs(port: number): Promise<string> {
  const python = await Python.find(KAZOO)
  if (python instanceof Missing) return python.reason
  return await python.run(
    [
      'import time',
      'from kazoo.client import KazooClient',
      `zk = KazooClient(hosts='127.0.0.1:${port}')`,
      'zk.start()',
      "lock = zk.Lock('/kazoo-bench', 'bench')",
      'count, end = 0, time.time() + 3',
      'while time.time() < end:',
      '  lock.acquire()',
      '  lock.release()',
      '  count += 1',
      'print(round(count / 3))',
      'zk.stop()',
    ].join('\n'),
  )
}
