/** Asking all servers where no round of the quorum is needed: to connect, to listen, to inspect, to evict. */
import type { CallLimits } from '../../clients/shared/call-limits.ts'
import type { Clock, Timer } from '../../core/clock.ts'
import { noMajority } from './errors.ts'
import { majorityOf } from './quorum-decision.ts'
import type { RedlockServer } from './server.ts'

/**
 * What each server replies within `timeoutMs`; undefined for a server that is away or silent. Rejects if those that
 * replied are no majority.
 */
export async function askAllServers<Reply>(
  servers: readonly RedlockServer[],
  limits: CallLimits,
  timeoutMs: number,
  ask: (server: RedlockServer) => Promise<Reply>,
): Promise<readonly (Reply | undefined)[]> {
  let timer: Timer | undefined
  let lastError: Error | undefined
  const late = new Promise<undefined>((resolve) => {
    timer = limits.start(timeoutMs, () => resolve(undefined))
  })
  const one = async (server: RedlockServer): Promise<Reply | undefined> => {
    if (!server.ready) return undefined
    const asked = ask(server).catch((error: Error) => {
      lastError = error
      return undefined
    })
    return await Promise.race([asked, late])
  }
  const replies = await Promise.all(servers.map(one))
  timer?.cancel()
  const answered = replies.filter((reply) => reply !== undefined).length
  if (answered < majorityOf(servers.length)) throw noMajority(answered, servers.length, lastError)
  return replies
}

/**
 * Resolves when `wanted` of these are fulfilled and the others have had `graceMs` more, or when all are settled; with
 * how many are fulfilled. Never rejects.
 */
export function fulfilledCount(
  promises: readonly Promise<unknown>[],
  wanted: number,
  clock: Clock,
  graceMs: number,
): Promise<number> {
  return new Promise((resolve) => {
    let [fulfilled, settled] = [0, 0]
    let grace: Timer | undefined
    const count = (): void => {
      settled += 1
      if (fulfilled >= wanted) grace ??= clock.timer(graceMs, () => resolve(fulfilled))
      if (settled < promises.length) return
      grace?.cancel()
      resolve(fulfilled)
    }
    for (const promise of promises) {
      promise.then(() => {
        fulfilled += 1
        count()
      }, count)
    }
  })
}
