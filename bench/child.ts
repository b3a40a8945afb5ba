/**
 * The other process of a benchmark, with locks of its own at the URL that it is given. It does what its parent says
 * (processes.ts) and answers with host monotonic times, which all processes of a host share.
 */
import { connect } from '../src/index.ts'
import { messages } from './messages.ts'

export type Order =
  | { readonly do: 'acquire'; readonly key: string; readonly ttlMs: number }
  | { readonly do: 'lead'; readonly key: string; readonly ttlMs: number }
  | { readonly do: 'release' }
  | { readonly do: 'listen' }

export const nowNs = (): bigint => process.hrtime.bigint()

if (process.send !== undefined) {
  const url = process.argv[2] as string
  const locks = await connect(url)
  const say = (message: object): boolean | undefined => process.send?.(message)
  let release: (() => Promise<unknown>) | undefined
  const obey = async (order: Order): Promise<void> => {
    if (order.do === 'acquire') {
      const lease = await locks.mutex(order.key, { ttl: order.ttlMs }).acquire()
      const at = String(nowNs())
      release = () => lease.release()
      say({ at })
    } else if (order.do === 'lead') {
      const own = await connect(url, { ttl: order.ttlMs })
      await own.election(order.key).lead(async () => {
        say({ at: String(nowNs()) })
        await new Promise(() => {})
      })
    } else if (order.do === 'release') {
      await release?.()
      say({ released: true })
    } else {
      await messages(url)?.listen(url, () => say({ at: String(nowNs()) }))
      say({ listening: true })
    }
  }
  process.on('message', (order: Order) => void obey(order))
  process.once('disconnect', () => process.exit())
  // Nothing else may keep it alive.
  process.channel?.ref()
  say({ ready: true })
}
