/** What went wrong, as the core wants it. What ZooKeeper means by its codes is in clients/zookeeper/errors.ts. */
import { connectionLost, ZooKeeperError } from '../../clients/zookeeper/errors.ts'
import { EngineError } from '../../core/errors.ts'
import { type AsEngineError, type EngineCall, engineErrors } from '../../core/failed-call.ts'

export const ENGINE = 'zookeeper'

/** What the client threw, as the core wants it. */
export const asEngineError: AsEngineError = engineErrors(ENGINE, (error) => ({
  outcome: error instanceof ZooKeeperError && error.refused ? 'not-applied' : 'unknown',
  transient: !(error instanceof ZooKeeperError) || !error.lasting,
}))

/** A node in one of our lines has a name or data that this version cannot read. */
export function unreadable(path: string, why: string): EngineError {
  return new EngineError(ENGINE, `the node '${path}' in ZooKeeper ${why}`, { outcome: 'not-applied', transient: false })
}

/** Other clients got in between again and again. A later try can succeed. */
export function unsettled(call: EngineCall): EngineError {
  return new EngineError(ENGINE, `${call}: other clients keep changing the entry`, { outcome: 'unknown' })
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

/** An error of the client, since it is told to whichever call comes then. */
export function engineClosed(): ZooKeeperError {
  return connectionLost('the engine is closed', { refused: true, lasting: true })
}
