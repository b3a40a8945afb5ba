/** What `holdfast doctor` checks on MySQL and MariaDB: the engine says it itself. */
import type { MysqlEngine } from '../engines/mysql/index.ts'
import type { Check } from './checks.ts'

export const checks: readonly Check[] = [async ({ engine }) => await (engine as MysqlEngine).diagnose()]
