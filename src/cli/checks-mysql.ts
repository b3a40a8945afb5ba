/**
 * What `holdfast doctor` checks on MySQL and MariaDB: which server, whether it keeps what it says, and whether waiters
 * can be woken.
 */

import type { Finding } from '../core/engine.ts'
import type { Diagnosis, MysqlEngine } from '../engines/mysql/index.ts'
import type { Check } from './checks.ts'

/** The oldest ones that know everything we ask of them: SKIP LOCKED. */
const LEAST_MARIADB = 100_600
const LEAST_MYSQL = 80_001
const TIGHT = 0.9

export const checks: readonly Check[] = [
  async ({ engine }) => {
    const found = await (engine as MysqlEngine).diagnose(() => Date.now())
    return [server(found), durability(found), ...log(found), clockSkew(found), connections(found), ...listening(found)]
  },
]

function server({ version, versionNumber, mariadb, readOnly }: Diagnosis): Finding {
  const found = {
    name: 'server',
    finding: `${mariadb ? 'MariaDB' : 'MySQL'} ${version}${readOnly ? ', read-only' : ''}`,
  }
  if (readOnly)
    return { ...found, status: 'fail', todo: 'read_only is on, as on a replica: name the primary in the URL' }
  if (versionNumber < (mariadb ? LEAST_MARIADB : LEAST_MYSQL))
    return { ...found, status: 'fail', todo: 'use MariaDB 10.6 or MySQL 8, or newer' }
  if (mariadb) return { ...found, status: 'ok' }
  return {
    ...found,
    status: 'warn',
    todo: 'Holdfast is tested on MariaDB; on MySQL it keeps to what the manual says, and nobody has tried it',
  }
}

function durability({ flushing }: Diagnosis): Finding {
  const found = { name: 'durability', finding: `innodb_flush_log_at_trx_commit is ${flushing}` }
  if (flushing === 1) return { ...found, status: 'ok' }
  const todo =
    'a crash of the machine can lose the last second, and with it locks that are held: set it to 1, unless the data is for tests'
  return { ...found, status: 'warn', todo }
}

function log({ log: format }: Diagnosis): readonly Finding[] {
  if (format === undefined) return []
  const found = { name: 'binary log', finding: `binlog_format is ${format}` }
  if (format !== 'STATEMENT') return [{ ...found, status: 'ok' }]
  return [
    {
      ...found,
      status: 'fail',
      todo: 'transactions that are READ COMMITTED cannot be logged so: set it to ROW or MIXED',
    },
  ]
}

function clockSkew({ clockAheadMs }: Diagnosis): Finding {
  const finding = `the server's clock is ${Math.abs(clockAheadMs).toFixed(0)} ms ${clockAheadMs < 0 ? 'behind' : 'ahead of'} this host's; leases go by the server's alone`
  return { name: 'clock skew', status: 'ok', finding }
}

function connections({ connections: { used, most } }: Diagnosis): Finding {
  const found = { name: 'connections', finding: `${used} of ${most} in use` }
  if (used < most * TIGHT) return { ...found, status: 'ok' }
  return { ...found, status: 'warn', todo: 'renewals need one: raise max_connections' }
}

function listening({ hears }: Diagnosis): readonly Finding[] {
  if (hears === undefined) return []
  if (hears) return [{ name: 'listening', status: 'ok', finding: 'a connection that sleeps can be woken' }]
  const todo = 'waiters poll. Is there a proxy in between, or does another user of the database wake them?'
  return [{ name: 'listening', status: 'warn', finding: 'a connection that sleeps is not woken', todo }]
}
