/**
 * The other process of the MariaDB benchmark. It does what its parent says and answers with host monotonic times, which all processes of a host share.
 */
import { openMysql } from '../src/engines/mysql/index.ts'
import { createLocks } from '../src/index.ts'

export type Order = { readonly do: 'acquire'; readonly key: string; readonly ttlMs: number } | { readonly do: 'release' }

export const nowNs = (): bigint => process.hrtime.bigint()

if (process.send !== undefined) {
  const locks = createLocks(await openMysql(process.argv[2] as string))
  const say = (message: object): boolean | undefined => process.send?.(message)
  let release: (() => Promise<unknown>) | undefined
  const obey = async (order: Order): Promise<void> => {
    if (order.do === 'acquire') {
      const lease = await locks.mutex(order.key, { ttl: order.ttlMs }).acquire()
      const at = String(nowNs())
      release = () => lease.release()
      say({ at })
    } else {
      await release?.()
      say({ released: true })
    }
  }
  process.on('message', (order: Order) => void obey(order))
  process.once('disconnect', () => process.exit())
  say({ ready: true })
}
