/** What `holdfast doctor` checks on Redis: the engine's own diagnosis of its server. */
import type { RedisEngine } from '../engines/redis/index.ts'
import type { Check } from './checks.ts'

export const checks: readonly Check[] = [({ engine }) => (engine as RedisEngine).diagnose()]
