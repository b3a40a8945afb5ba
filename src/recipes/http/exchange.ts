/**
 * One request with an `Idempotency-Key`, whatever framework it came through: what its key is, what is stored of its
 * response, and what is answered to those that get none of their own (draft-ietf-httpapi-idempotency-key-header).
 */
import {
  ClosedError,
  InProgressError,
  KeyReusedError,
  LeaseLostError,
  ReplayedFailureError,
  UnknownOutcomeError,
} from '../../core/errors.ts'
import { documentOf, PROBLEM_TYPE, type ProblemDocument, type ProblemName, seconds } from './problem-document.ts'
import { isPassing } from './problems.ts'

export const KEY_HEADER = 'Idempotency-Key'
/** Says that a response is the stored one of an earlier request. */
export const REPLAYED_HEADER = 'Idempotent-Replayed'

const LONGEST_KEY = 255
/** A string of structured fields (RFC 9651), as the draft has it. */
const QUOTED = /^"((?:[\x20-\x21\x23-\x5b\x5d-\x7e]|\\["\\])+)"$/
/** What many clients send instead. */
const BARE = /^[\x21-\x7e]+$/

/** A problem document (RFC 9457). */
export interface IdempotencyProblem extends ProblemDocument {
  readonly detail: string
  /** Whole seconds, for the header `Retry-After`; undefined: asking again does not help. */
  readonly retryAfter?: number
}

/** What is stored of a response. */
export interface StoredResponse {
  readonly status: number
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly body: string
  /** What `body` is: text, or bytes in base64. */
  readonly as: 'text' | 'base64'
}

/** Whether it is one: a handler may have stored something else by `attempt.commit()`. */
export function isStoredResponse(value: unknown): value is StoredResponse {
  if (typeof value !== 'object' || value === null) return false
  const { status, headers, body, as } = value as Partial<Record<keyof StoredResponse, unknown>>
  return (
    Number.isInteger(status) &&
    Array.isArray(headers) &&
    headers.every((pair) => Array.isArray(pair) && pair.length === 2 && pair.every((one) => typeof one === 'string')) &&
    typeof body === 'string' &&
    (as === 'text' || as === 'base64')
  )
}

/**
 * A response, as a framework has made it. `body` undefined: it was too large, or was sent past the framework, and is on
 * its way to its client.
 */
export interface MadeResponse {
  readonly status: number
  readonly headers: readonly (readonly [name: string, value: string])[]
  readonly body: Uint8Array | undefined
}

/** The key in the header, or what is wrong with it. Undefined: there is none. */
export function keyOf(header: string | undefined): string | IdempotencyProblem | undefined {
  if (header === undefined) return undefined
  const text = header.trim()
  const key = QUOTED.exec(text)?.[1]?.replaceAll(/\\(["\\])/g, '$1') ?? (BARE.test(text) ? text : undefined)
  if (key !== undefined && key.length <= LONGEST_KEY && !text.startsWith('"') === (key === text)) return key
  return problem('key-malformed', 400, `${KEY_HEADER} must be a string of 1 to ${LONGEST_KEY} visible characters`)
}

export function keyMissing(): IdempotencyProblem {
  return problem(
    'key-required',
    400,
    `this request needs the header ${KEY_HEADER}: a value of your choice, new for each request, and the same for its retries`,
  )
}

/** As a server answers that has no parser for a type of bodies. */
export function bodyNotRead(): IdempotencyProblem {
  return problem('body-not-read', 415, `the body of a request with ${KEY_HEADER} must be of a type that is read here`)
}

const NOT_STORED = 'ResponseNotStored'

/** The request was done, and its response cannot be stored. Its message is for clients, unlike that of other errors. */
export class ResponseNotStored extends RangeError {
  override readonly name: string = NOT_STORED

  constructor(status: number, maxBody: number) {
    super(`its response, with status ${status}, was larger than ${maxBody} bytes, or sent past the framework`)
  }
}

/**
 * The request was done, and there is no response to tell: it was not stored, its handler has failed for good, or its
 * transaction was committed, and its process died, or its handler failed, before there was a response to store.
 */
export function responseNotKept(why = 'its response could not be stored'): IdempotencyProblem {
  return problem('not-kept', 409, `the request with this ${KEY_HEADER} was done before; ${why}`)
}

/** Its transaction was committed, and its handler has not ended its response. */
export function inProgress(): IdempotencyProblem {
  return problem('in-progress', 409, `the request with this ${KEY_HEADER} is in progress`, 1)
}

/** What is answered for an error of `once`; undefined for any other. */
export function problemOf(error: unknown): IdempotencyProblem | undefined {
  if (error instanceof KeyReusedError)
    return problem('key-reused', 422, `this ${KEY_HEADER} was used before, for another request`)
  if (error instanceof InProgressError)
    return problem(
      'in-progress',
      409,
      `the request with this ${KEY_HEADER} is in progress`,
      seconds(error.retryAfterMs),
    )
  if (error instanceof LeaseLostError)
    return problem('in-progress', 409, `the request with this ${KEY_HEADER} was taken over by another server`, 1)
  if (error instanceof UnknownOutcomeError)
    return problem(
      'unknown-outcome',
      409,
      `the request with this ${KEY_HEADER} was interrupted, and what it did is not known`,
    )
  if (error instanceof ReplayedFailureError) {
    const { name, message } = error.failure
    return responseNotKept(name === NOT_STORED ? message : undefined)
  }
  if (error instanceof ClosedError)
    return problem('unavailable', 503, 'this server is ending, and another one takes its place', 1)
  if (isPassing(error))
    return problem('unavailable', 503, `what is known of this ${KEY_HEADER} cannot be looked up now`, 1)
  return undefined
}

function problem(name: ProblemName, status: number, detail: string, retryAfter?: number): IdempotencyProblem {
  const about = { ...documentOf(name, status), detail }
  return retryAfter === undefined ? about : { ...about, retryAfter }
}

/** The response to a problem. */
export function answerOf(about: IdempotencyProblem): StoredResponse {
  const { retryAfter, ...document } = about
  const headers: [string, string][] = [['content-type', PROBLEM_TYPE]]
  if (retryAfter !== undefined) headers.push(['retry-after', String(retryAfter)])
  return { status: about.status, headers, body: JSON.stringify(document), as: 'text' }
}

/** What is stored of a response: its status, its body, and the headers that are wanted. */
export function storedResponse(made: MadeResponse, body: Uint8Array, wanted: ReadonlySet<string>): StoredResponse {
  const bytes = Buffer.from(body.buffer, body.byteOffset, body.byteLength)
  const text = bytes.toString('utf8')
  const base64 = bytes.toString('base64')
  // As JSON, text may have six times its length: a body of `maxBody` bytes is to have room in a record.
  const isText = Buffer.from(text, 'utf8').equals(bytes) && jsonBytes(text) <= jsonBytes(base64)
  const headers = made.headers.filter(([name]) => wanted.has(name.toLowerCase()))
  return {
    status: made.status,
    headers,
    body: isText ? text : base64,
    as: isText ? 'text' : 'base64',
  }
}

function jsonBytes(text: string): number {
  return Buffer.byteLength(JSON.stringify(text))
}

/** Headers of a response, one pair for each value: those of cookies cannot be joined. */
export function pairsOf(headers: Readonly<Record<string, number | string | string[] | undefined>>): [string, string][] {
  return Object.entries(headers).flatMap(([name, value]) =>
    value === undefined ? [] : [value].flat().map((one): [string, string] => [name, String(one)]),
  )
}

/** The way back: all values of a name together. */
export function valuesOf(pairs: StoredResponse['headers']): ReadonlyMap<string, string | string[]> {
  const values = new Map<string, string | string[]>()
  for (const [name, value] of pairs) {
    const before = values.get(name)
    values.set(name, before === undefined ? value : [before, value].flat())
  }
  return values
}

export function bytesOf({ body, as }: StoredResponse): Buffer {
  return Buffer.from(body, as === 'text' ? 'utf8' : 'base64')
}
