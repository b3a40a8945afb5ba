/** What `holdfast doctor` says of several engines' servers in the same words. */
import type { NamedFinding } from '../../core/finding-names.ts'

/** Of the connections that a server takes, in use. */
const TIGHT = 0.9

/** `aheadMs`: how far the server's clock is ahead of this host's. */
export function clockSkew(aheadMs: number): NamedFinding {
  const difference = `${Math.abs(aheadMs).toFixed(0)} ms ${aheadMs < 0 ? 'behind' : 'ahead of'} this host's`
  const finding = `the server's clock is ${difference}; leases go by the server's alone`
  return { name: 'clock skew', status: 'ok', finding }
}

/** `used` of `most` that the server takes. `todo`: if few are left. */
export function connections(used: number, most: number, todo: string): NamedFinding {
  const found = { name: 'connections', finding: `${used} of ${most} in use` } as const
  return used < most * TIGHT ? { ...found, status: 'ok' } : { ...found, status: 'warn', todo }
}
