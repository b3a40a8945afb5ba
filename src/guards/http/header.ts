/**
 * A token on the wire: `Fencing-Token: 1794931660987001`, with `;shared` behind it under a shared lease, and the
 * problem document that answers a refused one (RFC 9457).
 *
 * A decimal number, because tokens do not fit into a double, nor into an integer of structured fields (RFC 9651).
 */
import { StaleTokenError } from '../../core/errors.ts'
import type { LeaseLike } from '../lease-like.ts'

export const HEADER = 'Fencing-Token'

const SHAPE = /^(\d{1,19})\s*(;\s*shared)?$/

/** What problems are called. They name no page: `title` says it all. */
export const STALE = 'urn:holdfast:stale-token'
const MISSING = 'urn:holdfast:token-required'
const MALFORMED = 'urn:holdfast:token-malformed'

export const PROBLEM_TYPE = 'application/problem+json'

/** What is answered to a client that is turned away: a problem document (RFC 9457). */
export interface Problem {
  readonly type: string
  readonly title: string
  readonly status: number
  readonly detail: string
  readonly resource?: string
  /** Decimal strings. */
  readonly offered?: string
  readonly seen?: string
}

export function headerOf({ token, shared }: { readonly token: bigint; readonly shared: boolean }): string {
  return shared ? `${token};shared` : String(token)
}

/** The lease that the header tells of, or what is wrong with the header. */
export function leaseOf(header: string | undefined, resource: string): LeaseLike | Problem {
  if (header === undefined) {
    const detail = `send the token of your lease as '${HEADER}'`
    return { type: MISSING, title: 'a fencing token is required', status: 428, detail, resource }
  }
  const [, digits, shared] = SHAPE.exec(header.trim()) ?? []
  if (digits === undefined) {
    const detail = `'${HEADER}' is a decimal number, with ';shared' behind it under a shared lease`
    return { type: MALFORMED, title: 'the fencing token is malformed', status: 400, detail, resource }
  }
  return { key: resource, token: BigInt(digits), shared: shared !== undefined }
}

/** The answer to a refusal of a guard; undefined for any other error. */
export function problemOf(error: unknown): Problem | undefined {
  if (!(error instanceof StaleTokenError)) return undefined
  const { resource, offered, seen, message } = error
  return {
    type: STALE,
    title: 'the fencing token is stale',
    status: 412,
    detail: message,
    resource,
    offered: String(offered),
    seen: String(seen),
  }
}

/** The write of a shared lease, and what else no token can make safe. */
export function unfit(resource: string, error: Error): Problem {
  return { type: MALFORMED, title: 'the lease does not fit', status: 400, detail: error.message, resource }
}
