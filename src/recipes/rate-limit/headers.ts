/** A verdict as fields of an HTTP response: those of the IETF draft "RateLimit header fields", and Retry-After. */
import type { RateVerdict } from './verdict.ts'

/** The fields for a response, also for one that was allowed. Retry-After is there if it was not. */
export function headers(verdict: RateVerdict): Record<string, string> {
  const { allowed, retryAfterMs, limits } = verdict
  const fields: Record<string, string> = {}
  if (limits.length > 0) {
    fields['RateLimit-Policy'] = limits.map(({ name, limit, perMs }) => policy(name, limit, perMs)).join(', ')
    fields.RateLimit = limits
      .map(({ name, remaining, resetMs }) => `${quoted(name)};r=${remaining};t=${seconds(resetMs)}`)
      .join(', ')
  }
  if (!allowed) fields['Retry-After'] = String(Math.max(1, seconds(retryAfterMs)))
  return fields
}

/** The window is in whole seconds; one that is not is left out. */
function policy(name: string, limit: number, perMs: number): string {
  const window = perMs % 1000 === 0 ? `;w=${perMs / 1000}` : ''
  return `${quoted(name)};q=${limit}${window}`
}

/** Up: a client that comes back a moment too early would be refused. */
function seconds(ms: number): number {
  return Math.ceil(ms / 1000)
}

/** A string of a structured field has printable ASCII only. */
function quoted(text: string): string {
  return `"${text.replaceAll(/[^\x20-\x7e]/g, '?').replaceAll(/["\\]/g, '\\$&')}"`
}
