/** What `holdfast doctor` checks on PostgreSQL: the engine's own diagnosis of its server. */
import type { PostgresEngine } from '../engines/postgres/index.ts'
import type { Check } from './checks.ts'

export const checks: readonly Check[] = [({ engine }) => (engine as PostgresEngine).diagnose()]
