/**
 * The other process of the etcd benchmark. It does what its parent says and answers with host monotonic times, which all processes of a host share.
 */
import { systemClock } from '../src/core/clock.ts'
import { openEtcd } from '../src/engines/etcd/index.ts'
import { EtcdClient } from '../src/engines/etcd/transport/client.ts'
import { Watches } from '../src/engines/etcd/transport/watches.ts'
import { parseUrl } from '../src/engines/etcd/url.ts'
import { createLocks } from '../src/index.ts'

export type Order =
  | { readonly do: 'acquire'; readonly key: string; readonly ttlMs: number }
  | { readonly do: 'lead'; readonly key: string; readonly ttlMs: number }
  | { readonly do: 'release' }
  | { readonly do: 'watch'; readonly key: string }

export const nowNs = (): bigint => process.hrtime.bigint()

if (process.send !== undefined) {
  const url = process.argv[2] as string
  const locks = createLocks(await openEtcd(url))
  const watches = new Watches(new EtcdClient({ endpoints: parseUrl(url).hosts }), systemClock)
  const say = (message: object): boolean | undefined => process.send?.(message)
  let release: (() => Promise<unknown>) | undefined
  const obey = async (order: Order): Promise<void> => {
    if (order.do === 'acquire') {
      const lease = await locks.mutex(order.key, { ttl: order.ttlMs }).acquire()
      const at = String(nowNs())
      release = () => lease.release()
      say({ at })
    } else if (order.do === 'lead') {
      await createLocks(await openEtcd(url), { ttl: order.ttlMs })
        .election(order.key)
        .lead(async () => {
          say({ at: String(nowNs()) })
          await new Promise(() => {})
        })
    } else if (order.do === 'release') {
      await release?.()
      say({ released: true })
    } else {
      watches.add(
        { key: order.key, fromRevision: 0n, deletesOnly: true },
        { changed: () => void say({ at: String(nowNs()) }), created: () => void say({ watching: true }), compacted: () => undefined },
      )
    }
  }
  process.on('message', (order: Order) => void obey(order))
  process.once('disconnect', () => process.exit())
  // Nothing else keeps it alive.
  process.channel?.ref()
  say({ ready: true })
}
