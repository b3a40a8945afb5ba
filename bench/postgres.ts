/**
 * PostgreSQL, beside the hand-written protocol and the libraries that people use: what a lock costs, how fast it changes hands, and what it asks of the server when
 * nothing happens. The server writes to its disk before it answers, as servers do by default.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import pg from 'pg'
import { openPostgres, postgres } from '../src/engines/postgres/index.ts'
import { connect, createLocks, type Locks } from '../src/index.ts'
import { findPostgres, PostgresServer } from '../test/servers/postgres.ts'
import { Missing } from '../test/servers/programs.ts'
import { callers, figure, median, percentile, race } from './driver.ts'
import { nowNs, type Order } from './postgres-child.ts'
import { peers } from './postgres-peers.ts'

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
  await handOff(url, 0)
  await handOff(url, REST_MS)
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
  const rate = (name: string): number => results.find((result) => result.name.startsWith(name))?.rate ?? Number.NaN
  const wanted = count === 1 ? 'at least 0.8 x' : 'at least 4 x'
  figure('holdfast to hand-written', `${(rate('holdfast') / rate('hand-written')).toFixed(2)} x   (${wanted})`)
  await others.close()
  await locks.close()
  await pool.end()
}

/** From the call of release in one process to the grant in another, and what a bare NOTIFY takes, by turns. */
async function handOff(url: string, restMs: number): Promise<void> {
  const locks = await open(url)
  const notifier = new pg.Client(url)
  await notifier.connect()
  const child = await startChild(url)
  await ask(child, { do: 'listen', channel: 'bare' })
  const [handOffs, messages]: [number[], number[]] = [[], []]
  for (let round = 0; round < 1000; round += 1) {
    const lease = await locks.mutex('hand-off').acquire()
    const granted = ask(child, { do: 'acquire', key: 'hand-off', ttlMs: 30_000 })
    await untilWaiting(locks, 'hand-off', 1)
    if (restMs > 0) await sleep(restMs)
    handOffs.push(await timed(() => lease.release(), granted))
    await ask(child, { do: 'release' })
    let sent: Promise<unknown> | undefined
    if (restMs > 0) await sleep(restMs)
    messages.push(await timed(() => (sent = notifier.query('NOTIFY bare')), next(child)))
    await sent
  }
  console.log(
    `\nhand-off between two processes, from the call of release to the grant${restMs > 0 ? `, when nobody did anything for ${restMs} ms` : ''}`,
  )
  const ratio = median(handOffs) / median(messages)
  figure('bare NOTIFY, median', `${median(messages).toFixed(3)} ms`)
  figure('holdfast, median', `${median(handOffs).toFixed(3)} ms   ${ratio.toFixed(2)} x${restMs > 0 ? '' : '   (at most 2 x)'}`)
  figure('bare NOTIFY, 99th percentile', `${percentile(messages, 0.99).toFixed(3)} ms`)
  figure('holdfast, 99th percentile', `${percentile(handOffs, 0.99).toFixed(3)} ms`)
  child.kill()
  await notifier.end()
  await locks.close()
}

/** From now, when it is started, to the time that the other process answers. */
async function timed(start: () => unknown, answer: Promise<{ at: string }>): Promise<number> {
  const startedAt = nowNs()
  start()
  return Number(BigInt((await answer).at) - startedAt) / 1e6
}

/** Eight clients wait, with one or with many waiters each; then the line is drained, each handing over to the next. */
async function manyWaiters(url: string): Promise<void> {
  const clients = await Promise.all(Array.from({ length: 8 }, () => open(url)))
  const costs = new Map<number, number[]>()
  let inOrder = true
  for (let round = 0; round < 7; round += 1) {
    for (const waiters of [8, 256]) {
      const { ms, tokens } = await drain(clients, waiters)
      inOrder &&= tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))
      costs.set(waiters, [...(costs.get(waiters) ?? []), ms / waiters])
    }
  }
  const [few, many] = [median(costs.get(8) ?? []), median(costs.get(256) ?? [])]
  console.log('\nhand-off among eight clients, by number of waiters')
  figure('8 waiters', `${few.toFixed(3)} ms`)
  figure('256 waiters', `${many.toFixed(3)} ms   ${(many / few).toFixed(2)} x`)
  figure('everybody was served in order', inOrder ? 'yes' : 'NO')
  await Promise.all(clients.map((locks) => locks.close()))
}

async function drain(clients: readonly Locks[], waiters: number): Promise<{ ms: number; tokens: readonly bigint[] }> {
  const [holder] = clients as [Locks]
  const first = await holder.mutex('line').acquire()
  const tokens: bigint[] = []
  const served = Array.from({ length: waiters }, async (_, index) => {
    const lease = await (clients[index % clients.length] as Locks).mutex('line').acquire()
    tokens.push(lease.token ?? 0n)
    await lease.release()
  })
  await untilWaiting(holder, 'line', waiters)
  const startedAt = performance.now()
  await first.release()
  await Promise.all(served)
  return { ms: performance.now() - startedAt, tokens }
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

async function afterKill(url: string): Promise<void> {
  const ttlMs = 2_000
  const locks = await connect(url)
  const times: number[] = []
  for (let round = 0; round < 5; round += 1) {
    const child = await startChild(url)
    await ask(child, { do: 'acquire', key: `killed:${round}`, ttlMs })
    const waiting = locks.mutex(`killed:${round}`).acquire()
    await untilWaiting(locks, `killed:${round}`, 1)
    child.kill('SIGKILL')
    const startedAt = performance.now()
    await (await waiting).release()
    times.push(performance.now() - startedAt)
  }
  console.log(`\nfrom kill -9 of a holder to the next grant, ttl ${ttlMs} ms, ${url.slice(0, url.indexOf('/'))}`)
  figure('median, longest', `${median(times).toFixed(0)} ms, ${Math.max(...times).toFixed(0)} ms   (the ttl at most, and a moment)`)
  await locks.close()
}

async function untilWaiting(locks: Locks, key: string, count: number): Promise<void> {
  for (;;) {
    const { entries } = await locks.inspect(key)
    if (entries.filter(({ state }) => state === 'waiting').length === count) return
    await new Promise((resolve) => setImmediate(resolve))
  }
}

async function startChild(url: string): Promise<ChildProcess> {
  const child = fork(new URL('./postgres-child.js', import.meta.url), [url])
  await next(child)
  return child
}

async function ask(child: ChildProcess, order: Order): Promise<{ at: string }> {
  const answer = next(child)
  child.send(order)
  return await answer
}

async function next(child: ChildProcess): Promise<{ at: string }> {
  const [answer] = (await once(child, 'message')) as [{ at: string }]
  return answer
}
