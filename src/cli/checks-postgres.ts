/** What `holdfast doctor` checks on PostgreSQL, with either engine: the engine's own diagnosis of its server. */
import type { PostgresEngine } from '../engines/postgres/index.ts'
import type { PostgresAdvisoryEngine } from '../engines/postgres-advisory/index.ts'
import type { Check } from './checks.ts'

export const checks: readonly Check[] = [({ engine }) => (engine as PostgresEngine | PostgresAdvisoryEngine).diagnose()]
