/** From a URL to clients that we make ourselves: of pg, loaded when it is asked for, and told not to wait for ever. */

import type { Pool } from 'pg'
import { loadClient } from '../shared/packages.ts'
import type { OwnPgClient } from './pg-client.ts'

/** Three verbs are under way at once at most, with one or two to spare for calls that a locked row holds up. */
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

/** One connection, not yet made. `scheme` as for `loadPg`. */
export async function clientAt(url: string, scheme?: string): Promise<OwnPgClient> {
  const { Client } = await loadPg(scheme)
  return new Client({ ...CONNECTION, connectionString: url }) as OwnPgClient
}

/** `scheme`: that of the URL for which it is needed, as the error says if it is not installed. */
export async function loadPg(scheme = 'postgres'): Promise<Pick<typeof import('pg'), 'Client' | 'Pool'>> {
  const { default: pg } = await loadClient(scheme, 'pg', () => import('pg'))
  return pg
}

/** What a URL says besides what pg takes; see `openPostgres`. */
export interface PostgresUrlOptions {
  readonly schema?: string
  readonly name?: string
  readonly listenUrl?: string
}

const OURS = ['schema', 'name', 'listenUrl'] as const

/** The options of ours that a URL has, and the URL without them. */
export function splitUrl(url: string): { readonly url: string; readonly options: PostgresUrlOptions } {
  const [address = '', query] = url.split(/\?(.*)/s)
  const parameters = new URLSearchParams(query)
  const options: Record<string, string> = {}
  for (const name of OURS) {
    const value = parameters.get(name)
    if (value !== null) options[name] = value
    parameters.delete(name)
  }
  const rest = parameters.toString()
  return { url: rest === '' ? address : `${address}?${rest}`, options }
}
