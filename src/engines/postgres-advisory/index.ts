/**
 * `holdfast/postgres-advisory`: PostgreSQL's own session locks, on one connection for each process. For those who want
 * the server to free a lock the moment its holder dies, and accept that it can do so before the holder knows.
 *
 * Read in this order: sql.ts (what is asked and stored), book.ts (who of this process wants what), session.ts (the
 * connection), engine.ts (the verbs).
 */
import { loadPackage } from '../../clients/shared/drivers.ts'
import { type Chance, type Clock, systemChance, systemClock } from '../../core/clock.ts'
import type { Engine } from '../../core/engine.ts'
import { AdvisoryEngine } from './engine.ts'
import { ENGINE, Session, type SessionClient } from './session.ts'

export type { SessionClient } from './session.ts'

export interface CommonOptions {
  /**
   * There is a pooler on the way, and it is in session mode. Otherwise a pooler is refused: between two statements it
   * would give our session, with its locks, to somebody else.
   */
  readonly pooler?: 'session'
  /** For tests: where time comes from. */
  readonly clock?: Clock
  /** For tests: where jitter comes from. */
  readonly chance?: Chance
}

export interface PostgresAdvisoryOptions extends CommonOptions {
  /** Make and connect a Client of pg that is for nothing else; called again when the connection was lost. We end it. */
  connect(): Promise<SessionClient>
}

/** An engine on connections that you make. For one by URL: `openPostgresAdvisory(url)`, or `connect(url)`. */
export function postgresAdvisory(options: PostgresAdvisoryOptions): Engine {
  const { clock = systemClock, chance = systemChance, pooler } = options
  return new AdvisoryEngine(
    async (events) => await Session.begin(await options.connect(), clock, events, pooler === 'session'),
    clock,
    chance,
  )
}

const CONNECT_LIMIT_MS = 5_000
const KEEP_ALIVE_MS = 10_000

/**
 * `postgres-advisory://user@host/database`, with `?pooler=session` where that is so, and whatever else pg understands.
 * It connects when it is first asked for something.
 */
export async function openPostgresAdvisory(url: string, options: CommonOptions = {}): Promise<Engine> {
  const given = new URL(url.replace(/^postgres-advisory:/i, 'postgres:'))
  const pooler = given.searchParams.get('pooler') ?? options.pooler
  if (pooler !== undefined && pooler !== 'session') throw new TypeError(`pooler can only be 'session'; got '${pooler}'`)
  given.searchParams.delete('pooler')
  const Client = await loadClient()
  const connect = async (): Promise<SessionClient> => {
    const client = new Client({
      connectionString: given.href,
      fallback_application_name: 'holdfast',
      connectionTimeoutMillis: CONNECT_LIMIT_MS,
      keepAlive: true,
      keepAliveInitialDelayMillis: KEEP_ALIVE_MS,
    })
    // Also while it connects: without a listener a failure ends the process.
    client.on('error', () => undefined)
    await client.connect()
    return client as unknown as SessionClient
  }
  return postgresAdvisory({ ...options, ...(pooler === undefined ? {} : { pooler }), connect })
}

async function loadClient(): Promise<typeof import('pg').Client> {
  return (await loadPackage(ENGINE, 'pg', () => import('pg'))).default.Client
}
