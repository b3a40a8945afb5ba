/**
 * What problems are called (RFC 9457). One name for one thing, wherever a request was refused: by `idempotency()`, by
 * `limited()`, or by an error of its handler (`httpProblem()`). So a client can decide by `type`. The names are in
 * docs/errors.md; those of guards are in guards/http.
 */
export const PROBLEM_TYPE = 'application/problem+json'

const TITLES = {
  busy: 'another request has the lock',
  'in-progress': 'the request is in progress',
  'body-not-read': 'the body of the request was not read',
  'key-malformed': 'the idempotency key is malformed',
  'key-required': 'an idempotency key is required',
  'key-reused': 'the key was used for another request',
  'unknown-outcome': 'what became of the request is not known',
  'failed-before': 'the request has failed for good before',
  'not-kept': 'the response to the request was not kept',
  conflict: 'another request came first',
  superseded: 'a newer request has taken the place of this one',
  lost: 'the lock was lost while the request was handled',
  'rate-limited': 'too many requests',
  unavailable: 'try again later',
} as const

/** The last part of a `type`. */
export type ProblemName = keyof typeof TITLES

/** What every problem document has. */
export interface ProblemDocument {
  readonly type: string
  readonly title: string
  readonly status: number
}

export function documentOf(name: ProblemName, status: number): ProblemDocument {
  return { type: `urn:holdfast:${name}`, title: TITLES[name], status }
}

/** For `Retry-After`. Rounded up: a client that comes too early would be refused again. */
export function seconds(ms: number): number {
  return Math.max(1, Math.ceil(ms / 1000))
}
