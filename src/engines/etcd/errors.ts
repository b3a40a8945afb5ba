/** What went wrong, as the core wants it. What gRPC and etcd mean by their errors is in clients/etcd/errors.ts. */

import { GRPC_STATUS, RpcError } from '../../clients/etcd/errors.ts'
import { EngineError } from '../../core/errors.ts'

export const ENGINE = 'etcd'

/** What the core called, for messages of errors. */
export type EtcdCall =
  | 'enter'
  | 'renew'
  | 'leave'
  | 'evict'
  | 'inspect'
  | 'list'
  | 'subscribe'
  | 'watch'
  | 'diagnose'
  | 'get'
  | 'put'

/** `sent: false`: the call failed before its own request was sent. */
export function asEngineError(
  call: EtcdCall,
  error: unknown,
  { sent = true }: { readonly sent?: boolean } = {},
): EngineError {
  if (error instanceof EngineError) return error
  const message = `${call}: ${error instanceof Error ? error.message : String(error)}`
  const refused = !sent || (error instanceof RpcError && error.refused)
  const transient = !(error instanceof RpcError) || !error.lasting
  return new EngineError(ENGINE, message, { outcome: refused ? 'not-applied' : 'unknown', transient, cause: error })
}

/** The transaction was to put something under a lease that has ended. Nothing of it was applied. */
export function isLeaseGone(error: unknown): boolean {
  return error instanceof RpcError && error.status === GRPC_STATUS.notFound && error.message.includes('lease')
}

/** The database is full, and what became of the call has to be looked for. */
export function isNoSpace(error: unknown): error is RpcError {
  return error instanceof RpcError && error.noSpace
}

/** A key in one of our lines has a value that this version cannot read. */
export function unreadable(key: string, why: string): EngineError {
  return new EngineError(ENGINE, `the key '${key}' in etcd ${why}`, { outcome: 'not-applied', transient: false })
}

/** Other clients, or a change of leaders, got in between again and again. A later try can succeed. */
export function unsettled(call: EtcdCall, why: string): EngineError {
  return new EngineError(ENGINE, `${call}: ${why}`, { outcome: 'unknown' })
}

/** Other clients have changed the record in between again and again. It was compared each time, and not changed. */
export function unsettledPut(key: string): EngineError {
  return new EngineError(ENGINE, `put: other clients change the record of '${key}' all the time`, {
    outcome: 'not-applied',
  })
}
