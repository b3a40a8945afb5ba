/** What `holdfast doctor` checks on etcd: the engine's own diagnosis of its cluster. */
import type { EtcdEngine } from '../engines/etcd/index.ts'
import type { Check } from './checks.ts'

export const checks: readonly Check[] = [({ engine }) => (engine as EtcdEngine).diagnose()]
