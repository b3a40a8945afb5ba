/**
 * PostgreSQL, beside the hand-written protocol and the libraries that people use: what a lock costs, how fast it changes hands, and what it asks of the server when
 * nothing happens. The server writes to its disk before it answers, as servers do by default.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { openPostgres, postgres } from '../src/engines/postgres/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'
import { callers, figure, race, ratio, resultOf } from './driver.ts'
import { peers } from './postgres-peers.ts'
import { afterKill, handOff, manyWaiters, untilWaiting } from './processes.ts'

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
  await acquireAndRelease(url, 100)
  await acquireAndRelease(url, 1)
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

async function acquireAndRelease(url: string, count: number): Promise<void> {
  const pool = new pg.Pool({ connectionString: url, max: CONNECTIONS })
  const locks = createLocks(postgres({ client: pool }), { ttl: '30s' })
  const mutexes = Array.from({ length: count }, (_, caller) => locks.mutex(`key:${caller}`))
  const others = await peers(url, CONNECTIONS)
  const results = await race(
    `acquire + release, ${count} caller${count === 1 ? '' : 's'}, ${CONNECTIONS} connections, no contention`,
    [
      ...others.peers.map(({ name, pair }) => ({ name, run: callers(count, pair) })),
      {
        name: 'holdfast (fenced, renewed, ordered)',
        run: callers(count, async (caller) => {
          const lease = await mutexes[caller]?.acquire()
          await lease?.release()
        }),
      },
    ],
    { rounds: 9, roundMs: 500 },
  )
  const times = ratio(resultOf(results, 'holdfast'), resultOf(results, 'hand-written'))
  const wanted = count === 1 ? 'at least 0.8 x' : 'at least 4 x'
  figure('holdfast to hand-written', `${times.toFixed(2)} x   (${wanted})`)
  await others.close()
  await locks.close()
  await pool.end()
}

/** What a process asks of the server while a hundred of it wait and nothing happens. */
async function idleWaiters(server: PostgresServer, url: string): Promise<void> {
  const holding = await open(url, '300s')
  const { locks: waiting, statements, close } = counted(`${url}?application_name=waiting`, '3s')
  const cancel = new AbortController()
  await Promise.all(Array.from({ length: 100 }, (_, index) => holding.mutex(`idle:${index}`).acquire()))
  const waiters = Array.from({ length: 100 }, (_, index) => waiting.mutex(`idle:${index}`).acquire({ signal: cancel.signal }))
  for (const waiter of waiters) waiter.catch(() => undefined)
  for (let index = 0; index < 100; index += 1) await untilWaiting(holding, `idle:${index}`, 1)
  await sleep(3_000)
  const beats = 10
  const before = statements()
  await sleep(beats * 1000)
  const asked = statements() - before
  await using looker = await server.connect(url)
  const listening = await looker.value(`SELECT count(*) FROM pg_stat_activity WHERE application_name = 'waiting' AND query LIKE 'LISTEN%'`)
  console.log('\n100 idle waiters of one process on 100 keys, ttl 3 s, a beat is 1 s')
  figure('statements per beat', `${(asked / beats).toFixed(1)}   (at most 1)`)
  figure('connections besides those of the pool', `${String(listening)}   (at most 1)`)
  cancel.abort()
  await holding.close()
  await close()
}

async function heldLeases(url: string): Promise<void> {
  const { locks, statements, close } = counted(url, '6s')
  for (let batch = 0; batch < 20; batch += 1) {
    await Promise.all(Array.from({ length: 500 }, (_, index) => locks.mutex(`held:${batch}:${index}`).acquire()))
  }
  await sleep(4_000)
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
