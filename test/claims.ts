/** Claims as tests make them: each with an id of its own, and only what matters in the test said there. */
import type { Claim } from '../src/core/engine.ts'

let made = 0

export function newClaim(key: string, more: Partial<Claim> = {}): Claim {
  made += 1
  return {
    key,
    id: made.toString(16).padStart(32, '0'),
    holder: 'test',
    weight: 1,
    limit: 1,
    ttlMs: 60_000,
    wait: true,
    ...more,
  }
}
