/**
 * What an error of Holdfast means to a client of HTTP: a problem document (RFC 9457), its status, when to ask again.
 * 409: not now. 422: never like this. 503: ask again, or another server. Mistakes of the program have none, nor have
 * errors of the engine that asking again does not mend (a missing driver, a wrong password): they are a 500 like any
 * other, which the framework tells its log.
 *
 * The documents say nothing about keys, holders and servers: they go to strangers.
 */
import {
  AcquireTimeoutError,
  ClosedError,
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
import { documentOf, PROBLEM_TYPE, type ProblemDocument, type ProblemName, seconds } from './problem-document.ts'

/** What to answer. */
export interface HttpProblem {
  readonly status: number
  /** `content-type`, and `retry-after` where asking again may help. */
  readonly headers: Readonly<Record<string, string>>
  readonly body: ProblemDocument
}

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
  if (isPassing(error)) return problem('unavailable', 503, SOON_MS)
  return undefined
}

/** It cannot be decided here and now, and may be in a moment; of locks that were closed, by another process. */
export function isPassing(error: unknown): boolean {
  if (error instanceof LineFullError || error instanceof ClosedError) return true
  return error instanceof EngineError && error.transient
}

function problem(name: ProblemName, status: number, retryAfterMs?: number): HttpProblem {
  return {
    status,
    headers: {
      'content-type': PROBLEM_TYPE,
      ...(retryAfterMs === undefined ? {} : { 'retry-after': String(seconds(retryAfterMs)) }),
    },
    body: documentOf(name, status),
  }
}
