/**
 * The other process of the SQLite benchmark. It does what its parent says and answers with host monotonic times, which
 * all processes of a host share.
 */
import { watch } from 'node:fs'
import { sqlite } from '../src/engines/sqlite/index.ts'
import { createLocks } from '../src/index.ts'

export type Order =
  | { readonly do: 'acquire' }
  | { readonly do: 'release' }
  | { readonly do: 'watch'; readonly file: string }
  | { readonly do: 'busy'; readonly ms: number }

export const nowNs = (): bigint => process.hrtime.bigint()

/** Acquire and release for a while; how often, and the longest wait. */
export async function busy(
  acquire: () => Promise<{ release(): Promise<boolean> }>,
  ms: number,
): Promise<{ passes: number; worstMs: number }> {
  const until = performance.now() + ms
  let passes = 0
  let worstMs = 0
  while (performance.now() < until) {
    const askedAt = performance.now()
    const lease = await acquire()
    worstMs = Math.max(worstMs, performance.now() - askedAt)
    await lease.release()
    passes += 1
  }
  return { passes, worstMs }
}

if (process.send !== undefined) {
  const locks = createLocks(sqlite({ file: process.argv[2] as string }))
  const mutex = locks.mutex('hand-off')
  const say = (message: object): boolean | undefined => process.send?.(message)
  let release: (() => Promise<unknown>) | undefined
  const obey = async (order: Order): Promise<void> => {
    if (order.do === 'acquire') {
      const lease = await mutex.acquire()
      release = () => lease.release()
      say({ at: String(nowNs()) })
    } else if (order.do === 'release') {
      await release?.()
      say({ released: true })
    } else if (order.do === 'watch') {
      watch(order.file, () => say({ at: String(nowNs()) }))
      say({ watching: true })
    } else {
      say(await busy(() => mutex.acquire(), order.ms))
    }
  }
  process.on('message', (order: Order) => void obey(order))
  process.once('disconnect', () => process.exit())
  say({ ready: true })
}
