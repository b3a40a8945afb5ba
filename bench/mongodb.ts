/**
 * MongoDB, beside the hand-written protocol and a library: what a lock costs, how fast it changes hands, and what
 * waiters cost. On a real mongod only: a stand-alone server and sets of one and of three, or the deployment at
 * HOLDFAST_TEST_MONGODB_URL. On a set, all of them confirm by a majority.
 */
import { setTimeout as sleep } from 'node:timers/promises'
import { type Document, MongoClient } from 'mongodb'
import { mongodb, openMongodb } from '../src/engines/mongodb/index.ts'
import { createLocks, type Locks } from '../src/index.ts'
import { findMongodb, MongodbServer } from '../test/servers/mongodb.ts'
import { MongodbSet } from '../test/servers/mongodb-set.ts'
import { Missing, type Program } from '../test/servers/programs.ts'
import { callers, figure, race, ratio, resultOf } from './driver.ts'
import { peers } from './mongodb-peers.ts'
import { acquireAndRelease, letManyWait } from './ours.ts'
import { afterKill, handOff, manyWaiters } from './processes.ts'

const CONNECTIONS = 100

export async function run(): Promise<void> {
  const source = await findMongodb()
  if (source instanceof Missing) {
    console.log(source.reason)
    return
  }
  if ('url' in source) {
    await everything(source.url, 'the deployment')
    return
  }
  console.log(source.program.version.split('\n')[0])
  await ofOurOwn(source.program)
}

async function ofOurOwn(program: Program): Promise<void> {
  {
    await using server = await MongodbServer.start({ program })
    await races(server.url, 'stand-alone')
  }
  {
    await using set = await MongodbSet.start(program, 1)
    await everything(set.url, 'a set of one')
  }
  await using set = await MongodbSet.start(program, 3)
  await races(set.url, 'a set of three')
  await handOff(set.url, { wanted: 'at most 2 x', rounds: 300 })
}

async function everything(url: string, where: string): Promise<void> {
  await races(url, where)
  await handOff(url, { wanted: 'at most 2 x', rounds: 300 })
  await manyWaiters(url)
  await idleWaiters(url)
  await afterKill(url)
}

/** With as many connections as the others have. */
async function races(url: string, where: string): Promise<void> {
  await using client = new MongoClient(url, { maxPoolSize: CONNECTIONS })
  const locks = createLocks(mongodb({ client }), { ttl: '30s' })
  await using others = await peers(url, CONNECTIONS)
  const wanted = { one: 'at least 0.85 x', many: 'at least 1.3 x on a set' }
  for (const count of [100, 1])
    await acquireAndRelease(locks, count, { peers: others.peers, where, wanted, rounds: 9, roundMs: 500 })
  const results = await race(
    `acquire + release, 100 callers on one key, ${where}`,
    [
      { name: 'hand-written, asks every 50 ms', run: callers(100, () => others.contended()) },
      {
        name: 'holdfast',
        run: callers(100, async () => {
          const lease = await locks.mutex('one').acquire()
          await lease.release()
        }),
      },
    ],
    { rounds: 5, roundMs: 2_000, warmUps: 1 },
  )
  const times = ratio(resultOf(results, 'holdfast'), resultOf(results, 'hand-written')).toFixed(2)
  figure('holdfast to hand-written, one key', `${times} x   (at least 5 x on a set)`)
  await locks.close()
}

/** What a process asks of the server while a hundred of it wait and nothing happens. */
async function idleWaiters(url: string): Promise<void> {
  const open = async (ttl: '3s' | '300s'): Promise<Locks> => createLocks(await openMongodb(url), { ttl })
  const [holding, waiting] = [await open('300s'), await open('3s')]
  const endWaiting = await letManyWait(holding, waiting)
  const beats = 10
  const asked = await observed(url, () => sleep(beats * 1000))
  console.log('\n100 idle waiters of one process on 100 keys, ttl 3 s, a beat is 1 s')
  for (const [name, times] of asked) figure(`${name} per beat`, (times / beats).toFixed(1))
  figure('renewals per beat and process', `${((asked.get('update') ?? 0) / beats).toFixed(1)}   (one, in two halves)`)
  endWaiting()
  await Promise.all([holding.close(), waiting.close()])
}

/** The commands that the server was sent meanwhile, by name. */
async function observed(url: string, doing: () => Promise<unknown>): Promise<ReadonlyMap<string, number>> {
  await using client = new MongoClient(url)
  const counted = async (): Promise<ReadonlyMap<string, number>> => {
    const { metrics } = await client.db('admin').command({ serverStatus: 1 })
    const commands = Object.entries((metrics?.commands ?? {}) as Document)
    return new Map(commands.map(([name, each]) => [name, Number((each as Document).total ?? 0)]))
  }
  const before = await counted()
  await doing()
  const after = await counted()
  const names = ['update', 'findAndModify', 'aggregate', 'find', 'getMore']
  return new Map(names.map((name) => [name, (after.get(name) ?? 0) - (before.get(name) ?? 0)]))
}
