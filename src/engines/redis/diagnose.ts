/**
 * What about the server could break the promises of this engine. Redlock asks the same of each of its servers, so the
 * judgements are in clients/redis/server-findings.ts.
 */
import type { RedisNames } from '../../clients/redis/names.ts'
import { serverFindings } from '../../clients/redis/server-findings.ts'
import type { RedisWire } from '../../clients/redis/wire.ts'
import type { NamedFinding } from '../../core/finding-names.ts'

export interface ExaminedRedis {
  readonly wire: RedisWire
  readonly names: RedisNames
  /** How many replicas confirm every grant. */
  readonly replicas: number
  /** Look through all keys for those of strangers that never end. */
  readonly thorough: boolean
}

export function diagnose({ wire, names, replicas, thorough }: ExaminedRedis): Promise<readonly NamedFinding[]> {
  return serverFindings({ wire, prefix: names.serverKey(''), replicas, thorough })
}
