/**
 * What `holdfast doctor` says of a PostgreSQL server on which sessions hold the locks: which one it is, when it notices
 * a holder that is cut off, and whether it has connections left, since each process needs one.
 */
import type { NamedFinding } from '../../core/finding-names.ts'
import { connections } from '../shared/findings.ts'
import type { AdvisorySession, SessionRows } from './session.ts'

const FACTS = `
SELECT current_setting('server_version') AS version, inet_server_addr() IS NULL AS local,
  current_setting('tcp_keepalives_idle') AS idle, current_setting('max_connections')::int AS most,
  (SELECT count(*)::int FROM pg_stat_activity WHERE backend_type = 'client backend') AS used`

export async function diagnose(session: AdvisorySession): Promise<readonly NamedFinding[]> {
  const [facts = {}] = await session.ask(FACTS)
  return [
    { name: 'version', status: 'ok', finding: `PostgreSQL ${String(facts.version)}` },
    cutOffHolders(facts),
    connections(Number(facts.used), Number(facts.most), 'each process needs one of its own: raise max_connections'),
  ]
}

/** The session sets how long the server keeps a silent peer. `idle` is 0 on systems where the server cannot. */
function cutOffHolders({ local, idle }: SessionRows[number]): NamedFinding {
  const name = 'cut-off holders'
  if (local === true) return { name, status: 'ok', finding: 'the server is on this host, and notices at once' }
  if (idle !== '0') return { name, status: 'ok', finding: 'the server frees the locks of a silent session by itself' }
  return {
    name,
    status: 'warn',
    finding: 'this server cannot set TCP keep-alives for a session',
    todo: 'the locks of a host that is cut off stay until the system of the server gives up its connection',
  }
}
