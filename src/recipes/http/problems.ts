/**
 * What an error of Holdfast means to a client of HTTP: a problem document (RFC 9457), its status, when to ask again.
 * 409: not now. 422: never like this. 503: ask again, or another server. Errors that are mistakes of the program have
 * none: they are a 500 like any other.
 *
 * The documents say nothing about keys, holders and servers: they go to strangers.
 */
import {
  AcquireTimeoutError,
  ConflictError,
  EngineError,
  InProgressError,
  KeyReusedError,
  LeaseLostError,
  LineFullError,
  ReplayedFailureError,
  StaleTokenError,
  StockError,
  SupersededError,
  UnknownOutcomeError,
} from '../../core/errors.ts'
import { PROBLEM_TYPE, seconds } from './exchange.ts'

/** What to answer. */
export interface HttpProblem {
  readonly status: number
  /** `content-type`, and `retry-after` where asking again may help. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: {
    readonly type: string
    readonly title: string
    readonly status: number
  }
}

const TITLES = {
  busy: 'another request has the lock',
  'in-progress': 'the request is in progress',
  'key-reused': 'the key was used for another request',
  'unknown-outcome': 'what became of the request is not known',
  'failed-before': 'the request has failed for good before',
  conflict: 'another request came first',
  superseded: 'a newer request has taken the place of this one',
  lost: 'the lock was lost while the request was handled',
  unavailable: 'try again later',
} as const

const SOON_MS = 1000

/** What to answer to a request whose handler threw `error`; undefined where that is no business of HTTP. */
export function httpProblem(error: unknown): HttpProblem | undefined {
  if (error instanceof AcquireTimeoutError)
    return error.cause instanceof EngineError ? problem('unavailable', 503, SOON_MS) : problem('busy', 409, SOON_MS)
  if (error instanceof InProgressError) return problem('in-progress', 409, error.retryAfterMs)
  if (error instanceof ConflictError || error instanceof StaleTokenError) return problem('conflict', 409, SOON_MS)
  if (error instanceof UnknownOutcomeError) return problem('unknown-outcome', 409)
  if (error instanceof ReplayedFailureError) return problem('failed-before', 409)
  if (error instanceof SupersededError) return problem('superseded', 409)
  if (error instanceof KeyReusedError || (error instanceof StockError && error.why === 'differs'))
    return problem('key-reused', 422)
  if (error instanceof LeaseLostError) return problem('lost', 503, SOON_MS)
  if (error instanceof LineFullError || error instanceof EngineError) return problem('unavailable', 503, SOON_MS)
  return undefined
}

function problem(type: keyof typeof TITLES, status: number, retryAfterMs?: number): HttpProblem {
  return {
    status,
    headers: {
      'content-type': PROBLEM_TYPE,
      ...(retryAfterMs === undefined ? {} : { 'retry-after': String(seconds(retryAfterMs)) }),
    },
    body: { type: `urn:holdfast:${type}`, title: TITLES[type], status },
  }
}
