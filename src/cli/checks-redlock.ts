/** What `holdfast doctor` checks on a Redlock: the engine's own diagnosis of its servers. */
import type { RedlockEngine } from '../engines/redlock/index.ts'
import type { Check } from './checks.ts'

export const checks: readonly Check[] = [({ engine }) => (engine as RedlockEngine).diagnose()]
