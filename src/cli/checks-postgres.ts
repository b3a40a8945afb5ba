/**
 * What `holdfast doctor` checks on PostgreSQL: which server, whether it keeps what it says, and whether waiters can be
 * woken.
 */

import type { Finding } from '../core/engine.ts'
import type { Diagnosis, PostgresEngine } from '../engines/postgres/index.ts'
import type { Check } from './checks.ts'

/** The oldest one that knows everything we ask of it. */
const LEAST_VERSION = 120_000
const TIGHT = 0.9

export const checks: readonly Check[] = [
  async ({ engine }) => {
    const found = await (engine as PostgresEngine).diagnose(() => Date.now())
    return [
      server(found),
      durability(found),
      isolation(found),
      clockSkew(found),
      connections(found),
      ...listening(found),
    ]
  },
]

function server({ version, versionNumber, replica }: Diagnosis): Finding {
  const found = { name: 'postgresql', finding: `PostgreSQL ${version}, ${replica ? 'a replica' : 'a primary'}` }
  if (replica) return { ...found, status: 'fail', todo: 'a replica refuses writes: name the primary in the URL' }
  if (versionNumber >= LEAST_VERSION) return { ...found, status: 'ok' }
  return { ...found, status: 'fail', todo: `use PostgreSQL ${LEAST_VERSION / 10_000} or newer` }
}

function durability({ fsync, fullPageWrites, synchronousCommit }: Diagnosis): Finding {
  const name = 'durability'
  const off = [...(fsync ? [] : ['fsync']), ...(fullPageWrites ? [] : ['full_page_writes'])]
  if (off.length > 0) {
    const todo =
      'a crash of the machine can lose or damage locks that are held: turn it on, unless the data is for tests'
    return { name, status: 'warn', finding: `${off.join(' and ')} off`, todo }
  }
  const ours = synchronousCommit === 'off' ? ' (Holdfast waits for the disk all the same)' : ''
  return { name, status: 'ok', finding: `fsync on, synchronous_commit ${synchronousCommit}${ours}` }
}

function isolation({ isolation: level, encoding }: Diagnosis): Finding {
  const found = { name: 'database', finding: `encoded in ${encoding}, transactions are ${level}` }
  if (level === 'read committed' && encoding === 'UTF8') return { ...found, status: 'ok' }
  return {
    ...found,
    status: 'fail',
    todo: "Holdfast needs UTF8, and connections whose default_transaction_isolation is 'read committed'",
  }
}

function clockSkew({ clockAheadMs }: Diagnosis): Finding {
  const finding = `the server's clock is ${Math.abs(clockAheadMs).toFixed(0)} ms ${clockAheadMs < 0 ? 'behind' : 'ahead of'} this host's; leases go by the server's alone`
  return { name: 'clock skew', status: 'ok', finding }
}

function connections({ connections: { used, most } }: Diagnosis): Finding {
  const found = { name: 'connections', finding: `${used} of ${most} in use` }
  if (used < most * TIGHT) return { ...found, status: 'ok' }
  return { ...found, status: 'warn', todo: 'renewals need one: raise max_connections, or use a pooler' }
}

function listening({ hears }: Diagnosis): readonly Finding[] {
  if (hears === undefined) return []
  if (hears) return [{ name: 'listening', status: 'ok', finding: 'notifications arrive' }]
  const todo = 'waiters poll. Behind a pooler in transaction mode, give listenUrl: the URL of the server itself'
  return [
    { name: 'listening', status: 'warn', finding: 'no notification arrives: is there a pooler in between?', todo },
  ]
}
