/** What went wrong, as the core wants it. What gRPC and etcd mean by it is in transport/rpc-error.ts. */

import { GRPC_STATUS, RpcError } from '../../clients/etcd/errors.ts'
import { EngineError } from '../../core/errors.ts'

export const ENGINE = 'etcd'

/** `sent: false`: it was only about to be asked. */
export function fault(error: unknown, { sent = true }: { readonly sent?: boolean } = {}): EngineError {
  if (error instanceof EngineError) return error
  const message = error instanceof Error ? error.message : String(error)
  const refused = !sent || (error instanceof RpcError && error.refused)
  const transient = !(error instanceof RpcError) || !error.lasting
  return new EngineError(ENGINE, message, { outcome: refused ? 'not-applied' : 'unknown', transient, cause: error })
}

/** Something was to be put under a lease that is no more. Nothing of the transaction was done. */
export function isLeaseGone(error: unknown): boolean {
  return error instanceof RpcError && error.status === GRPC_STATUS.notFound && error.message.includes('lease')
}

/** What stands in one of our lines, and cannot be read. */
export function unreadable(key: string, why: string): EngineError {
  return new EngineError(ENGINE, `'${key}' ${why}`, { outcome: 'not-applied', transient: false })
}

/** Others were at it at the same time. Nothing is wrong, and the next try will tell. */
export function unsettled(why: string): EngineError {
  return new EngineError(ENGINE, why, { outcome: 'unknown' })
}
