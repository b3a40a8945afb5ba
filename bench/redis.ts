/**
 * Redis, beside the hand-written protocol and the libraries that people use: what a lock costs, how fast it changes
 * hands, and what it asks of the server when nothing happens.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { openRedis } from '../src/engines/redis/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { Missing } from '../test/servers/programs.ts'
import { findRedis, RedisServer } from '../test/servers/redis.ts'
import { figure, ratio, resultOf } from './driver.ts'
import { acquireAndRelease, holdManyLeases, letManyWait } from './ours.ts'
import { afterKill, handOff, manyWaiters } from './processes.ts'
import { peers } from './redis-peers.ts'

export async function run(): Promise<void> {
  const source = await findRedis()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  await using server = await RedisServer.start(source)
  await besideOthers(server, 100)
  await besideOthers(server, 1)
  await handOff(server.url, { wanted: 'at most 1.5 x' })
  await manyWaiters(server.url, 'at most 2 x')
  await idleWaiters(server)
  await heldLeases(server)
  await afterKill(server.url)
}

async function open(server: RedisServer, ttl: `${number}s` = '30s'): Promise<Locks> {
  return createLocks(await openRedis(server.url), { ttl })
}

async function besideOthers(server: RedisServer, count: number): Promise<void> {
  const locks = await open(server)
  const others = await peers(server.port, count)
  const wanted = { one: 'at least 0.9 x', many: 'at least 1.5 x' }
  const results = await acquireAndRelease(locks, count, { peers: others.peers, wanted, rounds: 9 })
  const times = (other: string): string => ratio(resultOf(results, 'holdfast'), resultOf(results, other)).toFixed(2)
  const libraries = results.filter(({ name }) => !name.startsWith('hand') && !name.startsWith('holdfast'))
  const best = libraries.reduce((a, b) => (a.rate > b.rate ? a : b))
  figure('holdfast to hand-written with a token', `${times('hand-written, fenced')} x`)
  figure(`holdfast to the best library, ${best.name}`, `${times(best.name)} x${count === 1 ? '' : '   (at least 2 x)'}`)
  others.close()
  await locks.close()
}

/** What a process asks of the server while a hundred of it wait and nothing happens. */
async function idleWaiters(server: RedisServer): Promise<void> {
  const [holding, waiting] = [await open(server, '300s'), await open(server, '3s')]
  const endWaiting = await letManyWait(holding, waiting)
  const beats = 10
  const { commands } = await observed(server, () => sleep(beats * 1000))
  console.log('\n100 idle waiters of one process on 100 keys, ttl 3 s, a beat is 1 s')
  figure('commands per beat', `${(commands / beats).toFixed(1)}   (at most 1)`)
  endWaiting()
  await Promise.all([holding.close(), waiting.close()])
}

async function heldLeases(server: RedisServer): Promise<void> {
  const locks = await open(server, '6s')
  await holdManyLeases(locks)
  const beats = 5
  const { commands, serverMs, ownMs } = await observed(server, () => sleep(beats * 2000))
  console.log('\n10,000 held leases of one process, ttl 6 s, a beat is 2 s')
  figure('commands per beat', (commands / beats).toFixed(1))
  figure('time of the server per beat', `${(serverMs / beats).toFixed(1)} ms`)
  figure('processor time of this process per beat', `${(ownMs / beats).toFixed(1)} ms`)
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
