/** What about a cluster could break the promises of locks on it. */
import type { EtcdClient } from '../../clients/etcd/client.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { isAtLeast } from '../../core/version-number.ts'

/**
 * The first releases without this defect: a leader that was replaced while it was frozen or cut off comes back and ends
 * leases that are kept alive.
 */
const MENDED: readonly (readonly [number, number, number])[] = [
  [3, 4, 31],
  [3, 5, 13],
]
const OLDEST = [3, 4] as const

export async function diagnose(client: EtcdClient): Promise<readonly NamedFinding[]> {
  return [versionFinding(await client.version()), await smallestTtl(client)]
}

export function versionFinding(version: string): NamedFinding {
  const name = 'version'
  const finding = `etcd ${version}`
  if (!isAtLeast(version, OLDEST))
    return { name, status: 'fail', finding, todo: `use etcd ${OLDEST.join('.')} or newer` }
  const mended = MENDED.find(([major, minor]) => version.startsWith(`${major}.${minor}.`))
  if (mended === undefined || isAtLeast(version, mended)) return { name, status: 'ok', finding }
  return {
    name,
    status: 'warn',
    finding: `${finding}: a leader that was frozen or cut off, and comes back, can end leases that are kept alive`,
    todo: `use ${mended.join('.')} or newer; until then, have the resource check tokens`,
  }
}

/** The shortest ttl of locks on etcd. A server with a long election time-out grants more. */
const LEAST_SECONDS = 2

async function smallestTtl(client: EtcdClient): Promise<NamedFinding> {
  const { lease, seconds } = await client.grant(LEAST_SECONDS)
  await client.revoke(lease)
  const name = 'smallest ttl'
  if (seconds <= LEAST_SECONDS) return { name, status: 'ok', finding: `${seconds}s` }
  const todo = 'its election time-out is long; a shorter ttl is kept, but a dead holder is replaced only after this'
  return { name, status: 'warn', finding: `${seconds}s`, todo }
}
