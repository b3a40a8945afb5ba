/**
 * What can go wrong with a majority, as errors. What goes wrong with one server is told by the Redis client
 * (src/clients/redis/errors.ts).
 */
import { meaningOf } from '../../clients/redis/errors.ts'
import { EngineError } from '../../core/errors.ts'
import { type AsEngineError, type EngineCall, engineErrors, withoutEngine } from '../../core/failed-call.ts'
import type { TakeRequest } from './quorum-server.ts'

export const ENGINE = 'redlock'

/** What the client of a server threw, as the core wants it. */
export const asEngineError: AsEngineError = engineErrors(ENGINE, meaningOf)

/** Too few servers have answered `call`. `outcome` is `not-applied` where nothing was sent. */
export function noMajority(
  call: EngineCall,
  answered: number,
  servers: number,
  error?: unknown,
  outcome: 'unknown' | 'not-applied' = 'unknown',
): EngineError {
  const cause = error === undefined ? undefined : asEngineError(call, error)
  const why = cause === undefined ? '' : `: ${withoutEngine(cause).replace(`${call}: `, '')}`
  const message = `${call}: ${answered} of ${servers} servers have answered, which is no majority${why}`
  // A password that all servers refuse is refused again. If only some servers are away, they may come back.
  const transient = cause === undefined || cause.transient || answered > 0
  return new EngineError(ENGINE, message, { outcome, transient, cause })
}

/** What the core called. */
export function callOf({ mode }: TakeRequest): 'enter' | 'renew' {
  return mode === 'renew' ? 'renew' : 'enter'
}

/** A majority has replied when the lease that it granted was over already. */
export function tooLate(request: TakeRequest): EngineError {
  const { ttlMs } = request
  return new EngineError(
    ENGINE,
    `${callOf(request)}: it took a majority longer than the ttl of ${ttlMs} ms to answer`,
    {
      outcome: 'unknown',
    },
  )
}
