/**
 * What the findings of `holdfast doctor` are called: one name for one idea, on whichever engine, so that a program that
 * reads its JSON finds `version` or `durability` of each. What they mean is in docs/cli.md; a test keeps the two equal.
 */
import type { Finding } from './engine.ts'

export const FINDING_NAMES = [
  // Of all engines: src/cli/doctor-checks.ts.
  'node',
  'reachable',
  'round trip',
  'verbs',
  'diagnosis',
  'hand-off',
  'loss',
  // Of several engines. What is found of a new one is one of these, if it is the same idea.
  'version',
  'durability',
  'waking',
  'rights',
  'clock skew',
  'connections',
  // SQLite
  'file',
  'file system',
  'write-ahead log',
  'state folders',
  // Redis, Redlock
  'eviction',
  'replicas',
  'strangers',
  'client',
  'servers',
  'questions',
  // PostgreSQL, MariaDB, MySQL
  'database',
  'snapshots',
  'cut-off holders',
  'binary log',
  // etcd, ZooKeeper
  'smallest ttl',
  'ensemble',
  'session limits',
  'disk space',
  // MongoDB
  'deployment',
  'clearing away',
] as const

export type FindingName = (typeof FINDING_NAMES)[number]

/** A finding of one of our engines. Engines of other authors call theirs as they like. */
export interface NamedFinding extends Finding {
  readonly name: FindingName
}
