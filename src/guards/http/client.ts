/**
 * The client's side: send the token of a lease along, end the request when the lease is lost, and throw when the other
 * side says that the token is stale.
 */
import { StaleTokenError } from '../../core/errors.ts'
import { type LeaseLike, resourceToken } from '../lease-like.ts'
import { HEADER, headerOf, PROBLEM_TYPE, type Problem, STALE } from './header.ts'

/**
 * The header, for clients other than `fetch`: `{ 'Fencing-Token': '1794931660987001' }`. `method` decides whether it is
 * a write.
 */
export function guardHeaders(lease: LeaseLike, method = 'GET'): Record<string, string> {
  const access = /^(?:GET|HEAD|OPTIONS|TRACE)$/i.test(method) ? 'read' : 'write'
  const { token } = resourceToken(lease, access)
  return { [HEADER]: headerOf({ token, shared: lease.shared }) }
}

/**
 * `fetch` under a lease. Rejects with `StaleTokenError` if the answer is that the token is stale, and with
 * `LeaseLostError` if the lease is lost meanwhile (only a lease has a signal that tells; a `LeaseLike` may have none).
 */
export async function guardedFetch(
  lease: LeaseLike & { readonly signal?: AbortSignal },
  url: string | URL,
  init: RequestInit = {},
): Promise<Response> {
  const headers = new Headers(init.headers)
  for (const [name, value] of Object.entries(guardHeaders(lease, init.method))) headers.set(name, value)
  const signals = [init.signal, lease.signal].filter((signal) => signal !== undefined && signal !== null)
  const response = await fetch(url, {
    ...init,
    headers,
    ...(signals.length === 0 ? {} : { signal: AbortSignal.any(signals) }),
  })
  if (response.status !== 412 || !response.headers.get('content-type')?.startsWith(PROBLEM_TYPE)) return response
  const problem = (await response.clone().json()) as Partial<Problem>
  if (problem.type !== STALE || problem.offered === undefined || problem.seen === undefined) return response
  throw new StaleTokenError(problem.resource ?? String(url), BigInt(problem.offered), BigInt(problem.seen))
}
