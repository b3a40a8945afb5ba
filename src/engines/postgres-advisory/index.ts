/**
 * `holdfast/postgres-advisory`: PostgreSQL's own session locks, on one connection for each process. For users who want
 * the server to free a lock the moment its holder dies, and accept that it can do so before the holder knows.
 *
 * Read in this order:
 *
 *     sql.ts                   what is asked of the server, and what is stored there
 *     engine.ts                the verbs
 *     own-entries.ts           the entries of this process: which of them may ask the server for a lock
 *     codec.ts                 requests and replies
 *     session.ts               the connection
 *     store.ts, record-sql.ts  records beside the locks
 *     errors.ts, diagnose.ts   what an error means, and `holdfast doctor`
 */
import { clientAt, loadPg } from '../../clients/postgres/connect.ts'
import { neverCrash } from '../../clients/shared/drivers.ts'
import { type Chance, type Clock, systemChance, systemClock } from '../../core/clock.ts'
import { checkOptions, type OptionNames } from '../../core/options.ts'
import { showEngine } from '../../core/show.ts'
import { PostgresAdvisoryEngine } from './engine.ts'
import { ENGINE } from './errors.ts'
import { AdvisorySession, connectInTime, type SessionClient } from './session.ts'

export type { PostgresAdvisoryEngine } from './engine.ts'
export type { SessionClient } from './session.ts'

/** What does not depend on how connections are made. */
export interface PostgresAdvisoryEngineOptions {
  /**
   * There is a pooler on the way, and it is in session mode. Otherwise a pooler is refused: between two statements it
   * would give our session, with its locks, to another client.
   */
  readonly pooler?: 'session'
  /** For tests: where time comes from. */
  readonly clock?: Clock
  /** For tests: where jitter comes from. */
  readonly chance?: Chance
}

/** Options of `postgresAdvisory()`. */
export interface PostgresAdvisoryOptions extends PostgresAdvisoryEngineOptions {
  /**
   * Make and connect a Client of pg that is for nothing else, within 10 s; called again when the connection was lost.
   * We end it.
   */
  connect(): Promise<SessionClient>
}

const ENGINE_OPTIONS: OptionNames<PostgresAdvisoryEngineOptions> = { pooler: true, clock: true, chance: true }
const OPTIONS: OptionNames<PostgresAdvisoryOptions> = { connect: true, ...ENGINE_OPTIONS }

/** An engine on connections that you make. For one by URL: `openPostgresAdvisory(url)`, or `connect(url)`. */
export function postgresAdvisory(options: PostgresAdvisoryOptions): PostgresAdvisoryEngine {
  checkOptions('postgresAdvisory()', options, OPTIONS)
  const { clock = systemClock, chance = systemChance, pooler } = options
  if (pooler !== undefined && pooler !== 'session')
    throw new TypeError(`pooler can only be 'session'; got '${String(pooler)}'`)
  const connect = (): Promise<SessionClient> => connectInTime(() => options.connect(), clock)
  const engine = new PostgresAdvisoryEngine(
    async (events) => await AdvisorySession.begin(await connect(), clock, events, pooler === 'session'),
    clock,
    chance,
    connect,
  )
  return showEngine(engine)
}

/**
 * `postgres-advisory://user@host/database`, with `?pooler=session` where that is so, and whatever else pg understands.
 * Options win over what the URL says. It connects when it is first asked for something.
 */
export async function openPostgresAdvisory(
  url: string,
  options: PostgresAdvisoryEngineOptions = {},
): Promise<PostgresAdvisoryEngine> {
  checkOptions('openPostgresAdvisory()', options, ENGINE_OPTIONS)
  const given = new URL(url.replace(/^postgres-advisory:/i, 'postgres:'))
  // Checked by `postgresAdvisory`.
  const inUrl = given.searchParams.get('pooler') as PostgresAdvisoryEngineOptions['pooler'] | null
  const pooler = options.pooler ?? inUrl ?? undefined
  given.searchParams.delete('pooler')
  // Now, and not with the first lock: that pg is not installed is known here.
  await loadPg(ENGINE)
  const connect = async (): Promise<SessionClient> => {
    const client = await clientAt(given.href, ENGINE)
    // Also while it connects: without a listener a failure ends the process.
    neverCrash(client)
    await client.connect()
    return client as unknown as SessionClient
  }
  const engine = postgresAdvisory({ ...options, ...(pooler === undefined ? {} : { pooler }), connect })
  return showEngine(engine, { url })
}
