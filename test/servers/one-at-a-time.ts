/**
 * Work that only one process of this machine does at a time, such as fetching a server: test processes run side by
 * side, and two that need the same server would both fetch it, or meet in the system's own lock on its packages.
 *
 * The lock is a port to listen on, since the system frees that however a process ends. Another program may have the
 * port: after a while the work is done without the lock, which is slower, and may fail where two processes install.
 */
import { once } from 'node:events'
import { createServer, type Server } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'

/** Below those that freePort draws. */
const PORT = 19_990
const LIMIT_MS = 15 * 60_000
const AGAIN_MS = 100

export async function oneAtATime<Result>(work: () => Promise<Result>): Promise<Result> {
  const lock = await taken()
  try {
    return await work()
  } finally {
    lock?.close()
  }
}

async function taken(): Promise<Server | undefined> {
  const giveUpAt = performance.now() + LIMIT_MS
  while (performance.now() < giveUpAt) {
    const server = createServer()
    try {
      server.listen(PORT, '127.0.0.1')
      await once(server, 'listening')
      return server
    } catch {
      await sleep(AGAIN_MS)
    }
  }
  return undefined
}
