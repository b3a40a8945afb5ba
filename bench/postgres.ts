/**
 * PostgreSQL, beside the hand-written protocol and the libraries that people use: what a lock costs, how fast it
 * changes hands, and what it asks of the server when nothing happens. The server writes to its disk before it answers,
 * as servers do by default.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { openPostgres, postgres } from '../src/engines/postgres/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'
import { figure } from './driver.ts'
import { acquireAndRelease, holdManyLeases, letManyWait } from './ours.ts'
import { peers } from './postgres-peers.ts'
import { afterKill, handOff, manyWaiters } from './processes.ts'

const CONNECTIONS = 10
/** Long enough for processors to turn to something else, and to forget us. */
const REST_MS = 5

export async function run(): Promise<void> {
  const source = await findPostgres()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  await using server = await PostgresServer.start(source, { fsync: true, settings: { max_connections: 200 } })
  const url = await server.database()
  await besideOthers(url, 100)
  await besideOthers(url, 1)
  await handOff(url, { wanted: 'at most 2 x' })
  await handOff(url, { restMs: REST_MS })
  await manyWaiters(url)
  await idleWaiters(server, url)
  await heldLeases(url)
  await afterKill(url)
  await afterKill(url.replace(/^postgres:/, 'postgres-advisory:'))
  if (server.process === undefined) await server.drop(url)
}

async function open(url: string, ttl: `${number}s` = '30s'): Promise<Locks> {
  return createLocks(await openPostgres(url), { ttl })
}

async function besideOthers(url: string, count: number): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  const locks = createLocks(postgres({ client: pool }), { ttl: '30s' })
  const others = await peers(url, CONNECTIONS)
  await acquireAndRelease(locks, count, {
    peers: others.peers,
    where: `${CONNECTIONS} connections`,
    wanted: { one: 'at least 0.8 x', many: 'at least 4 x' },
    rounds: 9,
    roundMs: 500,
  })
  await others.close()
  await locks.close()
  await pool.end()
}

/** What a process asks of the server while a hundred of it wait and nothing happens. */
async function idleWaiters(server: PostgresServer, url: string): Promise<void> {
  const holding = await open(url, '300s')
  const { locks: waiting, statements, close } = counted(`${url}?application_name=waiting`, '3s')
  const endWaiting = await letManyWait(holding, waiting)
  const beats = 10
  const before = statements()
  await sleep(beats * 1000)
  const asked = statements() - before
  await using looker = await server.connect(url)
  const listening = await looker.value(
    `SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting' AND query LIKE 'LISTEN%'`,
  )
  console.log('\n100 idle waiters of one process on 100 keys, ttl 3 s, a beat is 1 s')
  figure('statements per beat', `${(asked / beats).toFixed(1)}   (at most 1)`)
  figure('connections besides those of the pool', `${String(listening)}   (at most 1)`)
  endWaiting()
  await holding.close()
  await close()
}

async function heldLeases(url: string): Promise<void> {
  const { locks, statements, close } = counted(url, '6s')
  await holdManyLeases(locks)
  const beats = 5
  const [before, cpuBefore] = [statements(), process.cpuUsage()]
  await sleep(beats * 2000)
  const { user, system } = process.cpuUsage(cpuBefore)
  console.log('\n10,000 held leases of one process, ttl 6 s, a beat is 2 s')
  figure('statements per beat', ((statements() - before) / beats).toFixed(1))
  figure('processor time of this process per beat', `${((user + system) / 1000 / beats).toFixed(1)} ms`)
  await close()
}

/** Locks on a pool that counts: it gives out a connection for each statement. */
function counted(url: string, ttl: `${number}s`): { locks: Locks; statements(): number; close(): Promise<void> } {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  let count = 0
  pool.on('acquire', () => {
    count += 1
  })
  const locks = createLocks(postgres({ client: pool }), { ttl })
  const close = async (): Promise<void> => {
    await locks.close()
    await pool.end()
  }
  return { locks, statements: () => count, close }
}
