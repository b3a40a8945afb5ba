/** What the benchmarks of etcd do with other processes (etcd-child.ts), and how they know that somebody waits. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import type { Locks } from '../src/index.ts'
import type { Order } from './etcd-child.ts'

export async function startChild(url: string): Promise<ChildProcess> {
  const child = fork(new URL('./etcd-child.js', import.meta.url), [url])
  await next(child)
  return child
}

export async function ask(child: ChildProcess, order: Order): Promise<{ at: string }> {
  const answer = next(child)
  child.send(order)
  return await answer
}

export async function next(child: ChildProcess): Promise<{ at: string }> {
  const [answer] = (await once(child, 'message')) as [{ at: string }]
  return answer
}

export async function untilWaiting(locks: Locks, key: string, count: number): Promise<void> {
  for (;;) {
    const { entries } = await locks.inspect(key)
    if (entries.filter(({ state }) => state === 'waiting').length === count) return
    await new Promise((resolve) => setImmediate(resolve))
  }
}
