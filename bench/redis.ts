/**
 * Redis, beside the hand-written protocol and the libraries that people use: what a lock costs, how fast it changes hands, and what it asks of the server when
 * nothing happens.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import { openRedis } from '../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { callers, figure, median, percentile, race } from './driver.ts'
import { nowNs, type Order } from './redis-child.ts'
import { peers } from './redis-peers.ts'

/** As many again come first and are not counted: both processes are to have run for a while. */
const HAND_OFFS = 1000

export async function run(): Promise<void> {
  const source = await findRedis()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  await using server = await RedisServer.start(source)
  await acquireAndRelease(server, 100)
  await acquireAndRelease(server, 1)
  await handOff(server)
  await manyWaiters(server)
  await idleWaiters(server)
  await heldLeases(server)
  await afterKill(server)
}

async function open(server: RedisServer, ttl: `${number}s` = '30s'): Promise<Locks> {
  return createLocks(await openRedis(server.url), { ttl })
}

async function acquireAndRelease(server: RedisServer, count: number): Promise<void> {
  const locks = await open(server)
  const mutexes = Array.from({ length: count }, (_, caller) => locks.mutex(`key:${caller}`))
  const others = await peers(server.port, count)
  const results = await race(
    `acquire + release, ${count} caller${count === 1 ? '' : 's'}, no contention`,
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
    { rounds: 9 },
  )
  const rate = (name: string): number => results.find((result) => result.name.startsWith(name))?.rate ?? Number.NaN
  const libraries = results.filter(({ name }) => !name.startsWith('hand') && !name.startsWith('holdfast'))
  const best = libraries.reduce((a, b) => (a.rate > b.rate ? a : b))
  const wanted = count === 1 ? 'at least 0.9 x' : 'at least 1.5 x'
  figure('holdfast to hand-written without a token', `${(rate('holdfast') / rate('hand-written, no token')).toFixed(2)} x   (${wanted})`)
  figure('holdfast to hand-written with a token', `${(rate('holdfast') / rate('hand-written, fenced')).toFixed(2)} x`)
  figure(
    `holdfast to the best library, ${best.name}`,
    `${(rate('holdfast') / best.rate).toFixed(2)} x${count === 1 ? '' : '   (at least 2 x)'}`,
  )
  others.close()
  await locks.close()
}

/** From the call of release in one process to the grant in another, and what a bare published message takes, by turns. */
async function handOff(server: RedisServer): Promise<void> {
  const locks = await open(server)
  const publisher = new Redis(server.url)
  const child = await startChild(server)
  await ask(child, { do: 'listen', channel: 'bare' })
  const [handOffs, messages]: [number[], number[]] = [[], []]
  for (let round = -HAND_OFFS; round < HAND_OFFS; round += 1) {
    const lease = await locks.mutex('hand-off').acquire()
    const granted = ask(child, { do: 'acquire', key: 'hand-off', ttlMs: 30_000 })
    await untilWaiting(locks, 'hand-off', 1)
    const handedOver = await timed(() => void lease.release(), granted)
    await ask(child, { do: 'release' })
    const heard = await timed(() => void publisher.publish('bare', 'x'), next(child))
    if (round < 0) continue
    handOffs.push(handedOver)
    messages.push(heard)
  }
  console.log('\nhand-off between two processes, from the call of release to the grant')
  const ratio = median(handOffs) / median(messages)
  figure('bare published message, median', `${median(messages).toFixed(3)} ms`)
  figure('holdfast, median', `${median(handOffs).toFixed(3)} ms   ${ratio.toFixed(2)} x   (at most 1.5 x)`)
  figure('bare published message, 99th percentile', `${percentile(messages, 0.99).toFixed(3)} ms`)
  figure('holdfast, 99th percentile', `${percentile(handOffs, 0.99).toFixed(3)} ms`)
  child.kill()
  publisher.disconnect()
  await locks.close()
}

/** From now, when it is started, to the time that the other process answers. */
async function timed(start: () => void, answer: Promise<{ at: string }>): Promise<number> {
  const startedAt = nowNs()
  start()
  return Number(BigInt((await answer).at) - startedAt) / 1e6
}

/** Eight clients wait, with one or with many waiters each; then the line is drained, each handing over to the next. */
async function manyWaiters(server: RedisServer): Promise<void> {
  const clients = await Promise.all(Array.from({ length: 8 }, () => open(server)))
  const costs = new Map<number, number[]>()
  let inOrder = true
  for (let round = 0; round < 9; round += 1) {
    for (const waiters of [8, 256]) {
      const { ms, tokens } = await drain(clients, waiters)
      inOrder &&= tokens.every((token, index) => index === 0 || token > (tokens[index - 1] as bigint))
      costs.set(waiters, [...(costs.get(waiters) ?? []), ms / waiters])
    }
  }
  const [few, many] = [median(costs.get(8) ?? []), median(costs.get(256) ?? [])]
  console.log('\nhand-off among eight clients, by number of waiters')
  figure('8 waiters', `${few.toFixed(3)} ms`)
  figure('256 waiters', `${many.toFixed(3)} ms   ${(many / few).toFixed(2)} x   (at most 2 x)`)
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
async function idleWaiters(server: RedisServer): Promise<void> {
  const [holding, waiting] = [await open(server, '300s'), await open(server, '3s')]
  const cancel = new AbortController()
  await Promise.all(Array.from({ length: 100 }, (_, index) => holding.mutex(`idle:${index}`).acquire()))
  const waiters = Array.from({ length: 100 }, (_, index) => waiting.mutex(`idle:${index}`).acquire({ signal: cancel.signal }))
  for (const waiter of waiters) waiter.catch(() => undefined)
  for (let index = 0; index < 100; index += 1) await untilWaiting(holding, `idle:${index}`, 1)
  await sleep(2_000)
  const beats = 10
  const { commands } = await observed(server, () => sleep(beats * 1000))
  console.log('\n100 idle waiters of one process on 100 keys, ttl 3 s, a beat is 1 s')
  figure('commands per beat', `${(commands / beats).toFixed(1)}   (at most 1)`)
  cancel.abort()
  await Promise.all([holding.close(), waiting.close()])
}

async function heldLeases(server: RedisServer): Promise<void> {
  const locks = await open(server, '6s')
  for (let batch = 0; batch < 20; batch += 1) {
    await Promise.all(Array.from({ length: 500 }, (_, index) => locks.mutex(`held:${batch}:${index}`).acquire()))
  }
  await sleep(4_000)
  const beats = 5
  const { commands, serverMs, ownMs } = await observed(server, () => sleep(beats * 2000))
  console.log('\n10,000 held leases of one process, ttl 6 s, a beat is 2 s')
  figure('commands per beat', (commands / beats).toFixed(1))
  figure('time of the server per beat', `${(serverMs / beats).toFixed(1)} ms`)
  figure('processor time of this process per beat', `${(ownMs / beats).toFixed(1)} ms`)
  await locks.close()
}

async function afterKill(server: RedisServer): Promise<void> {
  const ttlMs = 2_000
  const locks = await open(server)
  const times: number[] = []
  for (let round = 0; round < 5; round += 1) {
    const child = await startChild(server)
    await ask(child, { do: 'acquire', key: `killed:${round}`, ttlMs })
    const waiting = locks.mutex(`killed:${round}`).acquire()
    await untilWaiting(locks, `killed:${round}`, 1)
    child.kill('SIGKILL')
    const startedAt = performance.now()
    await (await waiting).release()
    times.push(performance.now() - startedAt)
  }
  console.log(`\nfrom kill -9 of a holder to the next grant, ttl ${ttlMs} ms`)
  figure('median, longest', `${median(times).toFixed(0)} ms, ${Math.max(...times).toFixed(0)} ms   (the ttl at most, and a moment)`)
  await locks.close()
}

/** What scripts cost the server meanwhile, and how many were called: nothing else is sent by us. */
async function observed(
  server: RedisServer,
  doing: () => Promise<unknown>,
): Promise<{ commands: number; serverMs: number; ownMs: number }> {
  await using client = await server.connect()
  await client.command('CONFIG', 'RESETSTAT')
  const before = process.cpuUsage()
  await doing()
  const own = process.cpuUsage(before)
  const stats = String(await client.command('INFO', 'commandstats'))
  const [, calls = 0, usec = 0] = /cmdstat_evalsha:calls=(\d+),usec=(\d+)/.exec(stats) ?? []
  return { commands: Number(calls), serverMs: Number(usec) / 1000, ownMs: (own.user + own.system) / 1000 }
}

async function untilWaiting(locks: Locks, key: string, count: number): Promise<void> {
  for (;;) {
    const { entries } = await locks.inspect(key)
    if (entries.filter(({ state }) => state === 'waiting').length === count) return
    await new Promise((resolve) => setImmediate(resolve))
  }
}

async function startChild(server: RedisServer): Promise<ChildProcess> {
  const child = fork(new URL('./redis-child.js', import.meta.url), [server.url])
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
