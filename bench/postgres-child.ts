/**
 * The other process of the PostgreSQL benchmark. It does what its parent says and answers with host monotonic times, which all processes of a host share.
 */
import pg from 'pg'
import { connect } from '../src/index.ts'

export type Order =
  | { readonly do: 'acquire'; readonly key: string; readonly ttlMs: number }
  | { readonly do: 'release' }
  | { readonly do: 'listen'; readonly channel: string }

export const nowNs = (): bigint => process.hrtime.bigint()

if (process.send !== undefined) {
  const url = process.argv[2] as string
  const locks = await connect(url)
  const listener = new pg.Client(url.replace('postgres-advisory:', 'postgres:'))
  await listener.connect()
  const say = (message: object): boolean | undefined => process.send?.(message)
  let release: (() => Promise<unknown>) | undefined
  listener.on('notification', () => say({ at: String(nowNs()) }))
  const obey = async (order: Order): Promise<void> => {
    if (order.do === 'acquire') {
      const lease = await locks.mutex(order.key, { ttl: order.ttlMs }).acquire()
      const at = String(nowNs())
      release = () => lease.release()
      say({ at })
    } else if (order.do === 'release') {
      await release?.()
      say({ released: true })
    } else {
      await listener.query(`LISTEN "${order.channel}"`)
      say({ listening: true })
    }
  }
  process.on('message', (order: Order) => void obey(order))
  process.once('disconnect', () => process.exit())
  say({ ready: true })
}
