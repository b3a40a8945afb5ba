/** Clients that we make ourselves: of pg, loaded when it is asked for, and told not to wait for ever. */

import type { Pool } from 'pg'
import { loadPackage } from '../shared/drivers.ts'
import { ENGINE } from './errors.ts'
import type { OwnPgClient } from './pg-client.ts'

/** Three verbs are under way at once at most, with one or two to spare for calls that a stuck row holds up. */
const MOST_CONNECTIONS = 5
const CONNECT_LIMIT_MS = 5000
const IDLE_MS = 30_000
const KEEP_ALIVE_MS = 10_000

const CONNECTION = {
  fallback_application_name: 'holdfast',
  connectionTimeoutMillis: CONNECT_LIMIT_MS,
  keepAlive: true,
  keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
}

export async function poolAt(url: string): Promise<Pool> {
  const { Pool } = await loadPg()
  return new Pool({
    ...CONNECTION,
    connectionString: url,
    max: MOST_CONNECTIONS,
    idleTimeoutMillis: IDLE_MS,
    allowExitOnIdle: true,
  })
}

/** One connection, not yet made. */
export async function clientAt(url: string): Promise<OwnPgClient> {
  const { Client } = await loadPg()
  return new Client({ ...CONNECTION, connectionString: url }) as OwnPgClient
}

async function loadPg(): Promise<Pick<typeof import('pg'), 'Client' | 'Pool'>> {
  const { default: pg } = await loadPackage(ENGINE, 'pg', () => import('pg'))
  return pg
}
