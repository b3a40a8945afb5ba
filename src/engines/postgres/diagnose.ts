/**
 * What `holdfast doctor` says of a PostgreSQL server: which one it is, whether it keeps what it says, and whether
 * waiters can be woken.
 */

import type { PostgresWire } from '../../clients/postgres/wire.ts'
import { type Clock, wallClockMs } from '../../core/clock.ts'
import type { NamedFinding } from '../../core/finding-names.ts'
import { clockSkew, connections } from '../shared/findings.ts'
import { asEngineError } from './errors.ts'

/** The oldest version that knows everything we ask of it. */
const LEAST_VERSION = 120_000
/** How many transactions old a snapshot may be before locks get slower by it. */
const OLD_SNAPSHOT = 10_000
const LIMIT_MS = 5000
/** A notification takes a millisecond; one that takes this long does not come. */
const ARRIVAL_MS = 1000

export interface ExaminedPostgres {
  readonly wire: PostgresWire
  readonly listen: PostgresWire['listen']
  readonly clock: Clock
  /** A channel that no other process has. */
  readonly channel: string
}

const FACTS = `SELECT json_build_object(
  'version', current_setting('server_version'),
  'versionNumber', current_setting('server_version_num')::int,
  'replica', pg_is_in_recovery(),
  'fsync', current_setting('fsync')::boolean,
  'fullPageWrites', current_setting('full_page_writes')::boolean,
  'synchronousCommit', current_setting('synchronous_commit'),
  'isolation', current_setting('default_transaction_isolation'),
  'encoding', current_setting('server_encoding'),
  'used', (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
  'most', current_setting('max_connections')::int,
  'oldestSnapshot', greatest(
    (SELECT max(age(backend_xmin)) FROM pg_stat_activity
      WHERE pid <> pg_backend_pid() AND (datname = current_database() OR datname IS NULL)),
    (SELECT max(age(xmin)) FROM pg_replication_slots),
    (SELECT max(age(transaction)) FROM pg_prepared_xacts WHERE database = current_database()), 0),
  'nowMs', extract(epoch FROM clock_timestamp()) * 1000)::text`

interface ServerFacts {
  /** As the server says it: `15.14 (Debian ...)`. */
  readonly version: string
  /** The same as a number: 150014. */
  readonly versionNumber: number
  /** It follows another server, and refuses writes. */
  readonly replica: boolean
  readonly fsync: boolean
  readonly fullPageWrites: boolean
  readonly synchronousCommit: string
  readonly isolation: string
  readonly encoding: string
  /** Connections in use, and how many the server takes. */
  readonly used: number
  readonly most: number
  /** Of the oldest snapshot that keeps the server from removing old versions of our rows: how many transactions ago. */
  readonly oldestSnapshot: number
  readonly nowMs: number
}

export async function diagnose(examined: ExaminedPostgres): Promise<readonly NamedFinding[]> {
  try {
    const askedAt = wallClockMs()
    const facts = JSON.parse(String(await ask(examined, FACTS))) as ServerFacts
    const clockAheadMs = facts.nowMs - (askedAt + wallClockMs()) / 2
    return [
      versionFinding(facts),
      durability(facts),
      database(facts),
      clockSkew(clockAheadMs),
      connections(facts.used, facts.most, 'renewals need one: raise max_connections, or use a pooler'),
      snapshots(facts),
      // A replica refuses to listen, too.
      ...(facts.replica ? [] : await waking(examined)),
    ]
  } catch (error) {
    throw asEngineError('diagnose', error)
  }
}

function ask({ wire }: ExaminedPostgres, text: string, ...values: readonly string[]): Promise<unknown> {
  return wire.ask(text, values, { connectMs: LIMIT_MS, answerMs: LIMIT_MS })
}

function versionFinding({ version, versionNumber, replica }: ServerFacts): NamedFinding {
  const found = { name: 'version', finding: `PostgreSQL ${version}, ${replica ? 'a replica' : 'a primary'}` } as const
  if (replica) return { ...found, status: 'fail', todo: 'a replica refuses writes: name the primary in the URL' }
  if (versionNumber >= LEAST_VERSION) return { ...found, status: 'ok' }
  return { ...found, status: 'fail', todo: `use PostgreSQL ${LEAST_VERSION / 10_000} or newer` }
}

function durability({ fsync, fullPageWrites, synchronousCommit }: ServerFacts): NamedFinding {
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

function database({ isolation, encoding }: ServerFacts): NamedFinding {
  const found = { name: 'database', finding: `encoded in ${encoding}, transactions are ${isolation}` } as const
  if (isolation === 'read committed' && encoding === 'UTF8') return { ...found, status: 'ok' }
  return {
    ...found,
    status: 'fail',
    todo: "Holdfast needs UTF8, and connections whose default_transaction_isolation is 'read committed'",
  }
}

function snapshots({ oldestSnapshot }: ServerFacts): NamedFinding {
  const name = 'snapshots'
  if (oldestSnapshot < OLD_SNAPSHOT) return { name, status: 'ok', finding: 'no old one is open' }
  const todo =
    'until it is closed, old versions of our rows pile up, and each lock on a busy key takes longer than the one ' +
    'before: look for long transactions (pg_stat_activity), replication slots and prepared transactions'
  return { name, status: 'warn', finding: `the oldest is ${oldestSnapshot} transactions old`, todo }
}

/** Nothing, where this engine does not listen. */
async function waking(examined: ExaminedPostgres): Promise<readonly NamedFinding[]> {
  const { listen } = examined
  if (listen === undefined) return []
  const name = 'waking'
  try {
    if (await hears(examined, listen)) return [{ name, status: 'ok', finding: 'notifications arrive' }]
  } catch (error) {
    const finding = `there is no connection to listen on: ${(error as Error).message}`
    return [{ name, status: 'warn', finding, todo: 'waiters poll. Each process needs one connection besides its pool' }]
  }
  const finding = 'no notification arrives: is there a pooler in between?'
  const todo = 'waiters poll. Behind a pooler in transaction mode, give listenUrl: the URL of the server itself'
  return [{ name, status: 'warn', finding, todo }]
}

/** Whether a notification that this process sends to itself arrives. */
async function hears(examined: ExaminedPostgres, listen: NonNullable<PostgresWire['listen']>): Promise<boolean> {
  const { channel, clock } = examined
  let answer: (arrived: boolean) => void = () => undefined
  const answered = new Promise<boolean>((resolve) => {
    answer = resolve
  })
  const connection = await listen(channel, { message: () => answer(true), gap: () => undefined })
  try {
    await ask(examined, 'SELECT pg_notify($1::text, $2::text)::text', channel, '')
    const limit = clock.timer(ARRIVAL_MS, () => answer(false))
    const arrived = await answered
    limit.cancel()
    return arrived
  } finally {
    await connection.close()
  }
}
