/**
 * MariaDB, beside the hand-written protocol and the libraries that people use: what a lock costs, how fast it changes
 * hands, and what it asks of the server when nothing happens. The server writes to its disk before it answers, as
 * servers do by default.
 */
import { existsSync, readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { createPool, type RowDataPacket } from 'mysql2/promise'
import { mysql, openMysql } from '../src/engines/mysql/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { findMariadb, MariadbServer } from '../test/servers/mariadb.ts'
import { Missing } from '../test/servers/programs.ts'
import { callers, figure, race } from './driver.ts'
import { peers } from './mysql-peers.ts'
import { acquireAndRelease, holdManyLeases, letManyWait, type Peer } from './ours.ts'
import { afterKill, handOff, manyWaiters } from './processes.ts'

const CONNECTIONS = 10
/** As a server has it by default; tests have less. */
const LIKE_A_SERVER = ['--innodb-buffer-pool-size=128M', '--innodb-log-file-size=96M']

export async function run(): Promise<void> {
  const source = await findMariadb()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  await using server = await MariadbServer.start(source, { durable: true, args: LIKE_A_SERVER })
  const { url } = server
  await besideOthers(url, 100)
  await besideOthers(url, 1)
  await manyKeys(url)
  await handOff(url, { rounds: 200 })
  await manyWaiters(url)
  await idleWaiters(server)
  await heldLeases(server)
  await afterKill(url)
}

async function open(url: string, ttl: `${number}s` = '30s'): Promise<Locks> {
  return createLocks(await openMysql(url), { ttl })
}

async function besideOthers(url: string, count: number): Promise<void> {
  const pool = createPool({ uri: url, connectionLimit: CONNECTIONS })
  const locks = createLocks(mysql({ client: pool }), { ttl: '30s' })
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

/** Keys that are used once: nothing is there when they come, and nothing stays. */
async function manyKeys(url: string): Promise<void> {
  const locks = await open(url)
  const others = await peers(url, CONNECTIONS)
  const [hand] = others.peers as readonly [Peer, ...Peer[]]
  let used = 0
  const next = (): number => {
    used += 1
    return used
  }
  await race('acquire + release, 100 callers, each key once', [
    { name: hand.name, run: callers(100, () => hand.pair(next())) },
    {
      name: 'holdfast',
      run: callers(100, async () => {
        const lease = await locks.mutex(`once:${next()}`).acquire()
        await lease.release()
      }),
    },
  ])
  await others.close()
  await locks.close()
}

/** What a process asks of the server while a hundred of it wait and nothing happens. */
async function idleWaiters(server: MariadbServer): Promise<void> {
  const pool = createPool({ uri: server.url, connectionLimit: CONNECTIONS })
  const [holding, waiting] = [await open(server.url, '300s'), createLocks(mysql({ client: pool }), { ttl: '3s' })]
  const endWaiting = await letManyWait(holding, waiting)
  const beats = 10
  const { questions } = await observed(server, () => sleep(beats * 1000))
  const sleepers = await server.asRoot(
    `select id from information_schema.processlist where state in ('User sleep', 'User lock')`,
  )
  console.log('\n100 idle waiters of one process on 100 keys, ttl 3 s, a beat is 1 s')
  figure('questions per beat', `${(questions / beats).toFixed(1)}   (at most 1)`)
  // The one that holds listens, too.
  figure('connections besides those of the pool', `${sleepers.length - 1}   (at most 1)`)
  endWaiting()
  await Promise.all([holding.close(), waiting.close()])
  await pool.end()
}

async function heldLeases(server: MariadbServer): Promise<void> {
  const locks = await open(server.url, '6s')
  await holdManyLeases(locks)
  const beats = 5
  const { questions, serverMs, ownMs } = await observed(server, () => sleep(beats * 2000))
  console.log('\n10,000 held leases of one process, ttl 6 s, a beat is 2 s')
  figure('questions per beat', (questions / beats).toFixed(1))
  if (serverMs !== undefined) figure('processor time of the server per beat', `${(serverMs / beats).toFixed(1)} ms`)
  figure('processor time of this process per beat', `${(ownMs / beats).toFixed(1)} ms`)
  await locks.close()
}

/**
 * How much clients have asked meanwhile (our own two questions left out), and what it cost the server and this process.
 */
async function observed(
  server: MariadbServer,
  doing: () => Promise<unknown>,
): Promise<{ questions: number; serverMs: number | undefined; ownMs: number }> {
  const looker = await server.connect()
  const count = async (): Promise<number> => {
    const [rows] = await looker.query<RowDataPacket[]>(`SHOW GLOBAL STATUS LIKE 'Questions'`)
    return Number(rows[0]?.Value)
  }
  const [questions, serverMs] = [await count(), processorMs(server)]
  const before = process.cpuUsage()
  await doing()
  const own = process.cpuUsage(before)
  const after = processorMs(server)
  const asked = (await count()) - questions - 1
  looker.destroy()
  return {
    questions: asked,
    serverMs: serverMs === undefined || after === undefined ? undefined : after - serverMs,
    ownMs: (own.user + own.system) / 1000,
  }
}

/** What the server has used, in ticks of 10 ms, where the system tells. */
function processorMs({ process: server }: MariadbServer): number | undefined {
  const file = `/proc/${server?.pid}/stat`
  if (!existsSync(file)) return undefined
  const fields = readFileSync(file, 'utf8').split(') ')[1]?.split(' ') ?? []
  return (Number(fields[11]) + Number(fields[12])) * 10
}
