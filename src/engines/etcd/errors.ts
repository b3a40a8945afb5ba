/** What went wrong, as the core wants it. What gRPC and etcd mean by their errors is in clients/etcd/errors.ts. */

import { GRPC_STATUS, RpcError } from '../../clients/etcd/errors.ts'
import { EngineError } from '../../core/errors.ts'
import { type AsEngineError, type EngineCall, engineErrors } from '../../core/failed-call.ts'

export const ENGINE = 'etcd'

/** What the client threw, as the core wants it. */
export const asEngineError: AsEngineError = engineErrors(ENGINE, (error) => ({
  outcome: error instanceof RpcError && error.refused ? 'not-applied' : 'unknown',
  transient: !(error instanceof RpcError) || !error.lasting,
}))

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
export function unsettled(call: EngineCall, why: string): EngineError {
  return new EngineError(ENGINE, `${call}: ${why}`, { outcome: 'unknown' })
}
