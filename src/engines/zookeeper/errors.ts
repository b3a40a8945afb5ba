/** What went wrong, as the core wants it. What ZooKeeper means by its codes is in clients/zookeeper/errors.ts. */
import { ZooKeeperError } from '../../clients/zookeeper/errors.ts'
import { EngineError } from '../../core/errors.ts'

export const ENGINE = 'zookeeper'

/** What the core called, for messages of errors. */
export type ZooKeeperCall =
  | 'enter'
  | 'renew'
  | 'leave'
  | 'evict'
  | 'inspect'
  | 'list'
  | 'subscribe'
  | 'watch'
  | 'get'
  | 'put'
  | 'diagnose'

/** `sent: false`: the call failed before its own request was sent. */
export function asEngineError(
  call: ZooKeeperCall,
  error: unknown,
  { sent = true }: { readonly sent?: boolean } = {},
): EngineError {
  if (error instanceof EngineError) return error
  const message = `${call}: ${error instanceof Error ? error.message : String(error)}`
  const refused = !sent || (error instanceof ZooKeeperError && error.refused)
  const transient = !(error instanceof ZooKeeperError) || !error.lasting
  return new EngineError(ENGINE, message, { outcome: refused ? 'not-applied' : 'unknown', transient, cause: error })
}

/** A node in one of our lines has a name or data that this version cannot read. */
export function unreadable(path: string, why: string): EngineError {
  return new EngineError(ENGINE, `the node '${path}' in ZooKeeper ${why}`, { outcome: 'not-applied', transient: false })
}

/** Other clients got in between again and again. A later try can succeed. */
export function unsettled(call: ZooKeeperCall): EngineError {
  return new EngineError(ENGINE, `${call}: other clients keep changing the entry`, { outcome: 'unknown' })
}

export function unsettledPut(key: string): EngineError {
  return new EngineError(ENGINE, `put: other clients change the record of '${key}' all the time`, {
    outcome: 'not-applied',
  })
}

export function ttlTooLong(ttlMs: number, grantedMs: number): EngineError {
  const message = `a ttl of ${ttlMs} ms: the longest session that the server grants is ${grantedMs} ms (maxSessionTimeout)`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}

/** Kazoo and Curator do not look at what is written into the node of a holder. */
export function notTold(path: string): EngineError {
  const message = `evict: the holder '${path}' is of another client, which cannot be told; it can be removed at once`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}

export function noChroot(chroot: string): EngineError {
  const message = `the node '${chroot}', which the URL names as the root of this client, does not exist; create it first`
  return new EngineError(ENGINE, message, { outcome: 'not-applied', transient: false })
}

export function engineClosed(): EngineError {
  return new EngineError(ENGINE, 'the engine is closed', { outcome: 'not-applied', transient: false })
}
